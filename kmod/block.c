// SPDX-License-Identifier: GPL-2.0
/*
 * Probes on block_rq_issue, block_rq_complete and block_rq_requeue: times, depth and the books.
 *
 * At any quiet moment, per device and op: issued = completed + sent_back + forgotten + in flight.
 */
#include <linux/slab.h>
#include <scsi/scsi_device.h>

#include "fabstat.h"

/* req_op(): READ, WRITE, FLUSH and DISCARD are 0 to 3 on every kernel. */
static __always_inline unsigned int request_op(struct request *rq)
{
	return min_t(unsigned int, (__force unsigned int)req_op(rq), FABSTAT_OTHER);
}

static __always_inline void record(struct fabstat_cpu *cpu, unsigned int op,
				   enum fabstat_kind kind, u64 ns)
{
	struct fabstat_histogram *histogram = READ_ONCE(cpu->histogram[op][kind]);

	if (unlikely(!histogram)) {
		histogram = fabstat_histogram_create(cpu, op, kind);
		if (!histogram)
			return;
	}
	local64_inc(&histogram->bucket[fabstat_bucket(ns)]);
}

/* From @from to @to in ns; 0 if the clock of another CPU is a moment behind. */
static __always_inline u64 elapsed_ns(u64 from, u64 to)
{
	return (s64)(to - from) > 0 ? to - from : 0;
}

/*
 * The depth is the one word that all CPUs of a device share, which is what makes the highest
 * value and the limit exact. Two CPUs that pass the old highest value at once may leave the
 * lower of their two; it is right again at the next request.
 */
static __always_inline void depth_enter(struct fabstat_device *dev, u64 now)
{
	u32 depth = atomic_inc_return(&dev->depth);
	u32 limit = dev->sdev ? dev->sdev->queue_depth : dev->limit;

	if (unlikely(depth > dev->highest))
		dev->highest = depth;
	if (unlikely(depth >= limit)) {
		dev->limit = limit;
		if (!dev->limit_since_ns)
			cmpxchg64(&dev->limit_since_ns, 0, now);
	}
}

static __always_inline void depth_leave(struct fabstat_device *dev, struct fabstat_cpu *cpu, u64 now)
{
	u32 depth = atomic_dec_return(&dev->depth);

	if (unlikely(READ_ONCE(dev->limit_since_ns)) && depth < dev->limit) {
		u64 since = xchg(&dev->limit_since_ns, 0);

		if (since)
			local64_add(elapsed_ns(since, now), &cpu->at_limit_ns);
	}
}

/* The end of the request that had this slot was not seen: take it off the books. */
static noinline void forget(struct fabstat_device *dev, struct fabstat_cpu *cpu, u64 now)
{
	local64_add(now, &cpu->depth_ns);
	atomic64_inc(&dev->forgotten);
	depth_leave(dev, cpu, now);
}

static u64 end_sector(struct request *rq)
{
	return blk_rq_pos(rq) + blk_rq_sectors(rq);
}

/* What is known of @rq's past is of another request if it does not end at the same sector. */
static noinline void check_retry(struct fabstat_slot *slot, struct request *rq)
{
	if (slot->retry->end_sector != end_sector(rq))
		fabstat_retry_free(slot);
}

static __always_inline void fill_slot(struct fabstat_device *dev, struct fabstat_slot *slot,
				      struct request *rq, unsigned int op)
{
	slot->sector = blk_rq_pos(rq);
	slot->bytes = blk_rq_bytes(rq);
	slot->device = dev->id;
	slot->op = op;
	slot->refusal = 0;
}

