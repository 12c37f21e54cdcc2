/* SPDX-License-Identifier: GPL-2.0 */
/* Tells those who want to know of single requests; see tell.c. */
#ifndef FABSTAT_TELL_H
#define FABSTAT_TELL_H

#include "detail.h"
#include "trace.h"

extern unsigned int fabstat_slow_ms;

/* Returns true if nobody is to be told of the request at @place, which took @ns. */
static __always_inline bool fabstat_done_ordinary(const struct fabstat_place *place, u64 ns)
{
	if (trace_slow_enabled() && ns >= (u64)READ_ONCE(fabstat_slow_ms) * NSEC_PER_MSEC)
		return false;
	return fabstat_detail_ordinary(place, ns);
}

void fabstat_tell_done(const struct fabstat_place *place, const struct fabstat_done *done);
void fabstat_tell_refused(const struct fabstat_place *place, const struct request *rq,
			  enum fabstat_event reason, u64 issued, u64 now);

#endif
