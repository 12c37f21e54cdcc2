// SPDX-License-Identifier: GPL-2.0
/*
 * Probes on block_rq_issue and block_rq_complete: times, depth and the books.
 *
 * Each probe has a fast path, which calls nothing until it is done, and a slow one, which does
 * the same for every request that is special in any way. What a probe hands over to has the probe's
 * own parameters, which are where they belong already, and is the last thing that it does. It is
 * __noclone, or the compiler would move the parameters in order to leave out the one not used.
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

/* Records the times of a request that was sent back or refused before it went through. */
static void record_retry(struct fabstat_cpu *cpu, struct fabstat_slot *slot, unsigned int op,
			 u64 issued, u64 now)
{
	struct fabstat_retry *retry = fabstat_retry(slot);
	u64 ns = fabstat_ticks_to_ns(fabstat_elapsed(issued, now));

	if (retry->first_issue) {
		fabstat_record(cpu, op, FABSTAT_AGAIN_DEVICE, ns);
		ns = fabstat_ticks_to_ns(fabstat_elapsed(retry->first_issue, now));
		fabstat_record(cpu, op, FABSTAT_AGAIN_TOTAL, ns);
		ns = fabstat_ticks_to_ns(fabstat_elapsed(retry->first_issue, issued));
		local64_add(ns, &cpu->again_ns[op]);
	} else {
		fabstat_record(cpu, op, FABSTAT_DIRECT, ns);
	}
	if (retry->first_refusal) {
		ns = fabstat_ticks_to_ns(fabstat_elapsed(retry->first_refusal, issued));
		fabstat_record(cpu, op, FABSTAT_REFUSED, ns);
		local64_inc(&cpu->refused[op]);
		local64_add(ns, &cpu->refused_ns[op]);
	}
	fabstat_retry_free(slot);
}

/* Counts @error, 0 for none. */
static void count_failure(struct fabstat_cpu *cpu, unsigned int op, enum fabstat_event error,
			  bool timed_out)
{
	if (timed_out)
		fabstat_count(cpu, FABSTAT_TIMED_OUT);
	if (error)
		local64_inc(&cpu->errors[op][error - FABSTAT_FIRST_ERROR]);
}

/*
 * Returns true if @rq, which has no bytes left, ends something that was counted before. Of a flush
 * sequence: its data, if any, were issued and completed on their own, and the flush itself is
 * another request; what failed of them is counted there. Of a request of dm-multipath: its data
 * were completed by the end of its clone.
 */
static bool was_counted_before(struct request *rq, int error)
{
	if (error)
		return rq->bio && op_is_flush(rq->bio->bi_opf);
	return rq->bio || fabstat_op(rq) != FABSTAT_FLUSH;
}

/* A request ended that is not in flight according to the books. */
static void request_complete_unissued(const struct fabstat_place *place, struct request *rq,
				      int error, unsigned int nr_bytes)
{
	bool waits = place->slot && place->slot->issued == FABSTAT_PAST;

	/* What was sent back, and is now sent another way, waits no more. */
	if (place->slot) {
		WRITE_ONCE(place->slot->issued, FABSTAT_IDLE);
		place->slot->refusal = 0;
		fabstat_retry_free(place->slot);
	}
	if (!nr_bytes && was_counted_before(rq, error))
		return;
	/*
	 * Given up while it waited for its first issue, or for another one; or seen to end only:
	 * its driver ends one that it could not send, too, and what was started has a deadline.
	 */
	if (waits || blk_mq_rq_state(rq) == MQ_RQ_IDLE || !READ_ONCE(rq->deadline))
		fabstat_count(place->cpu, FABSTAT_NEVER_ISSUED);
	else
		fabstat_count(place->cpu, FABSTAT_UNMATCHED);
	if (error)
		count_failure(place->cpu, fabstat_op(rq),
			      fabstat_nvme_error(place->dev, rq, fabstat_error_event(error)),
			      false);
}