static __always_inline void issue(struct request *rq)
{
	struct fabstat_device *dev = fabstat_this_device(rq);
	unsigned int op = request_op(rq);
	struct fabstat_slot *slot;
	struct fabstat_cpu *cpu;
	u64 now;

	if (unlikely(!dev))
		return;
	cpu = fabstat_this_cpu(dev);
	if (unlikely(!cpu))
		return;
	if (unlikely(!dev->identity.known))
		fabstat_identify(dev, rq);
	slot = fabstat_this_slot(dev, rq);
	if (unlikely(!slot)) {
		slot = fabstat_slot_create(dev, rq);
		if (!slot) {
			fabstat_count(cpu, FABSTAT_UNTRACKED);
			return;
		}
	}
	now = fabstat_now();
	if (unlikely(slot->issued_ns))
		forget(dev, cpu, now);
	if (unlikely(slot->retry))
		check_retry(slot, rq);

	local64_inc(&cpu->issued[op]);
	smp_wmb();	/* see struct fabstat_cpu */
	local64_sub(now, &cpu->depth_ns);
	depth_enter(dev, now);
	fill_slot(dev, slot, rq, op);
	WRITE_ONCE(slot->issued_ns, now);
	smp_wmb();
	local64_inc(&cpu->events);
}

/* Times of a request that was sent back or refused before it went through. */
static noinline void record_retry(struct fabstat_cpu *cpu, struct fabstat_slot *slot,
				  unsigned int op, u64 issued, u64 now)
{
	struct fabstat_retry *retry = slot->retry;
	u64 ns;

	if (retry->first_issue_ns) {
		record(cpu, op, FABSTAT_AGAIN_DEVICE, elapsed_ns(issued, now));
		record(cpu, op, FABSTAT_AGAIN_TOTAL, elapsed_ns(retry->first_issue_ns, now));
		local64_add(elapsed_ns(retry->first_issue_ns, issued), &cpu->again_ns[op]);
	} else {
		record(cpu, op, FABSTAT_DIRECT, elapsed_ns(issued, now));
	}
	if (retry->first_refusal_ns) {
		ns = elapsed_ns(retry->first_refusal_ns, issued);
		record(cpu, op, FABSTAT_REFUSED, ns);
		local64_inc(&cpu->refused[op]);
		local64_add(ns, &cpu->refused_ns[op]);
	}
	fabstat_retry_free(slot);
}

/* A request ended that was not in flight as far as the books go. */
static noinline void finish_unissued(struct fabstat_cpu *cpu, struct fabstat_slot *slot,
				     struct request *rq, unsigned int nr_bytes)
{
	/*
	 * The end of a flush sequence: its data were issued and completed on their own, or it had
	 * none, and the flush itself is another request.
	 */
	if (!nr_bytes && rq->bio)
		return;
	if (slot)
		fabstat_retry_free(slot);
	fabstat_count(cpu, blk_mq_rq_state(rq) == MQ_RQ_IDLE ? FABSTAT_NEVER_ISSUED :
							       FABSTAT_UNMATCHED);
}

static noinline void count_failure(struct fabstat_cpu *cpu, unsigned int op, int error,
				   bool timed_out)
{
	if (timed_out)
		fabstat_count(cpu, FABSTAT_TIMED_OUT);
	if (error) {
		local64_inc(&cpu->errors[op]);
		fabstat_count(cpu, fabstat_error_event(error));
	}
}

static __always_inline void finish(struct request *rq, fabstat_status_t status,
				   unsigned int nr_bytes)
{
	struct fabstat_device *dev = fabstat_this_device(rq);
	struct fabstat_slot *slot;
	struct fabstat_cpu *cpu;
	u64 issued, now;
	unsigned int op;

	if (unlikely(!dev))
		return;
	cpu = fabstat_this_cpu(dev);
	if (unlikely(!cpu))
		return;
	slot = fabstat_this_slot(dev, rq);
	issued = slot ? slot->issued_ns : 0;
	if (unlikely(!issued)) {
		finish_unissued(cpu, slot, rq, nr_bytes);
		return;
	}
	op = slot->op;
	if (unlikely(nr_bytes < blk_rq_bytes(rq))) {
		fabstat_count(cpu, FABSTAT_PARTIAL);
		local64_add(nr_bytes, &cpu->bytes[op]);
		return;
	}
	now = fabstat_now();
	slot->issued_ns = 0;
	local64_inc(&cpu->completed[op]);
	smp_wmb();	/* see struct fabstat_cpu */
	local64_add(nr_bytes, &cpu->bytes[op]);
	local64_add(elapsed_ns(issued, now), &cpu->device_ns[op]);
	local64_add(now, &cpu->depth_ns);
	depth_leave(dev, cpu, now);
	if (likely(!slot->retry))
		record(cpu, op, FABSTAT_DIRECT, elapsed_ns(issued, now));
	else
		record_retry(cpu, slot, op, issued, now);
	if (unlikely(status || (rq->rq_flags & RQF_TIMED_OUT)))
		count_failure(cpu, op, fabstat_errno(status), rq->rq_flags & RQF_TIMED_OUT);
	smp_wmb();
	local64_inc(&cpu->events);
}

