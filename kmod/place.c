// SPDX-License-Identifier: GPL-2.0
/* Makes what is missing of a request's place, and clears every place when the probes are off. */
#include <linux/atomic.h>
#include <linux/preempt.h>

#include "clock.h"
#include "counters.h"
#include "memory.h"
#include "place.h"

/* Returns this CPU's counters of @dev, new; NULL without memory. Called from probes. */
static struct fabstat_cpu *cpu_create(struct fabstat_device *dev)
{
	struct fabstat_cpu **place = &dev->cpu[raw_smp_processor_id()];
	struct fabstat_cpu *cpu = fabstat_alloc(sizeof(*cpu), FABSTAT_BOOKS);

	if (!cpu) {
		atomic64_inc(&fabstat_globals.untracked);
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

/* Returns true if the books know that @rq is in flight. Any context. */
bool fabstat_sees(const struct request *rq)
{
	struct fabstat_device *dev = NULL;
	struct fabstat_chunk *chunk;
	struct fabstat_table *table;
	unsigned int id = rq->q->id;
	unsigned int tag;
	bool sees = false;

	smp_rmb();	/* a request's state changes behind its probe */
	preempt_disable();
	if (id < FABSTAT_MAX_QUEUES)
		dev = fabstat_device(id);
	if (!dev || rq->mq_hctx->queue_num >= dev->nr_tables)
		goto out;
	table = READ_ONCE(*table_of(dev, rq, &tag));
	if (tag >= BLK_MQ_MAX_DEPTH)
		goto out;
	chunk = READ_ONCE(table->piece[tag / FABSTAT_CHUNK_SLOTS].chunk);
	sees = fabstat_issued_at(READ_ONCE(chunk->slot[tag % FABSTAT_CHUNK_SLOTS].issued));
out:
	preempt_enable();
	return sees;
}

/*
 * Takes the request in flight at @slot of hardware queue @queue, whose end was not seen, off the
 * books of its device, which need not be the one that uses the slot now. Preemption is off.
 */
void fabstat_forget(struct fabstat_slot *slot, unsigned int queue, u64 now)
{
	struct fabstat_device *dev = fabstat_device(slot->device);
	struct fabstat_cpu *cpu;

	if (!dev)
		return;
	atomic64_inc(&dev->forgotten);
	fabstat_depth_leave(dev->depth_of[queue], now);
	cpu = this_cpu(dev);
	if (cpu)
		local64_add(now, &cpu->depth_ticks);
}

static void slot_forget(struct fabstat_slot *slot, unsigned int queue, void *data)
{
	u64 now = fabstat_ticks();

	preempt_disable();
	if (fabstat_issued_at(slot->issued))
		fabstat_forget(slot, queue, now);
	preempt_enable();
	slot->issued = FABSTAT_IDLE;
	slot->refusal = 0;
	fabstat_retry_free(slot);
}

/*
 * Forgets every request in flight: the probes have been taken off and will not see it end. No
 * probe runs. fabstat_lock.
 */
void fabstat_forget_all(void)
{
	fabstat_devices_walk(slot_forget, NULL);
}
