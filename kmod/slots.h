/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Slots: what is known of each request between issue and completion, by the request's index.
 *
 * A request's index is its scheduler tag when the queue has an I/O scheduler, its driver tag
 * otherwise. It keeps that index from allocation to its end, however often it is requeued
 * (under a scheduler the driver tag changes). Scheduler tags are numbered per device and hardware
 * queue, driver tags per tag set and hardware queue, so the tables of the second kind belong to
 * a fabstat_set, which all LUNs of a host share.
 */
#ifndef FABSTAT_SLOTS_H
#define FABSTAT_SLOTS_H

#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/blk-mq.h>
#include <linux/rcupdate.h>
#include <linux/types.h>

#define FABSTAT_REASONS		8

/* What is remembered of a request that was refused or sent back, until it completes. */
struct fabstat_retry {
	struct rcu_head rcu;
	u64 first_issue;	/* ticks; 0: refused before it was ever issued */
	u64 first_refusal;	/* ticks; 0: sent back, but not by a refusal */
	u64 first;		/* ticks, whichever came first */
	u64 end_sector;		/* tells the request from a later one at the same index */
	u32 times;
	u8 reason[FABSTAT_REASONS];	/* of the first ones, enum fabstat_event plus 1; 0: none */
};

/*
 * The upper bits of fabstat_slot.issued. They make the time since issue look too long for the
 * fast path of a completion, so that it needs no other test of the slot's state. The clock
 * itself never gets there: 2^62 ticks are decades.
 */
#define FABSTAT_IDLE	BIT_ULL(63)			/* alone: no request */
#define FABSTAT_PAST	(BIT_ULL(63) | BIT_ULL(62))	/* there is a retry; alone: not in flight */

/* One request between issue and completion; 32 bytes, so that two share a cache line. */
struct fabstat_slot {
	u64 issued;		/* ticks, with the bits above */
	u64 sector;
	struct fabstat_retry __rcu *retry;
	u32 bytes;
	u16 device;		/* queue id */
	union {
		struct {
			u8 op;
			u8 refusal;	/* of this issue: enum fabstat_event plus 1; 0: none */
		};
		__le16 op_alone;	/* both at once: no refusal */
	};
};

#define FABSTAT_CHUNK_SLOTS	128
#define FABSTAT_CHUNKS		(BLK_MQ_MAX_DEPTH / FABSTAT_CHUNK_SLOTS)

/* Details of one request, while wanted; as long as a slot, so that one offset leads to both. */
struct fabstat_extra {
	u64 issued;		/* ticks, of the issue that the rest belongs to */
	u64 wait_ns;
	u16 cpu;
	u64 unused;
};

struct fabstat_chunk {
	struct fabstat_slot slot[FABSTAT_CHUNK_SLOTS];
};

/* What is allocated for FABSTAT_CHUNK_SLOTS tags, each on first use. */
struct fabstat_piece {
	struct fabstat_chunk *chunk;
	struct fabstat_extra *extra;	/* as many; fabstat_no_extra until details are wanted */
};

/* The slots of one hardware queue. */
struct fabstat_table {
	struct fabstat_piece piece[FABSTAT_CHUNKS];
};

/* A page or a power of two: with a word more an allocator would give twice as much. */
static_assert(sizeof(struct fabstat_chunk) == 4096);
static_assert(sizeof(struct fabstat_extra) == sizeof(struct fabstat_slot));

/* Stand for what has not been allocated yet, so that the fast paths need fewer tests. */
extern struct fabstat_table fabstat_no_table;		/* has no chunks */
extern struct fabstat_chunk fabstat_no_chunk;		/* its slots: neither idle nor in flight */
extern struct fabstat_extra fabstat_no_extra[];		/* details of no request */

/* Returns when the request that @issued is about was issued, in ticks; 0: it is not in flight. */
static inline u64 fabstat_issued_at(u64 issued)
{
	return issued & ~FABSTAT_PAST;
}

/*
 * Returns what is remembered of the request at @slot, or NULL. For those that handle the request,
 * which the block layer gives to one CPU at a time, or that have the slot to themselves.
 */
static inline struct fabstat_retry *fabstat_retry(const struct fabstat_slot *slot)
{
	return rcu_dereference_protected(slot->retry, true);
}

typedef void (*fabstat_visit_t)(struct fabstat_slot *slot, unsigned int queue, void *data);

struct fabstat_slot *fabstat_slot_create(struct fabstat_table **place, int tag);
bool fabstat_extra_spills(const struct fabstat_extra *extra);
struct fabstat_extra *fabstat_extra_create(struct fabstat_piece *piece);
void fabstat_table_walk(struct fabstat_table *table, unsigned int queue, fabstat_visit_t visit,
			void *data);
void fabstat_table_retry(struct fabstat_table *table);
void fabstat_table_free(struct fabstat_table *table);
void fabstat_retry_free(struct fabstat_slot *slot);

#endif
