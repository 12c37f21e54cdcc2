// SPDX-License-Identifier: GPL-2.0
/* The probe on block_rq_requeue: who sent a request back, why, and since when it waits. */
#include "books.h"
#include "clock.h"
#include "memory.h"
#include "probes.h"
#include "tell.h"

/* Remembers when @rq was first issued and first refused, and @reason. */
static void requeue_remember(const struct fabstat_place *place, struct request *rq, bool refusal,
			     enum fabstat_event reason, u64 now)
{
	struct fabstat_slot *slot = place->slot;
	u64 issued = fabstat_issued_at(slot->issued);
	struct fabstat_retry *retry = fabstat_retry(slot);

	if (retry && retry->end_sector != fabstat_end_sector(rq)) {
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
		retry->end_sector = fabstat_end_sector(rq);
	}
	if (!retry->first_issue)
		retry->first_issue = issued;
	if (refusal && !retry->first_refusal)
		retry->first_refusal = now;
	if (retry->times < FABSTAT_REASONS)
		retry->reason[retry->times] = reason + 1;
	retry->times++;
	/* Readers of the stuck list that find it see it filled in. */
	rcu_assign_pointer(slot->retry, retry);
}

/*
 * Returns true if @rq is a clone of dm-multipath that its path refused at once: dm frees it, and
 * what waits is its own request. One that the target had, and sent back, waits as any request does.
 * So does one that was refused after its path had stood still, but nothing tells it from others:
 * that it waits is known at the head only.
 */
static bool is_thrown_away(const struct fabstat_place *place, const struct request *rq,
			   enum mq_rq_state state)
{
	return fabstat_is_clone(rq) && state != MQ_RQ_COMPLETE &&
	       !(rq->rq_flags & RQF_TIMED_OUT) && !fabstat_retry(place->slot);
}

/*
 * Why a path refused a clone. dm sends its own request back next, on the same CPU as a rule: what
 * it finds of another range of sectors is about another one.
 */
struct path_refusal {
	u64 end_sector;		/* 0: none */
	u64 at;			/* ticks */
	u8 reason;		/* enum fabstat_event */
};

/* An older one is about another request; a kernel with sanitizers takes milliseconds in between. */
#define PATH_REFUSAL_NS	(100 * NSEC_PER_MSEC)

static DEFINE_PER_CPU(struct path_refusal, path_refusal);

static void path_refused(struct request *clone, enum fabstat_event reason, u64 now)
{
	struct path_refusal *refusal = this_cpu_ptr(&path_refusal);

	refusal->end_sector = fabstat_end_sector(clone);
	refusal->at = now;
	refusal->reason = reason;
}

/* Returns why the path of @rq, which is sent back, refused it; @reason where that is not known. */
static enum fabstat_event path_reason(struct request *rq, enum fabstat_event reason, u64 now)
{
	struct path_refusal *refusal = this_cpu_ptr(&path_refusal);
	bool mine = refusal->end_sector && refusal->end_sector == fabstat_end_sector(rq) &&
		    fabstat_ticks_to_ns(fabstat_elapsed(refusal->at, now)) < PATH_REFUSAL_NS;

	refusal->end_sector = 0;
	return mine ? refusal->reason : reason;
}

/*
 * The state of a request when it is requeued tells who sent it back: IDLE, it was held back
 * before the driver saw it; IN_FLIGHT, the driver refused it; COMPLETE, it had reached the
 * target, which refused it or gave another answer that calls for a retry. SCSI sends one again
 * whose time was up, and which it aborted, while it still is IN_FLIGHT. NVMe ends one that it
 * cannot send, started or not, and sends it again.
 */
static void request_requeue(struct request *rq)
{
	enum mq_rq_state state = blk_mq_rq_state(rq);
	bool timed_out = rq->rq_flags & RQF_TIMED_OUT;
	bool refusal = true;
	enum fabstat_event reason;
	struct fabstat_place place;
	u64 now, issued;

	if (fabstat_ends_untold(rq))
		return;
	if (!fabstat_make(rq, &place)) {
		fabstat_lose(rq);
		return;
	}
	if (state == MQ_RQ_IDLE) {
		fabstat_count(place.cpu, FABSTAT_REQUEUED_UNSTARTED);
		reason = place.dev->sdev ? fabstat_scsi_hold(place.dev->sdev) : FABSTAT_HELD_OTHER;
	} else if ((state == MQ_RQ_IN_FLIGHT && !timed_out) ||
		   fabstat_nvme_never_sent(place.dev, rq)) {
		reason = FABSTAT_REQUEUED_BY_DRIVER;
	} else {
		reason = FABSTAT_REQUEUED_BY_TARGET;
		fabstat_nvme_note(&place, rq);
		refusal = place.slot && place.slot->refusal &&
			  place.slot->refusal != FABSTAT_NVME_ABORTED + 1;
	}
	fabstat_count(place.cpu, reason);
	if (timed_out)
		fabstat_count(place.cpu, FABSTAT_TIMED_OUT);
	if (!place.slot)
		return;
	if (place.slot->refusal)
		reason = place.slot->refusal - 1;
	now = fabstat_ticks();
	issued = fabstat_issued_at(place.slot->issued);
	if (!issued)
		fabstat_fill_slot(place.dev, place.slot, rq, fabstat_op(rq));
	if (is_thrown_away(&place, rq, state)) {
		path_refused(rq, reason, now);
	} else {
		if (reason == FABSTAT_REQUEUED_BY_DRIVER)
			reason = path_reason(rq, reason, now);
		requeue_remember(&place, rq, refusal, reason, now);
	}
	fabstat_tell_refused(&place, rq, reason, issued, now);
	place.slot->refusal = 0;
	if (issued)
		fabstat_books_send_back(&place, now);
	/* It waits to be issued again. */
	WRITE_ONCE(place.slot->issued, fabstat_retry(place.slot) ? FABSTAT_PAST : FABSTAT_IDLE);
}

void fabstat_probe_requeue(void *data, struct request *rq)
{
	fabstat_probe_enter();
	request_requeue(rq);
	fabstat_probe_leave();
}
