/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Entries in the books: what a probe writes when a request is issued, completes or is sent back.
 *
 * At any quiet moment, per device and op: issued = completed + sent_back + forgotten + in flight.
 */
#ifndef FABSTAT_BOOKS_H
#define FABSTAT_BOOKS_H

#include "counters.h"
#include "place.h"

extern const u8 fabstat_op_class[256];

/* Returns what kind of request @rq is, of enum fabstat_op. Any context. */
static __always_inline u8 fabstat_op(struct request *rq)
{
	return fabstat_op_class[(__force u8)req_op(rq)];
}

static inline u64 fabstat_end_sector(struct request *rq)
{
	return blk_rq_pos(rq) + blk_rq_sectors(rq);
}

static __always_inline void fabstat_fill_slot(const struct fabstat_device *dev,
					      struct fabstat_slot *slot, struct request *rq, u8 op)
{
	/* Read meanwhile by stuck.c. */
	WRITE_ONCE(slot->sector, blk_rq_pos(rq));
	WRITE_ONCE(slot->bytes, blk_rq_bytes(rq));
	WRITE_ONCE(slot->device, dev->id);
	/* A refusal of the request that had this slot before is none of this one's. */
	WRITE_ONCE(slot->op_alone, cpu_to_le16(op));
}

/* @rq, of kind @op, is issued at @now; @past is FABSTAT_PAST if it was before. */
static __always_inline void fabstat_books_enter(const struct fabstat_place *place,
						struct request *rq, u8 op, u64 now, u64 past)
{
	local64_inc(place->cpu->issued + op);
	fabstat_fill_slot(place->dev, place->slot, rq, op);
	smp_wmb();	/* see struct fabstat_cpu, and copy_slot() */
	local64_sub(now, &place->cpu->depth_ticks);
	WRITE_ONCE(place->slot->issued, now | past);
	smp_wmb();	/* see struct fabstat_cpu */
	local64_inc(&place->cpu->events);
	fabstat_depth_enter(place->depth, now);
}

/* Enters a completed request in the books, all but its histogram. */
static __always_inline void fabstat_books_leave(const struct fabstat_place *place,
						unsigned int op, unsigned int nr_bytes, u64 ns,
						u64 now)
{
	struct fabstat_cpu *cpu = place->cpu;

	WRITE_ONCE(place->slot->issued, FABSTAT_IDLE);
	local64_inc(cpu->completed + op);
	smp_wmb();	/* see struct fabstat_cpu */
	local64_add(nr_bytes, cpu->bytes + op);
	local64_add(ns, cpu->device_ns + op);
	local64_add(now, &cpu->depth_ticks);
}

/* The last entry of a request that leaves. */
static __always_inline void fabstat_books_left(const struct fabstat_place *place, u64 now)
{
	smp_wmb();	/* see struct fabstat_cpu */
	local64_inc(&place->cpu->events);
	fabstat_depth_leave(place->depth, now);
}

/* A request that is in flight was sent back at @now. */
static inline void fabstat_books_send_back(const struct fabstat_place *place, u64 now)
{
	local64_inc(&place->cpu->sent_back[place->slot->op]);
	smp_wmb();	/* see struct fabstat_cpu */
	local64_add(now, &place->cpu->depth_ticks);
	fabstat_books_left(place, now);
}

#endif