/*
 * Returns true if a driver took the request's data away from it, to send them another way: @rq ends
 * without an error, and with nothing of what it had. A flush, which has nothing, is ended
 * so, too, and is sent nowhere.
 */
static bool failed_over(const struct fabstat_place *place, struct request *rq,
			unsigned int nr_bytes)
{
	return !nr_bytes && (place->slot->bytes || fabstat_nvme_took_away(place->dev, rq));
}

/* It failed over: nothing was moved. */
static void request_failed_over(const struct fabstat_place *place, u64 now)
{
	fabstat_count(place->cpu, FABSTAT_FAILED_OVER);
	fabstat_retry_free(place->slot);
	WRITE_ONCE(place->slot->issued, FABSTAT_IDLE);
	place->slot->refusal = 0;
	fabstat_books_send_back(place, now);
}

static noinline notrace void request_complete_anyhow(struct request *rq, fabstat_status_t status,
						     unsigned int nr_bytes)
{
	struct fabstat_place place;
	struct fabstat_done done = { .rq = rq };
	u64 issued, now, ns;
	unsigned int op;
	int error;

	if (!fabstat_make(rq, &place)) {
		/* Of one that ended in part the rest is with the driver yet. */
		if (nr_bytes >= blk_rq_bytes(rq))
			fabstat_lose(rq);
		return;
	}
	if (!place.dev->nr_ready)
		fabstat_identify(place.dev, rq);
	issued = place.slot ? fabstat_issued_at(place.slot->issued) : 0;
	if (!issued) {
		request_complete_unissued(&place, rq, fabstat_errno(status), nr_bytes);
		return;
	}
	op = place.slot->op;
	if (nr_bytes < blk_rq_bytes(rq)) {
		/* SCSI tells so, too, of a command that failed before it moved anything. */
		if (nr_bytes)
			fabstat_count(place.cpu, FABSTAT_PARTIAL);
		local64_add(nr_bytes, &place.cpu->bytes[op]);
		return;
	}
	now = fabstat_ticks();
	if (!fabstat_errno(status) && failed_over(&place, rq, nr_bytes)) {
		request_failed_over(&place, now);
		return;
	}
	ns = fabstat_ticks_to_ns(fabstat_elapsed(issued, now));
	error = fabstat_errno(status);
	done.issued = issued;
	done.now = now;
	done.ns = ns;
	done.op = op;
	done.error = error ? fabstat_nvme_error(place.dev, rq, fabstat_error_event(error)) : 0;
	fabstat_tell_done(&place, &done);
	fabstat_books_leave(&place, op, nr_bytes, ns, now);
	if (fabstat_retry(place.slot))
		record_retry(place.cpu, place.slot, op, issued, now);
	else
		fabstat_record(place.cpu, op, FABSTAT_DIRECT, ns);
	count_failure(place.cpu, op, done.error, rq->rq_flags & RQF_TIMED_OUT);
	place.slot->refusal = 0;
	fabstat_books_left(&place, now);
}

/* Anything but a request that was issued once and came back whole, in time and without error. */
static noinline notrace __noclone void
request_complete_slowly(void *data, struct request *rq, fabstat_status_t status,
			unsigned int nr_bytes)
{
	fabstat_probe_enter();
	if (!fabstat_goes_untracked(rq))
		request_complete_anyhow(rq, status, nr_bytes);
	fabstat_probe_leave();
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
		request_complete_slowly(NULL, rq, status, nr_bytes);
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
	request_complete_slowly(NULL, rq, 0, nr_bytes);
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
		request_complete_slowly(NULL, rq, status, nr_bytes);
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
		request_complete_slowly(NULL, rq, status, nr_bytes);
	else if (static_branch_unlikely(&fabstat_timekeeper))
		request_complete_by_timekeeper(NULL, rq, status, nr_bytes);
	else
		request_complete(rq, status, nr_bytes, BY_COUNTER);
}
