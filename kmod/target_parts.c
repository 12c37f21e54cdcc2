// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of a command's time at the target: until all of its data had come, and until the
 * backstore had answered.
 *
 *	comes ----> data is there ----> backstore has answered ----> is answered
 *	      R2T                backstore                    response
 *
 * The target's core has no tracepoints in between, but two functions that every command passes:
 * target_execute_cmd(), which hands it to the backstore, and target_complete_cmd() or
 * target_complete_cmd_with_sense(), which the backstore calls. Kprobes on them cost more than the
 * rest of the target's half, so they are there only when they are asked for.
 *
 * A kprobe may run as if in an NMI, so nothing is allocated and no lock is taken. One on a module
 * is gone with it: whoever looks around once a second sees that, and when the module is back.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/lockdep.h>
#include <linux/ptrace.h>

#include "attach.h"
#include "device.h"
#include "target.h"

static bool wanted;	/* fabstat_lock */

#if defined(CONFIG_KPROBES) && defined(CONFIG_HAVE_FUNCTION_ARG_ACCESS_API)

struct passage {
	const char *function;
	kprobe_pre_handler_t handler;
	struct kprobe probe;
	bool registered;
	bool missing;		/* in the target's core that is loaded */
};

static int ready_handler(struct kprobe *probe, struct pt_regs *regs)
{
	fabstat_target_passes((const struct se_cmd *)regs_get_kernel_argument(regs, 0),
			      FABSTAT_READY);
	return 0;
}

NOKPROBE_SYMBOL(ready_handler);

static int done_handler(struct kprobe *probe, struct pt_regs *regs)
{
	fabstat_target_passes((const struct se_cmd *)regs_get_kernel_argument(regs, 0),
			      FABSTAT_DONE);
	return 0;
}

NOKPROBE_SYMBOL(done_handler);

/* One of the last two may call the other; a command passes each part once. */
static struct passage passages[] = {
	{ .function = "target_execute_cmd", .handler = ready_handler },
	{ .function = "target_complete_cmd", .handler = done_handler },
	{ .function = "target_complete_cmd_with_sense", .handler = done_handler },
};

static void passage_leave(struct passage *passage)
{
	if (passage->registered)
		unregister_kprobe(&passage->probe);
	passage->registered = false;
}

/* Older kernels have not all of these functions; to look for one in vain takes them long. */
static void passage_watch(struct passage *passage)
{
	int err;

	if (passage->registered || passage->missing)
		return;
	passage->probe = (struct kprobe){
		.symbol_name = passage->function,
		.pre_handler = passage->handler,
	};
	err = register_kprobe(&passage->probe);
	passage->registered = !err;
	passage->missing = err == -ENOENT;
	if (err && err != -ENOENT)
		pr_warn_once("cannot watch %s: %d\n", passage->function, err);
}

/*
 * Watches the functions while it is wanted and the target's commands are seen, else not. When it
 * returns after an off, no handler is running. fabstat_lock.
 */
void fabstat_target_parts_follow(void)
{
	bool on = wanted && fabstat_attached_target();
	unsigned int i;

	lockdep_assert_held(&fabstat_lock);
	if (on)
		fabstat_nexuses_equip();
	for (i = 0; i < ARRAY_SIZE(passages); i++) {
		if (!on || kprobe_gone(&passages[i].probe))
			passage_leave(&passages[i]);
		/* Another core may be loaded next. */
		if (!on || !passages[0].registered)
			passages[i].missing = false;
		if (on)
			passage_watch(&passages[i]);
	}
}

/* Returns true while both parts are seen. */
bool fabstat_target_parts_seen(void)
{
	return READ_ONCE(passages[0].registered) &&
	       (READ_ONCE(passages[1].registered) || READ_ONCE(passages[2].registered));
}

#else

void fabstat_target_parts_follow(void)
{
}

bool fabstat_target_parts_seen(void)
{
	return false;
}

#endif

/* Says whether the parts are wanted. Returns 0, or -EOPNOTSUPP if this kernel has no kprobes. */
int fabstat_target_parts_want(bool on)
{
	lockdep_assert_held(&fabstat_lock);
	if (on && !(IS_ENABLED(CONFIG_KPROBES) && IS_ENABLED(CONFIG_HAVE_FUNCTION_ARG_ACCESS_API)))
		return -EOPNOTSUPP;
	WRITE_ONCE(wanted, on);
	return 0;
}

bool fabstat_target_parts_wanted(void)
{
	return READ_ONCE(wanted);
}