/* Remembers since when @rq has been sent back or refused. */
static void remember(struct fabstat_cpu *cpu, struct fabstat_slot *slot, struct request *rq,
		     bool refusal, u64 now)
{
	struct fabstat_retry *retry = slot->retry;

	if (retry && retry->end_sector != end_sector(rq)) {
		fabstat_retry_free(slot);
		retry = NULL;
	}
	if (!retry) {
		retry = fabstat_alloc(sizeof(*retry), FABSTAT_BOOKS);
		if (!retry) {
			fabstat_count(cpu, FABSTAT_NO_RETRY);
			return;
		}
		retry->first_ns = slot->issued_ns ?: now;
		retry->end_sector = end_sector(rq);
	}
	if (!retry->first_issue_ns)
		retry->first_issue_ns = slot->issued_ns;
	if (refusal && !retry->first_refusal_ns)
		retry->first_refusal_ns = now;
	retry->times++;
	smp_store_release(&slot->retry, retry);
}

static void send_back(struct fabstat_device *dev, struct fabstat_cpu *cpu,
		      struct fabstat_slot *slot, u64 now)
{
	local64_inc(&cpu->sent_back[slot->op]);
	smp_wmb();	/* see struct fabstat_cpu */
	local64_add(now, &cpu->depth_ns);
	depth_leave(dev, cpu, now);
	WRITE_ONCE(slot->issued_ns, 0);
	smp_wmb();
	local64_inc(&cpu->events);
}

/*
 * The state of a request when it is requeued tells who did not want it: IDLE, it was held
 * back before the driver saw it; IN_FLIGHT, the driver refused it; COMPLETE, it had been at
 * the target, which refused it or answered with something worth a retry.
 */
static void requeue(struct request *rq)
{
	struct fabstat_device *dev = fabstat_this_device(rq);
	enum mq_rq_state state = blk_mq_rq_state(rq);
	struct fabstat_slot *slot;
	struct fabstat_cpu *cpu;
	bool refusal = true;
	u64 now;

	if (!dev)
		return;
	cpu = fabstat_this_cpu(dev);
	if (!cpu)
		return;
	slot = fabstat_slot_create(dev, rq);
	if (state == MQ_RQ_IDLE) {
		fabstat_count(cpu, FABSTAT_REQUEUED_UNSTARTED);
		fabstat_count(cpu, dev->sdev ? fabstat_scsi_hold(dev->sdev) : FABSTAT_HELD_OTHER);
	} else if (state == MQ_RQ_IN_FLIGHT) {
		fabstat_count(cpu, FABSTAT_REQUEUED_BY_DRIVER);
	} else {
		fabstat_count(cpu, FABSTAT_REQUEUED_BY_TARGET);
		refusal = slot && slot->refusal;
	}
	if (rq->rq_flags & RQF_TIMED_OUT)
		fabstat_count(cpu, FABSTAT_TIMED_OUT);
	if (!slot)
		return;
	now = fabstat_now();
	if (!slot->issued_ns)
		fill_slot(dev, slot, rq, request_op(rq));
	remember(cpu, slot, rq, refusal, now);
	if (slot->issued_ns)
		send_back(dev, cpu, slot, now);
}

void fabstat_probe_issue(void *data, struct request *rq)
{
	fabstat_probe_enter();
	issue(rq);
	fabstat_probe_leave();
}

void fabstat_probe_complete(void *data, struct request *rq, fabstat_status_t status,
			    unsigned int nr_bytes)
{
	fabstat_probe_enter();
	finish(rq, status, nr_bytes);
	fabstat_probe_leave();
}

void fabstat_probe_requeue(void *data, struct request *rq)
{
	fabstat_probe_enter();
	requeue(rq);
	fabstat_probe_leave();
}
