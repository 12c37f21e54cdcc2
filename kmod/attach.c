// SPDX-License-Identifier: GPL-2.0
/*
 * Finds the tracepoints, most of which are not exported, and attaches the probes to them.
 *
 * Block tracepoints are built in and found by walking the kernel's. SCSI's and the target's are,
 * too, or come and go with scsi_mod and target_core_mod, as the module notifier reports (when
 * registered it replays the loaded modules).
 *
 * Locks: the kernel's module tracepoint mutex > attach_lock > the kernel's tracepoint mutex.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <scsi/scsi_cmnd.h>
#include <scsi/scsi_host.h>
#include <trace/events/block.h>
#include <trace/events/scsi.h>

#include "attach.h"
#include "clock.h"
#include "device.h"
#include "probes.h"
#include "target.h"

struct fabstat_hook {
	const char *name;
	void *probe;
	bool required;
	struct tracepoint *tp;	/* NULL: its module is not loaded, or this kernel has none */
	bool attached;
};

/* Completions first, so that a request issued while the rest is attached is seen to end. */
static struct fabstat_hook hooks[] = {
	{ .name = "block_rq_complete", .probe = fabstat_probe_complete, .required = true },
	{ .name = "block_rq_requeue", .probe = fabstat_probe_requeue, .required = true },
	{ .name = "block_rq_remap", .probe = fabstat_probe_remap },
	{ .name = "scsi_dispatch_cmd_done", .probe = fabstat_probe_scsi_done },
	{ .name = "scsi_dispatch_cmd_error", .probe = fabstat_probe_scsi_error },
	{ .name = "scsi_dispatch_cmd_timeout", .probe = fabstat_probe_scsi_timeout },
	{ .name = "scsi_eh_wakeup", .probe = fabstat_probe_scsi_eh_wakeup },
	{ .name = "target_cmd_complete", .probe = fabstat_probe_target_complete },
	{ .name = "target_sequencer_start", .probe = fabstat_probe_target_start },
	{ .name = "block_rq_issue", .probe = fabstat_probe_issue, .required = true },
};

static DEFINE_MUTEX(attach_lock);
static bool wanted;	/* attach_lock */
static bool target_wanted;	/* attach_lock */
static u64 since_ns;	/* CLOCK_MONOTONIC; attach_lock */
/* When that which is counted began to be, CLOCK_MONOTONIC_RAW; attach_lock */
static u64 counting_since_ns;
static u64 target_since_ns;

/* Makes the compiler compare each probe with the kernel's own prototype of its tracepoint. */
static void __maybe_unused check_prototypes(void)
{
	check_trace_callback_type_block_rq_complete(fabstat_probe_complete);
	check_trace_callback_type_block_rq_requeue(fabstat_probe_requeue);
	check_trace_callback_type_block_rq_remap(fabstat_probe_remap);
	check_trace_callback_type_block_rq_issue(fabstat_probe_issue);
	check_trace_callback_type_scsi_dispatch_cmd_done(fabstat_probe_scsi_done);
	check_trace_callback_type_scsi_dispatch_cmd_error(fabstat_probe_scsi_error);
	check_trace_callback_type_scsi_dispatch_cmd_timeout(fabstat_probe_scsi_timeout);
	check_trace_callback_type_scsi_eh_wakeup(fabstat_probe_scsi_eh_wakeup);
}

/* Whether @hook is on a tracepoint of the part of the kernel that names its own with @prefix. */
static bool hook_is_of(const struct fabstat_hook *hook, const char *prefix)
{
	return str_has_prefix(hook->name, prefix);
}

static int hook_attach(struct fabstat_hook *hook)
{
	int err;

	if (!hook->tp || hook->attached || (hook_is_of(hook, "target_") && !target_wanted))
		return 0;
	err = tracepoint_probe_register(hook->tp, hook->probe, NULL);
	if (err)
		pr_err("cannot attach to %s: %d\n", hook->name, err);
	else
		hook->attached = true;
	return err;
}

static void hook_detach(struct fabstat_hook *hook)
{
	if (!hook->attached)
		return;
	tracepoint_probe_unregister(hook->tp, hook->probe, NULL);
	hook->attached = false;
}

static struct fabstat_hook *hook_find(const struct tracepoint *tp)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (!strcmp(hooks[i].name, tp->name))
			return &hooks[i];
	return NULL;
}

static void builtin_found(struct tracepoint *tp, void *data)
{
	struct fabstat_hook *hook = hook_find(tp);

	if (hook)
		hook->tp = tp;
}

static void module_coming(struct tracepoint *tp)
{
	struct fabstat_hook *hook = hook_find(tp);

	/* A module's tracepoint of a name that the kernel itself has is another one. */
	if (!hook || hook->tp)
		return;
	hook->tp = tp;
	if (wanted)
		hook_attach(hook);
}

static void module_going(struct tracepoint *tp)
{
	struct fabstat_hook *hook = hook_find(tp);

	if (!hook || hook->tp != tp)
		return;
	hook_detach(hook);
	hook->tp = NULL;
	if (hook_is_of(hook, "scsi_"))
		fabstat_identify_forget_scsi();
	else
		fabstat_target_gone();
}

static int module_notify(struct notifier_block *nb, unsigned long event, void *data)
{
	struct module *mod = ((struct tp_module *)data)->mod;
	unsigned int i;

	mutex_lock(&attach_lock);
	for (i = 0; i < mod->num_tracepoints; i++) {
		struct tracepoint *tp = tracepoint_ptr_deref(&mod->tracepoints_ptrs[i]);

		if (event == MODULE_STATE_COMING)
			module_coming(tp);
		else if (event == MODULE_STATE_GOING)
			module_going(tp);
	}
	mutex_unlock(&attach_lock);
	return NOTIFY_OK;
}

