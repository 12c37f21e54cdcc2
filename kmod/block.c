// SPDX-License-Identifier: GPL-2.0
/*
 * Probes on block_rq_issue, block_rq_complete and block_rq_requeue: times, depth and the books.
 *
 * At any quiet moment, per device and op: issued = completed + sent_back + forgotten + in flight.
 *
 * Each probe has a fast path, which calls nothing until it is done, and a slow one, which does
 * the same for every request that is special in any way.
 */
#include "clock.h"
#include "counters.h"
#include "memory.h"
#include "place.h"
#include "probes.h"

/* By req_op(), which is 8 bits wide: READ, WRITE, FLUSH and DISCARD are 0 to 3 on every kernel. */
static const u8 op_class[256] = {
	FABSTAT_READ, FABSTAT_WRITE, FABSTAT_FLUSH, FABSTAT_DISCARD,
	[4 ... (__force u8)REQ_OP_ZONE_APPEND - 1] = FABSTAT_OTHER,
	[(__force u8)REQ_OP_ZONE_APPEND] = FABSTAT_WRITE,
	[(__force u8)REQ_OP_ZONE_APPEND + 1 ... 255] = FABSTAT_OTHER,
};

static __always_inline u8 request_op(struct request *rq)
{
	return op_class[(__force u8)req_op(rq)];
}

/* Returns what kind of request @rq is. Any context. */
enum fabstat_op fabstat_op(struct request *rq)
{
	return request_op(rq);
}

static u64 end_sector(struct request *rq)
{
	return blk_rq_pos(rq) + blk_rq_sectors(rq);
}

/* Returns the time from @from to @to; 0 if the clock of another CPU is a moment behind. */
static u64 elapsed(u64 from, u64 to)
{
	return (s64)(to - from) > 0 ? to - from : 0;
}

static void record_time(struct fabstat_cpu *cpu, unsigned int op, enum fabstat_kind kind, u64 ns)
{
	struct fabstat_histogram *histogram = READ_ONCE(cpu->histogram[op][kind]);

	if (!histogram)
		histogram = fabstat_histogram_create(cpu, op, kind);
	local64_inc(&histogram->bucket[fabstat_bucket(ns)]);
}

static __always_inline void fill_slot(struct fabstat_device *dev, struct fabstat_slot *slot,
				      struct request *rq, u8 op)
{
	slot->sector = blk_rq_pos(rq);
	slot->bytes = blk_rq_bytes(rq);
	slot->device = dev->id;
	slot->op = op;
}

static __always_inline void books_enter(const struct fabstat_place *place, struct request *rq,
					u64 now, u64 past)
{
	u8 op = request_op(rq);

	local64_inc(place->cpu->issued + op);
	smp_wmb();	/* see struct fabstat_cpu */
	local64_sub(now, &place->cpu->depth_ticks);
	fill_slot(place->dev, place->slot, rq, op);
	WRITE_ONCE(place->slot->issued, now | past);
	smp_wmb();	/* see struct fabstat_cpu */
	local64_inc(&place->cpu->events);
	fabstat_depth_enter(place->depth, now);
}

/* The first requests of a device, and those that were sent back. */
static noinline void request_issue_slowly(struct request *rq)
{
	struct fabstat_retry *retry;
	struct fabstat_place place;
	u64 now;

	if (!fabstat_make(rq, &place))
		return;
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
	if (retry && retry->end_sector != end_sector(rq)) {
		fabstat_retry_free(place.slot);
		retry = NULL;
	}
	books_enter(&place, rq, now, retry ? FABSTAT_PAST : 0);
}

/* @counter: the clock is the cycle counter, to read which nothing is called. */
static __always_inline void request_issue(struct request *rq, bool counter)
{
	struct fabstat_place place;

	if (likely(fabstat_find(rq, &place)) && likely(place.slot->issued == FABSTAT_IDLE))
		books_enter(&place, rq, counter ? fabstat_ticks_fast() : ktime_get_raw_ns(), 0);
	else
		request_issue_slowly(rq);
}

static noinline void request_issue_by_timekeeper(struct request *rq)
{
	request_issue(rq, false);
}

/* Records the times of a request that was sent back or refused before it went through. */
static void record_retry(struct fabstat_cpu *cpu, struct fabstat_slot *slot, unsigned int op,
			 u64 issued, u64 now)
{
	struct fabstat_retry *retry = fabstat_retry(slot);
	u64 ns = fabstat_ticks_to_ns(elapsed(issued, now));

	if (retry->first_issue) {
		record_time(cpu, op, FABSTAT_AGAIN_DEVICE, ns);
		ns = fabstat_ticks_to_ns(elapsed(retry->first_issue, now));
		record_time(cpu, op, FABSTAT_AGAIN_TOTAL, ns);
		ns = fabstat_ticks_to_ns(elapsed(retry->first_issue, issued));
		local64_add(ns, &cpu->again_ns[op]);
	} else {
		record_time(cpu, op, FABSTAT_DIRECT, ns);
	}
	if (retry->first_refusal) {
		ns = fabstat_ticks_to_ns(elapsed(retry->first_refusal, issued));
		record_time(cpu, op, FABSTAT_REFUSED, ns);
		local64_inc(&cpu->refused[op]);
		local64_add(ns, &cpu->refused_ns[op]);
	}
	fabstat_retry_free(slot);
}

