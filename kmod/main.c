// SPDX-License-Identifier: GPL-2.0
/*
 * fabstat: load, unload, and the switch.
 *
 * Load:   clock -> tracepoints -> files -> probes.  Unload: the same line backwards, then memory.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/module.h>

#include "fabstat.h"

unsigned int fabstat_stuck_ms = 60000;
module_param_named(stuck_ms, fabstat_stuck_ms, uint, 0644);
MODULE_PARM_DESC(stuck_ms, "age in ms from which a request is on the stuck list (default 60000)");

static bool enabled = true;
static bool loaded;	/* fabstat_lock: the parameter may act */

u64 fabstat_loaded_ns;
static struct dentry *dir;

bool fabstat_enabled(void)
{
	return READ_ONCE(enabled);
}

/* Switches counting on or off; while it is off no probe is attached. fabstat_lock. */
static int switch_to(bool on)
{
	int err;

	if (on) {
		err = fabstat_attach();
		if (err) {
			/* Some of the probes may have seen requests meanwhile. */
			fabstat_slots_forget();
			return err;
		}
	} else {
		fabstat_detach();
		fabstat_slots_forget();
	}
	WRITE_ONCE(enabled, on);
	return 0;
}

/*
 * Goes over to the timekeeper's own reading, because the counter no longer agrees with it.
 * Requests in flight were stamped with the counter: they are forgotten. fabstat_lock.
 */
void fabstat_change_clock(void)
{
	bool was_enabled = enabled;

	pr_info("the cycle counter is no longer the kernel's clock, timing with the timekeeper\n");
	if (was_enabled)
		switch_to(false);
	fabstat_devices_close_ticks();
	fabstat_clock_fall_back();
	if (was_enabled && loaded)
		switch_to(true);
}

static int enabled_set(const char *value, const struct kernel_param *param)
{
	bool on;
	int err = kstrtobool(value, &on);

	if (err)
		return err;
	mutex_lock(&fabstat_lock);
	if (!loaded)
		enabled = on;
	else if (on != enabled)
		err = switch_to(on);
	mutex_unlock(&fabstat_lock);
	return err;
}

static const struct kernel_param_ops enabled_ops = {
	.set = enabled_set,
	.get = param_get_bool,
};

module_param_cb(enabled, &enabled_ops, &enabled, 0644);
MODULE_PARM_DESC(enabled, "count; N takes all probes off, and forgets what is in flight (default Y)");

static int __init fabstat_init(void)
{
	int err;

	/* Probes take memory where PREEMPT_RT forbids it. */
	if (IS_ENABLED(CONFIG_PREEMPT_RT)) {
		pr_err("PREEMPT_RT kernels are not supported\n");
		return -EOPNOTSUPP;
	}
	fabstat_clock_init();
	fabstat_loaded_ns = fabstat_time_ns(fabstat_ticks());
	fabstat_devices_init();
	err = fabstat_attach_init();
	if (err)
		return err;

	dir = debugfs_create_dir(KBUILD_MODNAME, NULL);
	debugfs_create_file("stats", 0400, dir, NULL, &fabstat_stats_fops);
	debugfs_create_file("stuck", 0400, dir, NULL, &fabstat_stuck_fops);

	mutex_lock(&fabstat_lock);
	if (enabled)
		err = fabstat_attach();
	loaded = !err;
	mutex_unlock(&fabstat_lock);
	if (err)
		goto remove_files;
	fabstat_scan_start();
	pr_info("timing with the %s\n",
		fabstat_clock.counter ? "cycle counter" : "timekeeper");
	return 0;

remove_files:
	debugfs_remove_recursive(dir);
	fabstat_attach_exit();
	fabstat_devices_exit();
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
	fabstat_devices_exit();
}

module_init(fabstat_init);
module_exit(fabstat_exit);

MODULE_DESCRIPTION("Latency, queue depth and refusals of every block request");
MODULE_AUTHOR("The fabtune developers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
