// SPDX-License-Identifier: GPL-2.0
/*
 * Slots: taking their memory on first use, and clearing them.
 *
 * No lock: a chunk is published with cmpxchg(), so two CPUs that need it at once agree on one,
 * and stays until the device (scheduler tags) or the tag set (driver tags) goes.
 */
#include <linux/slab.h>

#include "fabstat.h"

/* Stands for a table that was not taken yet: no chunk is in it. */
struct fabstat_table fabstat_no_table;

static struct fabstat_table *table_create(struct fabstat_table **place)
{
	struct fabstat_table *table, *winner;

	table = fabstat_alloc(sizeof(*table), FABSTAT_BOOKS);
	if (!table)
		return NULL;
	winner = cmpxchg(place, &fabstat_no_table, table);
	if (winner == &fabstat_no_table)
		return table;
	fabstat_free(table);
	return winner;
}

static struct fabstat_chunk *chunk_create(struct fabstat_chunk **place)
{
	struct fabstat_chunk *chunk, *winner;
	unsigned int i;

	chunk = fabstat_alloc(sizeof(*chunk), FABSTAT_BOOKS);
	if (!chunk)
		return NULL;
	for (i = 0; i < FABSTAT_CHUNK_SLOTS; i++)
		chunk->slot[i].issued = FABSTAT_IDLE;
	winner = cmpxchg(place, NULL, chunk);
	if (!winner)
		return chunk;
	fabstat_free(chunk);
	return winner;
}

/* Returns the slot of @rq, taking the memory for it if need be; NULL without memory. */
struct fabstat_slot *fabstat_slot_create(struct fabstat_device *dev, struct request *rq)
{
	bool scheduled = rq->internal_tag >= 0;
	struct fabstat_table **tables = scheduled ? dev->sched : dev->set->table;
	int tag = scheduled ? rq->internal_tag : rq->tag;
	unsigned int queue = rq->mq_hctx->queue_num;
	struct fabstat_chunk *chunk;
	struct fabstat_table *table;

	if (queue >= dev->nr_tables || tag < 0 || tag >= BLK_MQ_MAX_DEPTH)
		return NULL;
	table = READ_ONCE(tables[queue]);
	if (table == &fabstat_no_table)
		table = table_create(&tables[queue]);
	if (!table)
		return NULL;
	chunk = READ_ONCE(table->chunk[tag / FABSTAT_CHUNK_SLOTS]);
	if (!chunk)
		chunk = chunk_create(&table->chunk[tag / FABSTAT_CHUNK_SLOTS]);
	return chunk ? &chunk->slot[tag % FABSTAT_CHUNK_SLOTS] : NULL;
}

/* Forgets what is remembered of a request that was sent back. A reader may still hold it. */
void fabstat_retry_free(struct fabstat_slot *slot)
{
	struct fabstat_retry *retry = slot->retry;

	if (!retry)
		return;
	WRITE_ONCE(slot->retry, NULL);
	fabstat_uncharge(retry);
	kfree_rcu(retry, rcu);
}

static void table_walk(struct fabstat_table *table,
		       void (*visit)(struct fabstat_slot *slot, void *data), void *data)
{
	unsigned int i, j;

	if (table == &fabstat_no_table)
		return;
	for (i = 0; i < FABSTAT_CHUNKS; i++)
		for (j = 0; table->chunk[i] && j < FABSTAT_CHUNK_SLOTS; j++)
			visit(&table->chunk[i]->slot[j], data);
	cond_resched();
}

/* Calls @visit on every slot there is, once. The caller holds fabstat_lock. */
void fabstat_slots_walk(void (*visit)(struct fabstat_slot *slot, void *data), void *data)
{
	static u64 walk;	/* fabstat_lock */
	struct fabstat_device *dev;
	unsigned int id, queue;

	walk++;
	for (id = 0; id < FABSTAT_MAX_QUEUES; id++) {
		dev = fabstat_device(id);
		if (!dev)
			continue;
		for (queue = 0; queue < dev->nr_tables; queue++)
			table_walk(dev->sched[queue], visit, data);
		if (dev->set->walk == walk)
			continue;
		dev->set->walk = walk;
		for (queue = 0; queue < dev->nr_tables; queue++)
			table_walk(dev->set->table[queue], visit, data);
	}
}

static void slot_forget(struct fabstat_slot *slot, void *data)
{
	struct fabstat_device *dev = fabstat_device(slot->device);
	bool in_flight = fabstat_issued_at(slot->issued);
	struct fabstat_cpu *cpu;

	slot->issued = FABSTAT_IDLE;
	slot->refusal = 0;
	fabstat_retry_free(slot);
	if (!in_flight || !dev)
		return;
	atomic64_inc(&dev->forgotten);
	atomic_dec(&dev->depth);
	dev->limit_since = 0;
	preempt_disable();
	cpu = fabstat_this_cpu(dev);
	if (cpu)
		local64_add(fabstat_ticks(), &cpu->depth_ticks);
	preempt_enable();
}

/*
 * Forgets every request in flight, for when the probes have been taken off and will not see
 * them end. No probe runs; the caller holds fabstat_lock.
 */
void fabstat_slots_forget(void)
{
	fabstat_slots_walk(slot_forget, NULL);
}

/* Frees a table with everything in it. Nobody uses it any more. */
void fabstat_table_free(struct fabstat_table *table)
{
	unsigned int i, j;

	if (table == &fabstat_no_table)
		return;
	for (i = 0; i < FABSTAT_CHUNKS; i++) {
		for (j = 0; table->chunk[i] && j < FABSTAT_CHUNK_SLOTS; j++)
			fabstat_retry_free(&table->chunk[i]->slot[j]);
		fabstat_free(table->chunk[i]);
	}
	fabstat_free(table);
}
