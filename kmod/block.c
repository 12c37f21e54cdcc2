// SPDX-License-Identifier: GPL-2.0
/*
 * Probes on block_rq_issue and block_rq_complete: times, depth and the books.
 *
 * Each probe has a fast path, which calls nothing until it is done, and a slow one, which does
 * the same for every request that is special in any way; that of completions is in complete.c.
 * What a probe hands over to has the probe's own parameters, which are where they belong already,
 * and is the last thing that it does. It is __noclone, or the compiler would move the parameters in
 * order to leave out the one not used.
 */
#include "books.h"
#include "clock.h"
#include "probes.h"
#include "tell.h"

/* By req_op(), which is 8 bits wide: READ, WRITE, FLUSH and DISCARD are 0 to 3 on every kernel. */
const u8 fabstat_op_class[256] = {
	FABSTAT_READ, FABSTAT_WRITE, FABSTAT_FLUSH, FABSTAT_DISCARD,
	[4 ... (__force u8)REQ_OP_ZONE_APPEND - 1] = FABSTAT_OTHER,
	[(__force u8)REQ_OP_ZONE_APPEND] = FABSTAT_WRITE,
	[(__force u8)REQ_OP_ZONE_APPEND + 1 ... 255] = FABSTAT_OTHER,
};

/* Not inlined: its stack would be cleared also for requests that nothing is to be done about. */
static noinline notrace void request_issue_anyhow(struct request *rq)
{
	struct fabstat_retry *retry;
	struct fabstat_place place;
	u64 now;

	if (!fabstat_make(rq, &place)) {
		/* Nor does it wait any longer, if it was sent back. */
		fabstat_lose(rq);
		return;
	}
	if (!place.dev->nr_ready)
		fabstat_identify(place.dev, rq);
	if (!place.slot) {
		fabstat_count(place.cpu, FABSTAT_UNTRACKED);
		return;
	}
	now = fabstat_ticks();
	if (fabstat_issued_at(place.slot->issued))
		fabstat_forget(place.slot, rq->mq_hctx->queue_num, now);
	/* What is remembered is about another request unless both end at the same sector. */
	retry = fabstat_retry(place.slot);
	if (retry && retry->end_sector != fabstat_end_sector(rq)) {
		fabstat_retry_free(place.slot);
		retry = NULL;
	}
	fabstat_books_enter(&place, rq, fabstat_op(rq), now, retry ? FABSTAT_PAST : 0);
	if (static_branch_unlikely(&fabstat_detail))
		fabstat_detail_issue(&place, rq, now);
}

/* The first requests of a device, and those that were sent back. */
static noinline notrace __noclone void request_issue_slowly(void *data, struct request *rq)
{
	fabstat_probe_enter();
	if (!fabstat_ends_untold(rq) && !fabstat_goes_untracked(rq))
		request_issue_anyhow(rq);
	fabstat_probe_leave();
}

/* How a request is counted; a constant wherever it is used. */
enum how {
	BY_COUNTER,	/* the clock is the cycle counter, to read which nothing is called */
	BY_TIMEKEEPER,
	IN_DETAIL,	/* somebody wants to know more; by the counter */
	AFTER_A_LOOK	/* as well, and what CLOCK_MONOTONIC is has just been looked up */
};

/*
 * Reads the clock, unless that is the counter, which is read when the place has been found: a
 * function is called first of all, while hardly anything has to be kept for afterwards.
 */
static __always_inline u64 ticks_early(enum how how)
{
	return how == BY_TIMEKEEPER ? ktime_get_raw_ns() :
	       how >= IN_DETAIL ? fabstat_ticks_fast() : 0;
}

static noinline notrace __noclone void request_issue_looking(void *data, struct request *rq);

static __always_inline void request_issue(struct request *rq, enum how how)
{
	struct fabstat_place place;
	s64 wait_ns = 0;
	u64 now, stamp;
	u8 op;

	fabstat_probe_enter();
	now = ticks_early(how);
	if (how >= IN_DETAIL) {
		if (unlikely(!fabstat_monotonic_find(now, &stamp)))
			goto outdated;
		wait_ns = fabstat_waited_ns(rq, stamp);
		/* A time out of range stands for any that is not known, or below 0. */
		if (unlikely((u64)wait_ns >> FABSTAT_LIMIT_SHIFT))
			goto slowly;
	}
	if (unlikely(!fabstat_find(rq, &place)) || unlikely(place.slot->issued != FABSTAT_IDLE))
		goto slowly;
	op = fabstat_op(rq);
	if (how >= IN_DETAIL && unlikely(!fabstat_detail_enter(&place, op, wait_ns, now)))
		goto slowly;
	if (how == BY_COUNTER)
		now = fabstat_ticks_fast();
	fabstat_books_enter(&place, rq, op, now, 0);
	fabstat_probe_leave();
	return;

outdated:
	/* Once is enough: something came between. */
	if (how == IN_DETAIL) {
		fabstat_probe_leave();
		request_issue_looking(NULL, rq);
		return;
	}
slowly:
	fabstat_probe_leave();
	request_issue_slowly(NULL, rq);
}

