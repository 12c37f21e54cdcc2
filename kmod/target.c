// SPDX-License-Identifier: GPL-2.0
/*
 * Probes on the target's core (LIO): the time of every command that this host serves.
 *
 * target_sequencer_start tells of a command that has come, target_cmd_complete of its answer,
 * before the fabric sends it. No tracepoint lies between the two: see target_parts.c.
 *
 *	command -> slot (by its address): when did it come, and of which nexus?
 *	             |
 *	             +-> fabstat_nexus_cpu: counters of this CPU -> fabstat_histogram
 *
 * Not every command is answered: an aborted one may end in silence. Its slot is taken over when the
 * command's memory is used again, or found after STALE_NS; either is counted as forgotten.
 *
 * A slot belongs to whom cmpxchg() of its command gave it, so probes need no lock.
 *
 * Each probe has a fast path, which allocates nothing, and a slow one, which does the same for
 * every command that is special in any way, or by any other clock than the counter. As in place.h
 * arrays are indexed by adding to pointers.
 */
#include <linux/atomic.h>
#include <linux/build_bug.h>
#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <target/target_core_base.h>
#include <trace/events/target.h>

#include "clock.h"
#include "counters.h"
#include "histogram.h"
#include "memory.h"
#include "nexus.h"
#include "probes.h"
#include "target.h"

#define SLOTS_PER_BUCKET	4
#define BUCKETS_PER_CHUNK	32
#define CHUNKS	(FABSTAT_TARGET_COMMANDS / (SLOTS_PER_BUCKET * BUCKETS_PER_CHUNK))
#define BUCKET_BITS		ilog2(CHUNKS * BUCKETS_PER_CHUNK)

#define STALE_NS		(3600 * NSEC_PER_SEC)
/* Of so many calls of fabstat_target_scan() one looks. */
#define SCANS_TO_A_LOOK		60

/* One command from its coming to its answer. */
struct command_slot {
	const void *cmd;	/* key only, never followed; NULL: free */
	u64 started;		/* ticks */
	struct fabstat_nexus *nexus;
	u8 op;
	u8 passed;		/* bits of enum fabstat_part */
};

struct command_bucket {
	struct command_slot slot[SLOTS_PER_BUCKET];
};

struct command_chunk {
	struct command_bucket bucket[BUCKETS_PER_CHUNK];
};

static_assert(sizeof(struct command_chunk) == 4096);

static struct command_chunk *chunks[CHUNKS];
/* Stands for the command of a slot that is being filled in or looked at. */
static const char taken;

static atomic64_t crowded;	/* commands that found no slot */
static atomic64_t missed;	/* passages on a CPU that had no counters yet */

/* Counts the command of @slot, which is taken, as one whose end was not seen. Preemption is off. */
static void slot_forget(struct command_slot *slot)
{
	struct fabstat_nexus_cpu *cpu = fabstat_nexus_cpu(slot->nexus);

	if (cpu)
		local64_inc(&cpu->forgotten[slot->op]);
}

/* Returns the slot of @cmd in @bucket, or NULL. A loop would take twice as long. */
static __always_inline struct command_slot *slot_of(struct command_bucket *bucket,
						    const struct se_cmd *cmd)
{
	struct command_slot *slot = bucket->slot;

	static_assert(SLOTS_PER_BUCKET == 4);
	if (READ_ONCE(slot[0].cmd) == cmd)
		return slot;
	if (READ_ONCE(slot[1].cmd) == cmd)
		return slot + 1;
	if (READ_ONCE(slot[2].cmd) == cmd)
		return slot + 2;
	if (READ_ONCE(slot[3].cmd) == cmd)
		return slot + 3;
	return NULL;
}

static __always_inline struct command_chunk **chunk_of(const struct se_cmd *cmd,
						       unsigned int *bucket)
{
	unsigned int hash = hash_ptr(cmd, BUCKET_BITS);

	*bucket = hash % BUCKETS_PER_CHUNK;
	return chunks + hash / BUCKETS_PER_CHUNK;
}

static struct command_chunk *chunk_create(struct command_chunk **place)
{
	struct command_chunk *chunk = fabstat_alloc(sizeof(*chunk), FABSTAT_BOOKS);

	return chunk ? fabstat_publish(place, NULL, chunk) : NULL;
}

