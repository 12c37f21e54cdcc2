// SPDX-License-Identifier: GPL-2.0
/*
 * fabstat: the time of every block request and every refusal, per device.
 *
 *	tracepoint -> fabstat_device (by q->id) -> fabstat_slot (by tag): when was it issued?
 *	                    |
 *	                    +-> fabstat_cpu: counters of this CPU -> fabstat_histogram
 *
 * Each file uses only files further down:
 *
 *	main		loading, unloading, the switch, and a look around once a second
 *	show, show_target, stuck	the files in debugfs
 *	show_histograms, totals	what all CPUs have counted, added up
 *	records		records as text or as typed words
 *	unseen		requests that no probe saw
 *	attach		tracepoints
 *	block, complete, requeue, scsi, nvme, dm	probes
 *	target_parts	the parts of a served command's time, on demand
 *	target, nexus	the other end: commands that this host serves, by session and LUN
 *	tell		the module's own tracepoints (trace.h)
 *	detail, slowest	what is recorded on demand: waits, sizes, outliers
 *	place		what a probe works on: device, counters and slot of a request
 *	device, identity, limit	the devices, their names, and how much they may have in flight
 *	room		whether there is memory for a device, and requests of those without
 *	counters, slots	counters of a CPU; requests in flight
 *	depth		how many are in flight, against their limit
 *	memory, clock	a ceiling on what is allocated; the cheapest exact time
 *	reserve		memory that lies ready, on PREEMPT_RT kernels
 *	classify.h, histogram.h, compat.h	pure rules; differences between kernels
 *
 * Memory is allocated on first use, from within probes, which must not sleep.
 *
 * Load:   clock -> tracepoints -> files -> probes.  Unload: the same in reverse, then memory.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/lockdep.h>
#include <linux/module.h>
#include <linux/workqueue.h>

#include "attach.h"
#include "clock.h"
#include "counters.h"
#include "device.h"
#include "files.h"
#include "memory.h"
#include "nexus.h"
#include "place.h"
#include "probes.h"
#include "reserve.h"
#include "target.h"
#include "unseen.h"

#define SCAN_PERIOD	HZ

static bool enabled = true;	/* whether to count; fabstat_attached(): whether it does */
static bool loaded;	/* fabstat_lock; before and after, parameters are only noted */
static struct dentry *dir;

/* Begins to count or ends it; while it is off no probe is attached. fabstat_lock. */
static int fabstat_count_on(bool on)
{
	int err = 0;

	lockdep_assert_held(&fabstat_lock);
	if (on)
		err = fabstat_attach();
	else
		fabstat_detach();
	/* Probes that were attached before another one failed may have seen requests, too. */
	if (!on || err) {
		fabstat_forget_all();
		fabstat_target_forget_all();
	}
	fabstat_target_parts_follow();
	return err;
}

/*
 * Changes to the timekeeper's own reading, because the counter no longer agrees with it, or back
 * to the counter. Requests in flight were stamped in other ticks: they are forgotten. fabstat_lock.
 */
static void fabstat_change_clock(bool to_counter)
{
	if (enabled)
		fabstat_count_on(false);
	fabstat_devices_close_ticks();
	if (to_counter)
		fabstat_clock_init();
	else
		fabstat_clock_fall_back();
	/* What fails for want of memory now is tried again at each look. */
	if (enabled && loaded)
		fabstat_count_on(true);
	pr_info("the kernel's clock has changed, timing with the %s\n",
		fabstat_clock.counter ? "cycle counter" : "timekeeper");
}

/* Looks for what no notifier tells: another clock, queues being torn down, memory to be had. */
static void fabstat_scan(struct work_struct *work)
{
	mutex_lock(&fabstat_lock);
	if (fabstat_clock_lost())
		fabstat_change_clock(false);
	else if (fabstat_clock_found())
		fabstat_change_clock(true);
	else if (enabled && loaded && !fabstat_attached())
		fabstat_count_on(true);
	fabstat_attach_late();
	fabstat_target_parts_follow();
	fabstat_forget_lost();
	fabstat_devices_scan();
	fabstat_target_scan();
	if (fabstat_memory_eased()) {
		fabstat_devices_retry();
		fabstat_nexuses_retry();
	}
	mutex_unlock(&fabstat_lock);
	schedule_delayed_work(to_delayed_work(work), SCAN_PERIOD);
}

static DECLARE_DELAYED_WORK(scan_work, fabstat_scan);

/* Has @apply do, under fabstat_lock, what a parameter was set to. */
static int switch_set(const char *value, int (*apply)(bool on))
{
	bool on;
	int err = kstrtobool(value, &on);

	if (err)
		return err;
	mutex_lock(&fabstat_lock);
	err = apply(on);
	mutex_unlock(&fabstat_lock);
	return err;
}

static int enabled_apply(bool on)
{
	int err = 0;

	if (loaded && on != fabstat_attached())
		err = fabstat_count_on(on);
	if (!err)
		enabled = on;
	return err;
}

