/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many requests are in flight, against the most that there may be.
 *
 * Where a limit is the device's own, all CPUs share one word for it, as SCSI itself does; where
 * each hardware queue has its own limit, each has a word of its own here, too, which the CPUs of
 * other queues never touch. The highest value and the time at the limit are exact for each.
 */
#ifndef FABSTAT_DEPTH_H
#define FABSTAT_DEPTH_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/compiler.h>
#include <linux/types.h>

struct fabstat_depth {
	atomic_t now;
	u32 highest;
	atomic64_t issued;	/* of a hardware queue only */
	u32 limit;		/* as last seen; 0: no request has been */
	bool of_queue;
	u64 limit_since;	/* ticks; 0: below the limit */
	atomic64_t at_limit_ns;
	u64 at_limit_shown_ns;	/* fabstat_lock */
	const unsigned short *limit_now;	/* valid while a request is in flight */
} ____cacheline_aligned_in_smp;

void fabstat_depth_peak(struct fabstat_depth *depth, u32 now, u32 limit, u64 ticks);
void fabstat_depth_left_limit(struct fabstat_depth *depth, u64 ticks);

/*
 * A request was issued at @ticks. When two CPUs pass the old highest value at once, the lower of
 * their two may remain; the next request that goes as high corrects it.
 */
static __always_inline void fabstat_depth_enter(struct fabstat_depth *depth, u64 ticks)
{
	u32 limit = READ_ONCE(*depth->limit_now);
	u32 now = atomic_inc_return(&depth->now);

	if (depth->of_queue)
		atomic64_inc(&depth->issued);	/* in the same cache line */
	/* What another CPU changes at this moment it also looks at itself. */
	if (unlikely(now > data_race(depth->highest) || now >= limit ||
		     limit != data_race(depth->limit)))	/* likewise */
		fabstat_depth_peak(depth, now, limit, ticks);
}

/* A request came back, or was sent back, at @ticks. */
static __always_inline void fabstat_depth_leave(struct fabstat_depth *depth, u64 ticks)
{
	atomic_dec(&depth->now);
	smp_mb__after_atomic();	/* of CPUs that leave at once, one sees the depth below the limit */
	/* Set by whoever reached the limit, before or after this look. */
	if (unlikely(data_race(depth->limit_since)))
		fabstat_depth_left_limit(depth, ticks);
}

#endif
