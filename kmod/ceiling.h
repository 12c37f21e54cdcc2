/* SPDX-License-Identifier: GPL-2.0 */
/* What fits below the ceiling of the module's memory: pure arithmetic, see checks.h. */
#ifndef FABSTAT_CEILING_H
#define FABSTAT_CEILING_H

#ifdef __KERNEL__
#include <linux/types.h>
#endif

/* Returns the most that may be in use for another histogram: an eighth is kept for the books. */
static inline u64 fabstat_ceiling_of_histograms(u64 limit)
{
	return limit - (limit >> 3);
}

/*
 * Returns whether what was refused is to be asked for again, with @used of @limit in use. If the
 * ceiling refused it, some way below that, or the next second would find it reached again; the
 * kernel may have memory again at any moment.
 */
static inline bool fabstat_ceiling_has_room(u64 used, u64 limit, bool ceiling_refused)
{
	u64 most = fabstat_ceiling_of_histograms(limit);

	if (ceiling_refused)
		most -= limit >> 4;
	return used < most;
}

#endif
