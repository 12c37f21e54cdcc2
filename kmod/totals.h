/* SPDX-License-Identifier: GPL-2.0 */
/* The counters of all CPUs, added up while requests come and go; see totals.c. */
#ifndef FABSTAT_TOTALS_H
#define FABSTAT_TOTALS_H

#include "classify.h"

struct fabstat_device;

/* One CPU's or the sum of all CPUs' counters. */
struct fabstat_totals {
	u64 issued[FABSTAT_OPS];
	u64 completed[FABSTAT_OPS];
	u64 sent_back[FABSTAT_OPS];
	u64 bytes[FABSTAT_OPS];
	u64 device_ns[FABSTAT_OPS];
	u64 again_ns[FABSTAT_OPS];
	u64 refused_ns[FABSTAT_OPS];
	u64 wait_ns[FABSTAT_OPS];
	u64 refused[FABSTAT_OPS];
	u64 errors[FABSTAT_OPS][FABSTAT_ERRORS];
	u64 depth_ticks;
	u64 rare[FABSTAT_EVENTS];
	u64 events;
};

struct fabstat_sum {
	struct fabstat_totals totals;
	u64 forgotten;		/* requests, see fabstat_forgotten() */
	u64 forgotten_ticks;
	u64 now;		/* ticks behind the last CPU's counters */
	u64 depth_error_ns;	/* the most that the integral of the depth may be off */
	unsigned int torn;	/* CPUs in the middle of an event: nothing bounds the integral */
};

void fabstat_sum(struct fabstat_device *dev, struct fabstat_sum *sum);

#endif