static void count_failure(struct fabstat_cpu *cpu, unsigned int op, int error, bool timed_out)
{
	if (timed_out)
		fabstat_count(cpu, FABSTAT_TIMED_OUT);
	if (error)
		local64_inc(&cpu->errors[op][fabstat_error_event(error) - FABSTAT_FIRST_ERROR]);
}

/* A request ended that is not in flight according to the books. */
static void request_complete_unissued(const struct fabstat_place *place, struct request *rq,
				      int error, unsigned int nr_bytes)
{
	/*
	 * The end of something that was counted before. Of a flush sequence: its data, if any,
	 * were issued and completed on their own, and the flush itself is another request. Of a
	 * request of dm-multipath: its data were completed by the end of its clone.
	 */
	if (!nr_bytes && !error && (rq->bio || request_op(rq) != FABSTAT_FLUSH))
		return;
	if (place->slot) {
		place->slot->issued = FABSTAT_IDLE;
		place->slot->refusal = 0;
		fabstat_retry_free(place->slot);
	}
	if (blk_mq_rq_state(rq) == MQ_RQ_IDLE) {
		/* Given up while it waited for its first issue, or for another one. */
		fabstat_count(place->cpu, FABSTAT_NEVER_ISSUED);
		count_failure(place->cpu, request_op(rq), error, false);
	} else {
		fabstat_count(place->cpu, FABSTAT_UNMATCHED);
	}
}

/* Enters a completed request in the books, all but its histogram. */
static __always_inline void books_leave(const struct fabstat_place *place, unsigned int op,
					unsigned int nr_bytes, u64 ns, u64 now)
{
	struct fabstat_cpu *cpu = place->cpu;

	place->slot->issued = FABSTAT_IDLE;
	local64_inc(cpu->completed + op);
	smp_wmb();	/* see struct fabstat_cpu */
	local64_add(nr_bytes, cpu->bytes + op);
	local64_add(ns, cpu->device_ns + op);
	local64_add(now, &cpu->depth_ticks);
}

static __always_inline void books_left(const struct fabstat_place *place, u64 now)
{
	smp_wmb();	/* see struct fabstat_cpu */
	local64_inc(&place->cpu->events);
	fabstat_depth_leave(place->depth, now);
}

static void send_back(const struct fabstat_place *place, u64 now)
{
	local64_inc(&place->cpu->sent_back[place->slot->op]);
	smp_wmb();	/* see struct fabstat_cpu */
	local64_add(now, &place->cpu->depth_ticks);
	books_left(place, now);
}

/* A driver took the request's data away from it to send them another way: nothing was moved. */
static void request_failed_over(const struct fabstat_place *place, u64 now)
{
	fabstat_count(place->cpu, FABSTAT_FAILED_OVER);
	fabstat_retry_free(place->slot);
	place->slot->issued = FABSTAT_IDLE;
	place->slot->refusal = 0;
	send_back(place, now);
}

/* Anything but a request that was issued once and came back whole, in time and without error. */
static noinline void request_complete_slowly(struct request *rq, fabstat_status_t status,
					     unsigned int nr_bytes)
{
	struct fabstat_place place;
	u64 issued, now, ns;
	unsigned int op;

	if (!fabstat_make(rq, &place))
		return;
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
	if (!nr_bytes && place.slot->bytes && !fabstat_errno(status)) {
		request_failed_over(&place, now);
		return;
	}
	ns = fabstat_ticks_to_ns(elapsed(issued, now));
	books_leave(&place, op, nr_bytes, ns, now);
	if (fabstat_retry(place.slot))
		record_retry(place.cpu, place.slot, op, issued, now);
	else
		record_time(place.cpu, op, FABSTAT_DIRECT, ns);
	count_failure(place.cpu, op, fabstat_errno(status), rq->rq_flags & RQF_TIMED_OUT);
	place.slot->refusal = 0;
	books_left(&place, now);
}

/* @counter: as for request_issue(). */
static __always_inline void request_complete(struct request *rq, fabstat_status_t status,
					     unsigned int nr_bytes, bool counter)
{
	struct fabstat_histogram *histogram;
	struct fabstat_place place;
	u64 now, ticks, ns;
	unsigned int op;

	if (unlikely(!nr_bytes || (__force u32)status | (nr_bytes ^ blk_rq_bytes(rq)) |
		     ((__force u32)rq->rq_flags & (__force u32)RQF_TIMED_OUT))) {
		request_complete_slowly(rq, status, nr_bytes);
		return;
	}
	if (unlikely(!fabstat_find(rq, &place)))
		goto slowly;
	op = place.slot->op;
	histogram = READ_ONCE((*(place.cpu->histogram + op))[FABSTAT_DIRECT]);
	now = counter ? fabstat_ticks_fast() : ktime_get_raw_ns();
	ticks = now - place.slot->issued;
	/* More than a second or four, a negative time, or a marked slot: see FABSTAT_IDLE. */
	if (unlikely(!histogram || ticks >> 32))
		goto slowly;
	ns = fabstat_few_ticks_to_ns(ticks);
	local64_inc(histogram->bucket + fabstat_bucket_in_range(ns));
	books_leave(&place, op, nr_bytes, ns, now);
	books_left(&place, now);
	return;

slowly:
	request_complete_slowly(rq, 0, nr_bytes);
}