/* The slot of a command that was never answered, whose memory is used again. */
static struct command_slot *slot_take_over(struct command_slot *slot, const void *cmd)
{
	/* Unless it has just been found to be stale. */
	if (cmpxchg(&slot->cmd, cmd, &taken) != cmd)
		return NULL;
	slot_forget(slot);
	return slot;
}

/* Returns a slot in @bucket, to fill in; NULL if all are in use. */
static __always_inline struct command_slot *slot_take(struct command_bucket *bucket)
{
	struct command_slot *slot, *end = bucket->slot + SLOTS_PER_BUCKET;

	for (slot = bucket->slot; slot < end; slot++)
		if (!READ_ONCE(slot->cmd) && !cmpxchg(&slot->cmd, NULL, &taken))
			return slot;
	return NULL;
}

/* Enters @cmd, which has come at @now, in @slot, which is taken, and in @cpu's counters. */
static __always_inline void slot_fill(struct command_slot *slot, const struct se_cmd *cmd,
				      struct fabstat_nexus *nexus, struct fabstat_nexus_cpu *cpu,
				      u64 now)
{
	u32 window = cmd->se_sess->se_node_acl->queue_depth;
	u8 op = fabstat_cdb_op(cmd->t_task_cdb);

	/* It hardly ever changes, and all CPUs read it. */
	if (unlikely(READ_ONCE(nexus->window) != window))
		WRITE_ONCE(nexus->window, window);
	WRITE_ONCE(slot->nexus, nexus);
	WRITE_ONCE(slot->op, op);
	WRITE_ONCE(slot->passed, 0);
	local64_inc(cpu->started + op);
	WRITE_ONCE(slot->started, now);
	/* Who finds the command finds the slot filled in. */
	smp_store_release(&slot->cmd, cmd);
}

/* Anything but one more command of a nexus that is known on this CPU. */
static noinline void command_start_slowly(const struct se_cmd *cmd)
{
	struct fabstat_nexus *nexus = fabstat_nexus_of(cmd);
	struct fabstat_nexus_cpu *cpu = nexus ? fabstat_nexus_cpu(nexus) : NULL;
	struct command_chunk **place, *chunk;
	struct command_slot *slot = NULL;
	unsigned int bucket;

	if (!cpu)
		return;
	place = chunk_of(cmd, &bucket);
	chunk = READ_ONCE(*place) ?: chunk_create(place);
	if (chunk)
		slot = slot_of(chunk->bucket + bucket, cmd);
	if (slot)
		slot = slot_take_over(slot, cmd);
	if (chunk && !slot)
		slot = slot_take(chunk->bucket + bucket);
	if (slot) {
		slot_fill(slot, cmd, nexus, cpu, fabstat_ticks());
		return;
	}
	local64_inc(&cpu->untracked);
	if (chunk)
		atomic64_inc(&crowded);
}

static __always_inline void command_start(const struct se_cmd *cmd)
{
	struct fabstat_nexus *nexus = fabstat_nexus_find(cmd);
	struct fabstat_nexus_cpu *cpu;
	struct command_bucket *in;
	struct command_chunk *chunk;
	struct command_slot *slot;
	unsigned int bucket;

	if (unlikely(!nexus || !fabstat_clock.counter))
		goto slowly;
	cpu = fabstat_nexus_cpu_find(nexus);
	chunk = READ_ONCE(*chunk_of(cmd, &bucket));
	if (unlikely(!cpu || !chunk))
		goto slowly;
	in = chunk->bucket + bucket;
	slot = unlikely(slot_of(in, cmd)) ? NULL : slot_take(in);
	if (unlikely(!slot))
		goto slowly;
	slot_fill(slot, cmd, nexus, cpu, fabstat_ticks_fast());
	return;

slowly:
	command_start_slowly(cmd);
}

static __always_inline struct command_slot *slot_find(const struct se_cmd *cmd)
{
	struct command_chunk *chunk;
	unsigned int bucket;

	chunk = READ_ONCE(*chunk_of(cmd, &bucket));
	return likely(chunk) ? slot_of(chunk->bucket + bucket, cmd) : NULL;
}

