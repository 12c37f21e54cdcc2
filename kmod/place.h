/* SPDX-License-Identifier: GPL-2.0 */
/* The place of a request: what a probe works on. */
#ifndef FABSTAT_PLACE_H
#define FABSTAT_PLACE_H

#include <linux/blk-mq.h>
#include <linux/smp.h>

#include "device.h"
#include "slots.h"

/*
 * Without holes: where the compiler clears variables on the stack, as most distributions have it,
 * it would keep one with holes there and clear it for each request.
 */
struct fabstat_place {
	struct fabstat_device *dev;
	struct fabstat_cpu *cpu;	/* this CPU's */
	struct fabstat_depth *depth;	/* the device's, or its hardware queue's */
	struct fabstat_slot *slot;
	struct fabstat_piece *piece;	/* the slot's */
	unsigned long index;		/* in it */
};

static_assert(sizeof(struct fabstat_place) == 6 * sizeof(long));

/*
 * Finds the place of @rq; returns false if any part of it does not exist yet, or the fast path is
 * closed to the device. Calls nothing and allocates nothing: what is missing points to an empty
 * device, table or chunk, so that one test is enough for both. The slot of an empty chunk is
 * neither idle nor that of a request in flight, and is not to be written. Preemption is off.
 *
 * Here and in the fast paths of block.c arrays are indexed by adding to pointers: each index is
 * bounded by the line that makes it or by the block layer's own limits, and UBSAN's check of each
 * again, which production kernels have, would take a tenth of what a request may cost.
 */
static __always_inline bool fabstat_find(struct request *rq, struct fabstat_place *place)
{
	unsigned int queue = rq->mq_hctx->queue_num;
	unsigned int id = rq->q->id;
	int tag = rq->internal_tag;
	struct fabstat_device *dev;
	struct fabstat_chunk *chunk;
	struct fabstat_piece *piece;
	struct fabstat_table *table;

	if (unlikely(id >= FABSTAT_MAX_QUEUES))
		return false;
	dev = rcu_dereference_sched(*(fabstat_devices + id));
	if (unlikely(queue >= dev->nr_ready))
		return false;
	place->dev = dev;
	place->depth = dev->depth_of[queue];
	if (tag >= 0) {
		table = READ_ONCE(dev->sched[queue]);
	} else {
		table = READ_ONCE(dev->set->table[queue]);
		tag = rq->tag;
		if (unlikely(tag < 0))
			return false;
	}
	piece = table->piece + (unsigned int)tag / FABSTAT_CHUNK_SLOTS;
	chunk = READ_ONCE(piece->chunk);
	place->piece = piece;
	place->index = (unsigned int)tag % FABSTAT_CHUNK_SLOTS;
	place->slot = chunk->slot + place->index;
	place->cpu = READ_ONCE(dev->cpu[(unsigned int)raw_smp_processor_id()]);
	return likely(place->cpu);
}

bool fabstat_sees(const struct request *rq);
bool fabstat_make(struct request *rq, struct fabstat_place *place);
void fabstat_forget(struct fabstat_slot *slot, unsigned int queue, u64 now);
u64 fabstat_forgotten(struct fabstat_device *dev, u64 *ticks);
void fabstat_lose(struct request *rq);
void fabstat_forget_all(void);
void fabstat_forget_lost(void);

#endif
