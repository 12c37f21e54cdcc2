/* SPDX-License-Identifier: GPL-2.0 */
/* What is recorded of each request while the parameter "detail" is on; see detail.c. */
#ifndef FABSTAT_DETAIL_H
#define FABSTAT_DETAIL_H

#include <linux/jump_label.h>

#include "classify.h"
#include "counters.h"
#include "place.h"

DECLARE_STATIC_KEY_FALSE(fabstat_detail);

/* Of a completed request; times in ticks but for ns. */
struct fabstat_done {
	struct request *rq;
	u64 issued, now;
	u64 ns;			/* last issue to completion */
	u8 op;
	u8 error;		/* 0, or one of enum fabstat_event */
};

/*
 * Enters that a request of kind @op, which was never sent back, was issued at @now after @wait_ns,
 * which a histogram has room for. Returns false, and enters nothing, if something is missing.
 */
static __always_inline bool fabstat_detail_enter(const struct fabstat_place *place,
						 unsigned int op, u64 wait_ns, u64 now)
{
	struct fabstat_extra *extra = READ_ONCE(place->piece->extra);
	struct fabstat_histogram *waits;

	if (unlikely(extra == fabstat_no_extra))
		return false;
	waits = READ_ONCE(*(place->cpu->histogram[FABSTAT_WAIT] + op));
	if (unlikely(!waits))
		return false;
	extra += place->index;
	WRITE_ONCE(extra->issued, now);
	WRITE_ONCE(extra->wait_ns, wait_ns);
	WRITE_ONCE(extra->cpu, raw_smp_processor_id());
	local64_add(wait_ns, place->cpu->wait_ns + op);
	local64_inc(waits->bucket + fabstat_bucket_in_range(wait_ns));
	return true;
}

/*
 * Returns true if the request at @place, which took @ns, is none of the slowest and has all its
 * details.
 */
static __always_inline bool fabstat_detail_ordinary(const struct fabstat_place *place, u64 ns)
{
	struct fabstat_extra *extra = READ_ONCE(place->piece->extra) + place->index;

	/*
	 * It may have been issued before this was switched on. When it was is read once more, which
	 * costs less than to keep it.
	 */
	return likely(READ_ONCE(extra->issued) == READ_ONCE(place->slot->issued)) &&
	       likely(ns + READ_ONCE(extra->wait_ns) <= READ_ONCE(place->dev->slow_floor_ns));
}

/* Returns the histogram of requests of kind @op and of @bytes; NULL: there is none. */
static __always_inline struct fabstat_histogram *
fabstat_detail_sizes(const struct fabstat_place *place, unsigned int op, unsigned int bytes)
{
	struct fabstat_histogram **sizes = place->cpu->histogram[FABSTAT_SIZES] + op;

	/* The most frequent class is the first; kinds without sizes have no histogram in any. */
	if (bytes > FABSTAT_FIRST_SIZE)
		sizes += fabstat_size_class(bytes) * FABSTAT_OPS;
	return READ_ONCE(*sizes);
}

void fabstat_detail_issue(const struct fabstat_place *place, struct request *rq, u64 now);
void fabstat_detail_complete(const struct fabstat_place *place, const struct fabstat_done *done);

#endif