static struct notifier_block module_nb = { .notifier_call = module_notify };

/* Takes every probe off; when it returns none is running. */
void fabstat_detach(void)
{
	unsigned int i = ARRAY_SIZE(hooks);

	mutex_lock(&attach_lock);
	WRITE_ONCE(wanted, false);
	while (i--)
		hook_detach(&hooks[i]);
	mutex_unlock(&attach_lock);
	tracepoint_synchronize_unregister();
}

/* Attaches every probe whose tracepoint is loaded. Returns 0 or -errno, with none attached. */
int fabstat_attach(void)
{
	unsigned int i;
	int err = 0;

	mutex_lock(&attach_lock);
	for (i = 0; i < ARRAY_SIZE(hooks) && !err; i++)
		err = hook_attach(&hooks[i]);
	WRITE_ONCE(since_ns, ktime_get_ns());
	counting_since_ns = fabstat_time_ns(fabstat_ticks());
	WRITE_ONCE(wanted, !err);
	mutex_unlock(&attach_lock);
	if (err)
		fabstat_detach();
	return err;
}

/* Attaches what could not be attached when its module came. Called once a second. */
void fabstat_attach_late(void)
{
	unsigned int i;

	mutex_lock(&attach_lock);
	for (i = 0; wanted && i < ARRAY_SIZE(hooks); i++) {
		bool was_attached = hooks[i].attached;

		hook_attach(&hooks[i]);
		if (hooks[i].attached && !was_attached && hook_is_of(&hooks[i], "target_"))
			target_since_ns = fabstat_time_ns(fabstat_ticks());
	}
	mutex_unlock(&attach_lock);
}

/*
 * Says whether commands that this host serves as a target are to be seen; when it returns after an
 * off, no probe on them is running. Returns 0 or -errno, with none of those probes attached.
 */
int fabstat_attach_target(bool on)
{
	unsigned int i;
	int err = 0;

	mutex_lock(&attach_lock);
	/* While its core is not loaded there is nothing to be missed. */
	if (on && !target_wanted)
		target_since_ns = fabstat_time_ns(fabstat_ticks());
	WRITE_ONCE(target_wanted, on);
	for (i = 0; on && wanted && i < ARRAY_SIZE(hooks) && !err; i++)
		err = hook_attach(&hooks[i]);
	if (err)
		WRITE_ONCE(target_wanted, false);
	for (i = ARRAY_SIZE(hooks); !target_wanted && i--;)
		if (hook_is_of(&hooks[i], "target_"))
			hook_detach(&hooks[i]);
	mutex_unlock(&attach_lock);
	if (!on || err)
		tracepoint_synchronize_unregister();
	return err;
}

/* Returns true while every probe is attached whose tracepoint is loaded. */
bool fabstat_attached(void)
{
	return READ_ONCE(wanted);
}

/* Returns since when the probes are attached, as requests are stamped: CLOCK_MONOTONIC. */
u64 fabstat_attached_since_ns(void)
{
	return READ_ONCE(since_ns);
}

/* Returns since when every request has been counted, CLOCK_MONOTONIC_RAW; 0: they are not. */
u64 fabstat_counting_since_ns(void)
{
	u64 since;

	mutex_lock(&attach_lock);
	since = wanted ? counting_since_ns : 0;
	mutex_unlock(&attach_lock);
	return since;
}

/* Returns the same of the commands that this host serves as a target. */
u64 fabstat_target_counting_since_ns(void)
{
	unsigned int i;
	u64 since;

	mutex_lock(&attach_lock);
	since = wanted && target_wanted ? max(counting_since_ns, target_since_ns) : 0;
	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (hook_is_of(&hooks[i], "target_") && hooks[i].tp && !hooks[i].attached)
			since = 0;
	mutex_unlock(&attach_lock);
	return since;
}

/* Returns true while every probe is attached on what @prefix names. */
static bool all_attached(const char *prefix)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (hook_is_of(&hooks[i], prefix) && !READ_ONCE(hooks[i].attached))
			return false;
	return true;
}

/* Returns true while everything that SCSI tells is being seen. */
bool fabstat_attached_scsi(void)
{
	return all_attached("scsi_");
}

/* Returns true while commands that this host serves as a target are wanted to be seen. */
bool fabstat_target_wanted(void)
{
	return READ_ONCE(target_wanted);
}

/* Returns true while every command that this host serves as a target is being seen. */
bool fabstat_attached_target(void)
{
	return all_attached("target_");
}

/*
 * Returns the name of the tracepoint @number of those that are not there; NULL behind the last.
 * The target's are missing on every host that is none: the file "target" tells of them.
 */
const char *fabstat_missing(unsigned int number)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (!READ_ONCE(hooks[i].tp) && !hook_is_of(&hooks[i], "target_") && !number--)
			return hooks[i].name;
	return NULL;
}

int fabstat_attach_init(void)
{
	unsigned int i;

	for_each_kernel_tracepoint(builtin_found, NULL);
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (hooks[i].required && !hooks[i].tp) {
			pr_err("this kernel has no tracepoint %s\n", hooks[i].name);
			return -ENOENT;
		}
	}
	return register_tracepoint_module_notifier(&module_nb);
}

void fabstat_attach_exit(void)
{
	unregister_tracepoint_module_notifier(&module_nb);
}