/* Enters the end of @cmd in @cpu's counters, all but its histogram. */
static __always_inline void count_answer(const struct se_cmd *cmd, struct fabstat_nexus_cpu *cpu,
					 unsigned int op, u64 ns)
{
	local64_inc(cpu->completed + op);
	smp_wmb();	/* readers see no time without its command */
	local64_add(ns, cpu->target_ns + op);
	if (likely(!cmd->scsi_status))
		local64_add(cmd->data_length, cpu->bytes + op);
	else
		local64_inc(cpu->answers + fabstat_answer(cmd->scsi_status));
}

/* The answer to a command that was not seen to come, a second one, or the first of its kind. */
static noinline void command_complete_slowly(const struct se_cmd *cmd)
{
	struct command_slot *slot = slot_find(cmd);
	struct fabstat_nexus_cpu *cpu;
	struct fabstat_nexus *nexus;
	u64 started = 0, ns;
	unsigned int op = 0;

	if (slot) {
		/* It may just be found stale, and given to another command. */
		nexus = READ_ONCE(slot->nexus);
		op = READ_ONCE(slot->op);
		started = READ_ONCE(slot->started);
		/* If not, it was this one's, and from here on is somebody else's. */
		if (cmpxchg(&slot->cmd, cmd, NULL) != cmd)
			slot = NULL;
	}
	if (!slot)
		nexus = fabstat_nexus_of(cmd);
	cpu = nexus ? fabstat_nexus_cpu(nexus) : NULL;
	if (!cpu)
		return;
	if (!slot) {
		local64_inc(&cpu->unmatched);
		return;
	}
	ns = fabstat_ticks_to_ns(fabstat_elapsed(started, fabstat_ticks()));
	count_answer(cmd, cpu, op, ns);
	fabstat_nexus_record(cpu, op, ns);
}

static __always_inline void command_complete(const struct se_cmd *cmd)
{
	struct command_slot *slot = slot_find(cmd);
	struct fabstat_histogram *histogram;
	struct fabstat_nexus_cpu *cpu;
	unsigned int op;
	u64 ticks, ns;

	if (unlikely(!slot || !fabstat_clock.counter))
		goto slowly;
	cpu = fabstat_nexus_cpu_find(READ_ONCE(slot->nexus));
	if (unlikely(!cpu))
		goto slowly;
	op = READ_ONCE(slot->op);
	histogram = READ_ONCE(*(cpu->histogram + op));
	ticks = fabstat_ticks_fast() - READ_ONCE(slot->started);
	/* More than a second or four, or a negative time; or, as below, no longer its slot. */
	if (unlikely(!histogram || ticks >> 32 || cmpxchg(&slot->cmd, cmd, NULL) != cmd))
		goto slowly;
	ns = fabstat_few_ticks_to_ns(ticks);
	count_answer(cmd, cpu, op, ns);
	local64_inc(histogram->bucket + fabstat_bucket_in_range(ns));
	return;

slowly:
	command_complete_slowly(cmd);
}

/*
 * Enters that @cmd has come to the end of @part of its time, before its answer, so its slot is its
 * own. COMPARE AND WRITE, which the backstore has twice, is left out. Called as if from an NMI,
 * with preemption off.
 */
void fabstat_target_passes(const struct se_cmd *cmd, unsigned int part)
{
	struct command_slot *slot = slot_find(cmd);
	struct fabstat_nexus_cpu *cpu;
	u64 ns;
	u8 op;

	if (!slot || READ_ONCE(slot->passed) & BIT(part) || *cmd->t_task_cdb == COMPARE_AND_WRITE)
		return;
	cpu = fabstat_nexus_cpu_find(READ_ONCE(slot->nexus));
	if (!cpu) {
		atomic64_inc(&missed);
		return;
	}
	WRITE_ONCE(slot->passed, READ_ONCE(slot->passed) | BIT(part));
	op = READ_ONCE(slot->op);
	ns = fabstat_ticks_to_ns(fabstat_elapsed(READ_ONCE(slot->started), fabstat_ticks()));
	local64_inc(&cpu->passed[part][op]);
	smp_wmb();	/* readers see no time without its command */
	local64_add(ns, &cpu->passed_ns[part][op]);
}

notrace void fabstat_probe_target_start(void *data, struct se_cmd *cmd)
{
	fabstat_probe_enter();
	command_start(cmd);
	fabstat_probe_leave();
}

notrace void fabstat_probe_target_complete(void *data, struct se_cmd *cmd)
{
	fabstat_probe_enter();
	command_complete(cmd);
	fabstat_probe_leave();
}