/* It is time for another look at CLOCK_MONOTONIC, for this request and those after it. */
static noinline notrace __noclone void request_issue_looking(void *data, struct request *rq)
{
	fabstat_monotonic_look(fabstat_ticks_fast());
	request_issue(rq, AFTER_A_LOOK);
}

static noinline notrace __noclone void request_issue_in_detail(void *data, struct request *rq)
{
	/* By another clock that is not worth another fast path. */
	if (static_branch_unlikely(&fabstat_timekeeper))
		request_issue_slowly(NULL, rq);
	else
		request_issue(rq, IN_DETAIL);
}

static noinline notrace __noclone void request_issue_by_timekeeper(void *data, struct request *rq)
{
	request_issue(rq, BY_TIMEKEEPER);
}

static __always_inline void request_complete(struct request *rq, fabstat_status_t status,
					     unsigned int nr_bytes, enum how how)
{
	struct fabstat_histogram *histogram, *sizes;
	struct fabstat_place place;
	u64 now, ticks, ns;
	unsigned int op;
	u32 bucket;

	if (unlikely((__force u32)status |
		     ((__force u32)rq->rq_flags & (__force u32)RQF_TIMED_OUT))) {
		fabstat_complete_slowly(NULL, rq, status, nr_bytes);
		return;
	}
	fabstat_probe_enter();
	now = ticks_early(how);
	if (unlikely(!fabstat_find(rq, &place)))
		goto slowly;
	if (how == BY_COUNTER)
		now = fabstat_ticks_fast();
	ticks = now - place.slot->issued;
	/* More than a second or four, a negative time, or a marked slot: see FABSTAT_IDLE. */
	if (unlikely(ticks >> 32))
		goto slowly;
	/* A part of it, or what was left of it, or nothing of what it had: it failed over. */
	if (unlikely(place.slot->bytes != nr_bytes))
		goto slowly;
	/* What had nothing, of a multipath disk of NVMe's, may have failed over, too. */
	if (unlikely(!nr_bytes) && rq->cmd_flags & REQ_DRV)
		goto slowly;
	ns = how == BY_TIMEKEEPER ? ticks : fabstat_few_ticks_to_ns(ticks);
	if (how == IN_DETAIL && unlikely(!fabstat_done_ordinary(&place, ns)))
		goto slowly;
	op = place.slot->op;
	histogram = READ_ONCE(*(place.cpu->histogram[FABSTAT_DIRECT] + op));
	if (unlikely(!histogram))
		goto slowly;
	if (how == IN_DETAIL) {
		sizes = fabstat_detail_sizes(&place, op, nr_bytes);
		if (unlikely(!sizes))
			goto slowly;
	}
	bucket = fabstat_bucket_in_range(ns);
	local64_inc(histogram->bucket + bucket);
	if (how == IN_DETAIL)
		local64_inc(sizes->bucket + bucket);
	fabstat_books_leave(&place, op, nr_bytes, ns, now);
	fabstat_books_left(&place, now);
	fabstat_probe_leave();
	return;

slowly:
	fabstat_probe_leave();
	fabstat_complete_slowly(NULL, rq, 0, nr_bytes);
}

static noinline notrace __noclone void
request_complete_by_timekeeper(void *data, struct request *rq, fabstat_status_t status,
			       unsigned int nr_bytes)
{
	request_complete(rq, status, nr_bytes, BY_TIMEKEEPER);
}

static noinline notrace __noclone void
request_complete_in_detail(void *data, struct request *rq, fabstat_status_t status,
			   unsigned int nr_bytes)
{
	/* By another clock that is not worth another fast path. */
	if (static_branch_unlikely(&fabstat_timekeeper))
		fabstat_complete_slowly(NULL, rq, status, nr_bytes);
	else
		request_complete(rq, status, nr_bytes, IN_DETAIL);
}

notrace void fabstat_probe_issue(void *data, struct request *rq)
{
	if (static_branch_unlikely(&fabstat_detail))
		request_issue_in_detail(NULL, rq);
	else if (static_branch_unlikely(&fabstat_timekeeper))
		request_issue_by_timekeeper(NULL, rq);
	else
		request_issue(rq, BY_COUNTER);
}

notrace void fabstat_probe_complete(void *data, struct request *rq, fabstat_status_t status,
				    unsigned int nr_bytes)
{
	if (static_branch_unlikely(&fabstat_detail))
		request_complete_in_detail(NULL, rq, status, nr_bytes);
	else if (trace_slow_enabled())
		/* Nor is the tracepoint alone. */
		fabstat_complete_slowly(NULL, rq, status, nr_bytes);
	else if (static_branch_unlikely(&fabstat_timekeeper))
		request_complete_by_timekeeper(NULL, rq, status, nr_bytes);
	else
		request_complete(rq, status, nr_bytes, BY_COUNTER);
}