static noinline void request_complete_by_timekeeper(struct request *rq, fabstat_status_t status,
						    unsigned int nr_bytes)
{
	request_complete(rq, status, nr_bytes, false);
}

/* Remembers when @rq was first issued and first refused. */
static void remember(const struct fabstat_place *place, struct request *rq, bool refusal, u64 now)
{
	struct fabstat_slot *slot = place->slot;
	u64 issued = fabstat_issued_at(slot->issued);
	struct fabstat_retry *retry = fabstat_retry(slot);

	if (retry && retry->end_sector != end_sector(rq)) {
		fabstat_retry_free(slot);
		retry = NULL;
	}
	if (!retry) {
		retry = fabstat_alloc(sizeof(*retry), FABSTAT_BOOKS);
		if (!retry) {
			fabstat_count(place->cpu, FABSTAT_NO_RETRY);
			return;
		}
		retry->first = issued ?: now;
		retry->end_sector = end_sector(rq);
	}
	if (!retry->first_issue)
		retry->first_issue = issued;
	if (refusal && !retry->first_refusal)
		retry->first_refusal = now;
	retry->times++;
	/* Readers of the stuck list that find it see it filled in. */
	rcu_assign_pointer(slot->retry, retry);
}

/*
 * Returns true if @rq is a clone of dm-multipath that its path refused at once: dm frees it, and
 * what waits is its own request. One that the target had, and sent back, waits as any request does.
 */
static bool is_thrown_away(const struct fabstat_place *place, const struct request *rq,
			   enum mq_rq_state state)
{
	return fabstat_is_clone(rq) && state != MQ_RQ_COMPLETE && !fabstat_retry(place->slot);
}

/*
 * The state of a request when it is requeued tells who sent it back: IDLE, it was held back
 * before the driver saw it; IN_FLIGHT, the driver refused it; COMPLETE, it had reached the
 * target, which refused it or gave another answer that calls for a retry.
 */
static void request_requeue(struct request *rq)
{
	enum mq_rq_state state = blk_mq_rq_state(rq);
	struct fabstat_place place;
	bool refusal = true, in_flight;
	u64 now;

	if (!fabstat_make(rq, &place))
		return;
	if (state == MQ_RQ_IDLE) {
		fabstat_count(place.cpu, FABSTAT_REQUEUED_UNSTARTED);
		fabstat_count(place.cpu, place.dev->sdev ? fabstat_scsi_hold(place.dev->sdev) :
							   FABSTAT_HELD_OTHER);
	} else if (state == MQ_RQ_IN_FLIGHT) {
		fabstat_count(place.cpu, FABSTAT_REQUEUED_BY_DRIVER);
	} else {
		fabstat_count(place.cpu, FABSTAT_REQUEUED_BY_TARGET);
		refusal = place.slot && place.slot->refusal;
	}
	if (rq->rq_flags & RQF_TIMED_OUT)
		fabstat_count(place.cpu, FABSTAT_TIMED_OUT);
	if (!place.slot)
		return;
	now = fabstat_ticks();
	in_flight = fabstat_issued_at(place.slot->issued);
	if (!in_flight)
		fill_slot(place.dev, place.slot, rq, request_op(rq));
	if (!is_thrown_away(&place, rq, state))
		remember(&place, rq, refusal, now);
	place.slot->refusal = 0;
	if (in_flight)
		send_back(&place, now);
	/* It waits to be issued again. */
	WRITE_ONCE(place.slot->issued, fabstat_retry(place.slot) ? FABSTAT_PAST : FABSTAT_IDLE);
}

notrace void fabstat_probe_issue(void *data, struct request *rq)
{
	fabstat_probe_enter();
	if (likely(fabstat_clock.counter))
		request_issue(rq, true);
	else
		request_issue_by_timekeeper(rq);
	fabstat_probe_leave();
}

notrace void fabstat_probe_complete(void *data, struct request *rq, fabstat_status_t status,
				    unsigned int nr_bytes)
{
	fabstat_probe_enter();
	if (likely(fabstat_clock.counter))
		request_complete(rq, status, nr_bytes, true);
	else
		request_complete_by_timekeeper(rq, status, nr_bytes);
	fabstat_probe_leave();
}

void fabstat_probe_requeue(void *data, struct request *rq)
{
	fabstat_probe_enter();
	request_requeue(rq);
	fabstat_probe_leave();
}
