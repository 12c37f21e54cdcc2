// SPDX-License-Identifier: GPL-2.0
/*
 * Completions that are special in any way: of requests that failed, came back in part, were issued
 * more than once, went another way, or are not in flight according to the books. What is ordinary
 * about all others is in block.c.
 */
#include "books.h"
#include "clock.h"
#include "probes.h"
#include "tell.h"

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
 * Returns true if the data of @rq are taken away from it, to be sent another way, and were not sent
 * this one; @waits: they were, and then sent back. What was started is counted when it fails over.
 * The data of a flush sequence end twice, the second time as the sequence's end.
 */
static bool fails_over_unsent(const struct fabstat_device *dev, const struct request *rq,
			      bool waits)
{
	return fabstat_nvme_has_ways(dev, rq) &&
	       (waits || !(rq->rq_flags & RQF_FLUSH_SEQ || READ_ONCE(rq->deadline)));
}

/*
 * Returns true if @rq, which has no bytes left, ends something that was counted before. Of a flush
 * sequence: its data, if any, were issued and completed on their own, and the flush itself is
 * another request; what failed of them is counted there. Of a request of dm-multipath: its data
 * were completed by the end of its clone.
 */
static bool was_counted_before(const struct fabstat_device *dev, struct request *rq, int error,
			       bool waits)
{
	if (error)
		return rq->bio && op_is_flush(rq->bio->bi_opf);
	return rq->bio ||
	       (fabstat_op(rq) != FABSTAT_FLUSH && !fails_over_unsent(dev, rq, waits));
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
	if (!nr_bytes && was_counted_before(place->dev, rq, error, waits))
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
notrace __noclone void fabstat_complete_slowly(void *data, struct request *rq,
					       fabstat_status_t status, unsigned int nr_bytes)
{
	fabstat_probe_enter();
	if (!fabstat_goes_untracked(rq))
		request_complete_anyhow(rq, status, nr_bytes);
	fabstat_probe_leave();
}
