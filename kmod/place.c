// SPDX-License-Identifier: GPL-2.0
/* Makes what is missing of a request's place, and clears every place when the probes are off. */
#include <linux/atomic.h>
#include <linux/percpu-refcount.h>
#include <linux/preempt.h>
#include <linux/spinlock.h>

#include "clock.h"
#include "counters.h"
#include "memory.h"
#include "place.h"

/* Returns this CPU's counters of @dev, new; NULL without memory. Called from probes. */
static struct fabstat_cpu *cpu_create(struct fabstat_device *dev)
{
	struct fabstat_cpu **place = &dev->cpu[raw_smp_processor_id()];
	struct fabstat_cpu *cpu = NULL;

	if (fabstat_room_for_counters())
		cpu = fabstat_alloc(sizeof(*cpu), FABSTAT_BOOKS);
	if (!cpu) {
		fabstat_count_untracked();
		return NULL;
	}
	return fabstat_publish(place, NULL, cpu);
}

/* Returns this CPU's counters of @dev, or NULL without memory. Preemption is off. */
static struct fabstat_cpu *this_cpu(struct fabstat_device *dev)
{
	struct fabstat_cpu *cpu = READ_ONCE(dev->cpu[raw_smp_processor_id()]);

	return cpu ? cpu : cpu_create(dev);
}

/* Returns where the table is that @rq belongs to, and its index there in @tag. */
static struct fabstat_table **table_of(const struct fabstat_device *dev, const struct request *rq,
				       unsigned int *tag)
{
	bool scheduled = rq->internal_tag >= 0;

	*tag = scheduled ? rq->internal_tag : rq->tag;
	return &(scheduled ? dev->sched : dev->set->table)[rq->mq_hctx->queue_num];
}

/*
 * Finds the place of @rq and makes what is missing of it. Returns false, counted, if the request
 * cannot be attributed to a device; @place->slot is NULL if only the slot is missing. Preemption
 * is off.
 */
bool fabstat_make(struct request *rq, struct fabstat_place *place)
{
	unsigned int queue = rq->mq_hctx->queue_num;
	struct fabstat_device *dev = NULL;
	unsigned int id = rq->q->id;
	struct fabstat_table **table;
	unsigned int tag;

	if (id < FABSTAT_MAX_QUEUES)
		dev = fabstat_device(id);
	if (!dev)
		dev = fabstat_device_create(rq);
	if (!dev)
		return false;
	place->dev = dev;
	place->cpu = this_cpu(dev);
	if (!place->cpu)
		return false;
	place->slot = NULL;
	if (queue >= dev->nr_tables)
		return true;
	table = table_of(dev, rq, &tag);
	place->slot = fabstat_slot_create(table, tag);
	if (place->slot) {
		place->piece = &READ_ONCE(*table)->piece[tag / FABSTAT_CHUNK_SLOTS];
		place->index = tag % FABSTAT_CHUNK_SLOTS;
	}
	place->depth = dev->depth_of[queue];
	return true;
}

/* Returns the slot of @rq if there is one, else NULL; makes nothing. Preemption is off. */
static struct fabstat_slot *slot_of(const struct request *rq)
{
	struct fabstat_device *dev = NULL;
	struct fabstat_chunk *chunk;
	struct fabstat_table *table;
	unsigned int id = rq->q->id;
	unsigned int tag;

	if (id < FABSTAT_MAX_QUEUES)
		dev = fabstat_device(id);
	if (!dev || rq->mq_hctx->queue_num >= dev->nr_tables)
		return NULL;
	table = READ_ONCE(*table_of(dev, rq, &tag));
	if (tag >= BLK_MQ_MAX_DEPTH)
		return NULL;
	chunk = READ_ONCE(table->piece[tag / FABSTAT_CHUNK_SLOTS].chunk);
	return chunk == &fabstat_no_chunk ? NULL : &chunk->slot[tag % FABSTAT_CHUNK_SLOTS];
}

