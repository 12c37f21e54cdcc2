// SPDX-License-Identifier: GPL-2.0
/* Tells those who want to know of single requests: the tracepoints, and the details. */
#include <linux/module.h>

#include "clock.h"
#include "tell.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

unsigned int fabstat_slow_ms = 100;
module_param_named(slow_ms, fabstat_slow_ms, uint, 0644);
MODULE_PARM_DESC(slow_ms, "age in ms from which the tracepoint fabstat:slow tells of a request");

static const char * const op_names[FABSTAT_OPS] = FABSTAT_OP_NAMES;
static const char * const event_names[FABSTAT_EVENTS] = FABSTAT_EVENT_NAMES;

/* Fills in what tracepoints tell of @rq, whose @slot was issued at @issued (0: it is not). */
static void trace_fill(struct fabstat_traced *traced, const struct fabstat_device *dev,
		       const struct fabstat_slot *slot, const struct request *rq, u64 issued,
		       u64 now)
{
	const struct fabstat_retry *retry = fabstat_retry(slot);
	u64 first = retry ? retry->first : issued;

	*traced = (struct fabstat_traced){
		.dev = dev->identity.devt,
		.sector = slot->sector,
		.bytes = slot->bytes,
		.queue = rq->mq_hctx->queue_num,
		.sent_back = retry ? retry->times : 0,
		.op = op_names[slot->op],
		.reason = "-",
		.device_ns = issued ? fabstat_ticks_to_ns(fabstat_elapsed(issued, now)) : 0,
		.total_ns = first ? fabstat_ticks_to_ns(fabstat_elapsed(first, now)) : 0,
	};
}

static void tell_slow(const struct fabstat_place *place, const struct fabstat_done *done)
{
	struct fabstat_traced traced;

	trace_fill(&traced, place->dev, place->slot, done->rq, done->issued, done->now);
	if (traced.total_ns < (u64)READ_ONCE(fabstat_slow_ms) * NSEC_PER_MSEC)
		return;
	if (done->error)
		traced.reason = event_names[done->error];
	trace_slow(&traced);
}

/* What is wanted of a completed request on demand, before it leaves the books. */
void fabstat_tell_done(const struct fabstat_place *place, const struct fabstat_done *done)
{
	if (static_branch_unlikely(&fabstat_detail))
		fabstat_detail_complete(place, done);
	if (trace_slow_enabled())
		tell_slow(place, done);
}

/* @rq was refused, or sent back, for @reason; it was issued at @issued (0: it was not). */
void fabstat_tell_refused(const struct fabstat_place *place, const struct request *rq,
			  enum fabstat_event reason, u64 issued, u64 now)
{
	struct fabstat_traced traced;

	if (!trace_refused_enabled())
		return;
	trace_fill(&traced, place->dev, place->slot, rq, issued, now);
	traced.reason = event_names[reason];
	trace_refused(&traced);
}
