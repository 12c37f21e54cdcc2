// SPDX-License-Identifier: GPL-2.0
/* The rare moments of a depth: a new highest value, at the limit, below it again. */
#include <linux/compiler.h>

#include "clock.h"
#include "depth.h"

/* The depth has reached a new highest value or @limit, or @limit is a new one. */
void fabstat_depth_peak(struct fabstat_depth *depth, u32 now, u32 limit, u64 ticks)
{
	if (now > READ_ONCE(depth->highest))
		WRITE_ONCE(depth->highest, now);
	WRITE_ONCE(depth->limit, limit);
	/* Who has left since @now was counted saw no time that it could end. */
	if (now >= limit && !cmpxchg64(&depth->limit_since, 0, ticks))
		fabstat_depth_left_limit(depth, ticks);
}

/* The depth was at its limit, and need not be any more. */
void fabstat_depth_left_limit(struct fabstat_depth *depth, u64 ticks)
{
	u64 since;

	if (atomic_read(&depth->now) >= READ_ONCE(depth->limit))
		return;
	since = xchg(&depth->limit_since, 0);
	if (since && (s64)(ticks - since) > 0)
		atomic64_add(fabstat_ticks_to_ns(ticks - since), &depth->at_limit_ns);
}