static int enabled_set(const char *value, const struct kernel_param *param)
{
	return switch_set(value, enabled_apply);
}

static const struct kernel_param_ops enabled_ops = {
	.set = enabled_set,
	.get = param_get_bool,
};

module_param_cb(enabled, &enabled_ops, &enabled, 0644);
MODULE_PARM_DESC(enabled,
		 "count; N takes all probes off, and forgets what is in flight (default Y)");

static int target_apply(bool on)
{
	int err = fabstat_attach_target(on);

	/* While the module goes fabstat_exit() frees what would be forgotten here. */
	if (loaded && (!on || err))
		fabstat_target_forget_all();
	if (loaded)
		fabstat_target_parts_follow();
	return err;
}

static int target_set(const char *value, const struct kernel_param *param)
{
	return switch_set(value, target_apply);
}

static int target_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%c\n", fabstat_target_wanted() ? 'Y' : 'N');
}

static const struct kernel_param_ops target_ops = { .set = target_set, .get = target_get };

module_param_cb(target, &target_ops, NULL, 0644);
MODULE_PARM_DESC(target, "count what this host serves as a target, too (default N)");

static int target_parts_apply(bool on)
{
	int err = fabstat_target_parts_want(on);

	if (loaded)
		fabstat_target_parts_follow();
	return err;
}

static int target_parts_set(const char *value, const struct kernel_param *param)
{
	return switch_set(value, target_parts_apply);
}

static int target_parts_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%c\n", fabstat_target_parts_wanted() ? 'Y' : 'N');
}

static const struct kernel_param_ops target_parts_ops = {
	.set = target_parts_set,
	.get = target_parts_get,
};

module_param_cb(target_parts, &target_parts_ops, NULL, 0644);
MODULE_PARM_DESC(target_parts,
		 "tell what of a served command's time was R2T's and the backstore's (default N)");

static int __init fabstat_init(void)
{
	int err;

	if (!IS_ENABLED(CONFIG_DEBUG_FS)) {
		pr_err("this kernel has no debugfs, which the counters are read from\n");
		return -EOPNOTSUPP;
	}
	err = fabstat_counters_init();
	if (err)
		return err;
	err = fabstat_reserve_init();
	if (err)
		goto exit_counters;
	fabstat_clock_init();
	fabstat_devices_init();
	err = fabstat_unseen_init();
	if (!err)
		err = fabstat_dm_init();
	if (err)
		goto free_reserve;
	err = fabstat_attach_init();
	if (err)
		goto exit_dm;

	dir = debugfs_create_dir(KBUILD_MODNAME, NULL);
	if (IS_ERR(dir)) {
		err = PTR_ERR(dir);
		pr_err("no directory in debugfs, which the counters are read from: %d\n", err);
		goto exit_attach;
	}
	debugfs_create_file("stats", 0400, dir, NULL, &fabstat_stats_fops);
	debugfs_create_file("stats.bin", 0400, dir, NULL, &fabstat_typed_fops);
	debugfs_create_file("slowest", 0400, dir, NULL, &fabstat_slowest_fops);
	debugfs_create_file("stuck", 0400, dir, NULL, &fabstat_stuck_fops);
	debugfs_create_file("target", 0400, dir, NULL, &fabstat_target_fops);

	mutex_lock(&fabstat_lock);
	if (enabled)
		err = fabstat_attach();
	loaded = !err;
	if (loaded)
		fabstat_target_parts_follow();
	mutex_unlock(&fabstat_lock);
	if (err)
		goto remove_files;
	schedule_delayed_work(&scan_work, SCAN_PERIOD);
	pr_info("timing with the %s\n", fabstat_clock.counter ? "cycle counter" : "timekeeper");
	return 0;

remove_files:
	debugfs_remove_recursive(dir);
exit_attach:
	fabstat_attach_exit();
	fabstat_devices_exit();
	fabstat_target_exit();
exit_dm:
	fabstat_dm_exit();
free_reserve:
	fabstat_reserve_exit();
exit_counters:
	fabstat_counters_exit();
	return err;
}

static void __exit fabstat_exit(void)
{
	mutex_lock(&fabstat_lock);
	loaded = false;
	mutex_unlock(&fabstat_lock);
	fabstat_detach();
	debugfs_remove_recursive(dir);
	fabstat_attach_exit();
	cancel_delayed_work_sync(&scan_work);
	/* The target's probes are off, and so these go. */
	mutex_lock(&fabstat_lock);
	fabstat_target_parts_follow();
	mutex_unlock(&fabstat_lock);
	fabstat_devices_exit();
	fabstat_target_exit();
	fabstat_dm_exit();
	fabstat_reserve_exit();
	fabstat_counters_exit();
}

module_init(fabstat_init);
module_exit(fabstat_exit);

MODULE_DESCRIPTION("Latency, queue depth and refusals of every block request");
MODULE_AUTHOR("The fabtune developers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.2.0");
