// SPDX-License-Identifier: GPL-2.0
/*
 * Slots are allocated on first use, a chunk at a time.
 *
 * No lock: a chunk is published with cmpxchg(), so two CPUs that need it at once agree on one.
 * It stays until the device (scheduler tags) or the tag set (driver tags) is freed.
 */
#include <linux/atomic.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "memory.h"
#include "slots.h"

struct fabstat_extra fabstat_no_extra[FABSTAT_CHUNK_SLOTS];
/*
 * Where there is no memory for details they go here, from all devices at once, so that the fast
 * path stays as short as ever. Who finds another issue's knows it by its time.
 */
static struct fabstat_extra spilled[FABSTAT_CHUNK_SLOTS];

struct fabstat_chunk fabstat_no_chunk = {
	.slot = { [0 ... FABSTAT_CHUNK_SLOTS - 1] = { .issued = FABSTAT_PAST } },
};

struct fabstat_table fabstat_no_table = {
	.piece = { [0 ... FABSTAT_CHUNKS - 1] = { &fabstat_no_chunk, fabstat_no_extra } },
};

static struct fabstat_table *table_create(struct fabstat_table **place)
{
	struct fabstat_table *table = fabstat_alloc(sizeof(*table), FABSTAT_BOOKS);

	if (!table)
		return NULL;
	*table = fabstat_no_table;
	return fabstat_publish(place, &fabstat_no_table, table);
}

static struct fabstat_chunk *chunk_create(struct fabstat_chunk **place)
{
	struct fabstat_chunk *chunk;
	unsigned int i;

	chunk = fabstat_alloc(sizeof(*chunk), FABSTAT_BOOKS);
	if (!chunk)
		return NULL;
	for (i = 0; i < FABSTAT_CHUNK_SLOTS; i++)
		chunk->slot[i].issued = FABSTAT_IDLE;
	return fabstat_publish(place, &fabstat_no_chunk, chunk);
}

/*
 * Returns the slot of @tag in the table at @place, allocating both as needed; NULL without memory
 * or for a tag that no table has.
 */
struct fabstat_slot *fabstat_slot_create(struct fabstat_table **place, int tag)
{
	struct fabstat_chunk *chunk;
	struct fabstat_table *table;

	if (tag < 0 || tag >= BLK_MQ_MAX_DEPTH)
		return NULL;
	table = READ_ONCE(*place);
	if (table == &fabstat_no_table)
		table = table_create(place);
	if (!table)
		return NULL;
	chunk = READ_ONCE(table->piece[tag / FABSTAT_CHUNK_SLOTS].chunk);
	if (chunk == &fabstat_no_chunk)
		chunk = chunk_create(&table->piece[tag / FABSTAT_CHUNK_SLOTS].chunk);
	return chunk ? &chunk->slot[tag % FABSTAT_CHUNK_SLOTS] : NULL;
}

/* Returns true if @extra is where all devices' details go that there is no memory for. */
bool fabstat_extra_spills(const struct fabstat_extra *extra)
{
	return extra >= spilled && extra < spilled + FABSTAT_CHUNK_SLOTS;
}

/* Returns the details of the requests in @piece, new or those of all. Called from probes. */
struct fabstat_extra *fabstat_extra_create(struct fabstat_piece *piece)
{
	struct fabstat_extra *extra;

	extra = fabstat_alloc(FABSTAT_CHUNK_SLOTS * sizeof(*extra), FABSTAT_HISTOGRAM);
	if (!extra) {
		cmpxchg(&piece->extra, fabstat_no_extra, spilled);
		return READ_ONCE(piece->extra);
	}
	return fabstat_publish(&piece->extra, fabstat_no_extra, extra);
}

/* Lets the requests in @table ask again for the details that they were refused. */
void fabstat_table_retry(struct fabstat_table *table)
{
	unsigned int i;

	if (table == &fabstat_no_table)
		return;
	for (i = 0; i < FABSTAT_CHUNKS; i++)
		if (READ_ONCE(table->piece[i].extra) == spilled)
			cmpxchg(&table->piece[i].extra, spilled, fabstat_no_extra);
}

/* Forgets what is remembered of a request that was sent back. A reader may still hold it. */
void fabstat_retry_free(struct fabstat_slot *slot)
{
	struct fabstat_retry *retry = fabstat_retry(slot);

	if (!retry)
		return;
	RCU_INIT_POINTER(slot->retry, NULL);
	fabstat_uncharge(retry);
	kfree_rcu(retry, rcu);
}

/* Calls @visit on every slot of @table, which is hardware queue @queue's. May sleep. */
void fabstat_table_walk(struct fabstat_table *table, unsigned int queue, fabstat_visit_t visit,
			void *data)
{
	unsigned int i, j;

	if (table == &fabstat_no_table)
		return;
	for (i = 0; i < FABSTAT_CHUNKS; i++) {
		if (table->piece[i].chunk == &fabstat_no_chunk)
			continue;
		for (j = 0; j < FABSTAT_CHUNK_SLOTS; j++)
			visit(&table->piece[i].chunk->slot[j], queue, data);
	}
	cond_resched();
}

/* Frees @table with everything in it. Nobody uses it any more. */
void fabstat_table_free(struct fabstat_table *table)
{
	unsigned int i, j;

	if (table == &fabstat_no_table)
		return;
	for (i = 0; i < FABSTAT_CHUNKS; i++) {
		if (table->piece[i].extra != fabstat_no_extra && table->piece[i].extra != spilled)
			fabstat_free(table->piece[i].extra);
		if (table->piece[i].chunk == &fabstat_no_chunk)
			continue;
		for (j = 0; j < FABSTAT_CHUNK_SLOTS; j++)
			fabstat_retry_free(&table->piece[i].chunk->slot[j]);
		fabstat_free(table->piece[i].chunk);
	}
	fabstat_free(table);
}