/* Returns true if the books know that @rq is in flight. Any context. */
bool fabstat_sees(const struct request *rq)
{
	struct fabstat_slot *slot;
	bool sees;

	smp_rmb();	/* a request's state changes behind its probe */
	preempt_disable();
	slot = slot_of(rq);
	sees = slot && fabstat_issued_at(READ_ONCE(slot->issued));
	preempt_enable();
	return sees;
}

/*
 * Takes the request in flight at @slot of hardware queue @queue, whose end was not seen, off the
 * books of its device, which need not be the one that uses the slot now. Preemption is off.
 *
 * No CPU's counters take part: there may be none on this one, and no memory for them. Number and
 * times belong together, or the integral of the depth would be off by all of the uptime.
 */
void fabstat_forget(struct fabstat_slot *slot, unsigned int queue, u64 now)
{
	struct fabstat_device *dev = fabstat_device(slot->device);
	unsigned long flags;

	if (!dev)
		return;
	raw_spin_lock_irqsave(&dev->forgotten.lock, flags);
	dev->forgotten.requests++;
	dev->forgotten.ticks += now;
	raw_spin_unlock_irqrestore(&dev->forgotten.lock, flags);
	fabstat_depth_leave(dev->depth_of[queue], now);
}

/* Returns how many requests of @dev were forgotten, and in @ticks the sum of the times at which. */
u64 fabstat_forgotten(struct fabstat_device *dev, u64 *ticks)
{
	unsigned long flags;
	u64 requests;

	raw_spin_lock_irqsave(&dev->forgotten.lock, flags);
	requests = dev->forgotten.requests;
	*ticks = dev->forgotten.ticks;
	raw_spin_unlock_irqrestore(&dev->forgotten.lock, flags);
	return requests;
}

static void slot_forget(struct fabstat_slot *slot, unsigned int queue, void *data)
{
	u64 now = fabstat_ticks();

	preempt_disable();
	if (fabstat_issued_at(slot->issued))
		fabstat_forget(slot, queue, now);
	preempt_enable();
	WRITE_ONCE(slot->issued, FABSTAT_IDLE);
	slot->refusal = 0;
	fabstat_retry_free(slot);
}

/*
 * Forgets @rq, which has left the driver, as there was no memory to count that: otherwise it would
 * be in flight until its tag is used again. Preemption is off.
 */
void fabstat_lose(struct request *rq)
{
	struct fabstat_slot *slot = slot_of(rq);

	if (slot)
		slot_forget(slot, rq->mq_hctx->queue_num, NULL);
}

static void slot_forget_of(struct fabstat_slot *slot, unsigned int queue, void *data)
{
	const struct fabstat_device *dev = data;

	if (slot->device == dev->id && fabstat_issued_at(slot->issued))
		slot_forget(slot, queue, NULL);
}

/*
 * Forgets what is in flight on devices that are going and whose queues nobody uses any more: of a
 * clone of dm-multipath that its driver had started, and then failed, no probe is told. A set that
 * has other devices is left to them, who use its tags again. fabstat_lock.
 */
void fabstat_forget_lost(void)
{
	struct fabstat_device *dev;
	unsigned int id, queue;

	for (id = 0; id < FABSTAT_MAX_QUEUES; id++) {
		dev = fabstat_device(id);
		if (!dev || !dev->dying || fabstat_device_depth(dev) <= 0 ||
		    !percpu_ref_is_zero(&dev->queue->q_usage_counter))
			continue;
		smp_rmb();	/* the last of its requests gave up the queue after its probe */
		for (queue = 0; queue < dev->nr_tables; queue++)
			fabstat_table_walk(dev->sched[queue], queue, slot_forget_of, dev);
		for (queue = 0; dev->set->users == 1 && queue < dev->set->nr_tables; queue++)
			fabstat_table_walk(dev->set->table[queue], queue, slot_forget_of, dev);
	}
}

/*
 * Forgets every request in flight: the probes have been taken off and will not see it end. No
 * probe runs. fabstat_lock.
 */
void fabstat_forget_all(void)
{
	fabstat_devices_walk(slot_forget, NULL);
}