/* Makes the compiler compare each probe with the kernel's own prototype of its tracepoint. */
static void __maybe_unused check_prototypes(void)
{
	check_trace_callback_type_target_sequencer_start(fabstat_probe_target_start);
	check_trace_callback_type_target_cmd_complete(fabstat_probe_target_complete);
}

typedef void (*visit_t)(struct command_slot *slot, const void *cmd, u64 now);

/* Calls @visit on every slot that has a command. May sleep. */
static void slots_walk(visit_t visit)
{
	u64 now = fabstat_ticks();
	unsigned int i, j;

	for (i = 0; i < CHUNKS; i++) {
		struct command_chunk *chunk = READ_ONCE(chunks[i]);

		if (!chunk)
			continue;
		for (j = 0; j < BUCKETS_PER_CHUNK * SLOTS_PER_BUCKET; j++) {
			struct command_bucket *bucket = &chunk->bucket[j / SLOTS_PER_BUCKET];
			struct command_slot *slot = &bucket->slot[j % SLOTS_PER_BUCKET];
			/* Pairs with the release of a slot that was filled in. */
			const void *cmd = smp_load_acquire(&slot->cmd);

			if (cmd && cmd != &taken)
				visit(slot, cmd, now);
		}
		cond_resched();
	}
}

static bool slot_is_stale(const struct command_slot *slot, u64 now)
{
	return fabstat_ticks_to_ns(fabstat_elapsed(READ_ONCE(slot->started), now)) > STALE_NS;
}

/* Forgets the command of @slot, if it is @cmd and, where only stale ones are asked for, stale. */
static void slot_clear(struct command_slot *slot, const void *cmd, bool stale_only, u64 now)
{
	bool clear;

	preempt_disable();
	if (cmpxchg(&slot->cmd, cmd, &taken) == cmd) {
		/* Its memory may just have been given to a command that came since. */
		clear = !stale_only || slot_is_stale(slot, now);
		if (clear)
			slot_forget(slot);
		/* Who takes the slot writes it after it was read here. */
		smp_store_release(&slot->cmd, clear ? NULL : cmd);
	}
	preempt_enable();
}

static void visit_forget(struct command_slot *slot, const void *cmd, u64 now)
{
	slot_clear(slot, cmd, false, now);
}

static void visit_stale(struct command_slot *slot, const void *cmd, u64 now)
{
	if (slot_is_stale(slot, now))
		slot_clear(slot, cmd, true, now);
}

static void visit_count(struct command_slot *slot, const void *cmd, u64 now)
{
	struct fabstat_nexus *nexus = READ_ONCE(slot->nexus);
	u64 started = READ_ONCE(slot->started);

	if (!nexus->at_target++ || started < nexus->oldest)
		nexus->oldest = started;
}

/* Forgets every command: the probes have been taken off and will not see it end. */
void fabstat_target_forget_all(void)
{
	slots_walk(visit_forget);
}

/* Looks for commands that were never answered; called once a second. fabstat_lock. */
void fabstat_target_scan(void)
{
	static unsigned int calls;

	if (!(++calls % SCANS_TO_A_LOOK))
		slots_walk(visit_stale);
}

/* Counts what is at the target now, by nexus. fabstat_lock. */
void fabstat_target_look(void)
{
	struct fabstat_nexus *nexus;
	unsigned int i;

	for (i = 0; (nexus = fabstat_nexus(i)); i++)
		nexus->at_target = 0;
	slots_walk(visit_count);
}

/* Returns how many commands were not tracked because too many others were at the target. */
u64 fabstat_target_crowded(void)
{
	return atomic64_read(&crowded);
}

/* Returns how many passages were not counted, as their CPU had no counters of their nexus yet. */
u64 fabstat_target_missed(void)
{
	return atomic64_read(&missed);
}

/* The target's core is being unloaded; none of its commands is left. */
void fabstat_target_gone(void)
{
	fabstat_target_forget_all();
	fabstat_nexuses_invalidate();
}

/* Frees everything. No probe runs any more and no reader is left. */
void fabstat_target_exit(void)
{
	unsigned int i;

	for (i = 0; i < CHUNKS; i++)
		fabstat_free(chunks[i]);
	fabstat_nexuses_exit();
}
