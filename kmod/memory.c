// SPDX-License-Identifier: GPL-2.0
/*
 * The module's memory, under one ceiling.
 *
 * Everything is allocated from within probes, on first use. At the ceiling the module goes on
 * with less: first without further histograms, so that the books of new devices still fit, then
 * without new devices. Both are counted.
 */
#include <linux/atomic.h>
#include <linux/jiffies.h>
#include <linux/log2.h>
#include <linux/moduleparam.h>
#include <linux/preempt.h>
#include <linux/slab.h>

#include "ceiling.h"
#include "memory.h"
#include "reserve.h"

static unsigned int memory_limit_mib = 128;
module_param(memory_limit_mib, uint, 0644);
MODULE_PARM_DESC(memory_limit_mib, "the most memory that the module may use, in MiB (default 128)");

static atomic64_t used;
static atomic64_t refused;
static atomic64_t ceiling_refused;	/* of these, how often the ceiling was why */
static unsigned long said_until;	/* jiffies; 0: the ceiling has refused nothing */

u64 fabstat_memory_used(void)
{
	return atomic64_read(&used);
}

u64 fabstat_memory_limit(void)
{
	return (u64)READ_ONCE(memory_limit_mib) << 20;
}

u64 fabstat_memory_refused(void)
{
	return atomic64_read(&refused);
}

/*
 * Returns true once when memory was refused since the last look that was true, and there is some
 * again. One caller at a time.
 */
bool fabstat_memory_eased(void)
{
	static u64 refused_before, ceiling_before;
	u64 ceiling = atomic64_read(&ceiling_refused);
	u64 now = fabstat_memory_refused();

	if (now == refused_before ||
	    !fabstat_ceiling_has_room(fabstat_memory_used(), fabstat_memory_limit(),
				      ceiling != ceiling_before))
		return false;
	refused_before = now;
	ceiling_before = ceiling;
	/* What is refused from now on is to be seen by the next look. */
	WRITE_ONCE(said_until, 0);
	return true;
}

static void *memory_take(size_t bytes)
{
#ifdef CONFIG_PREEMPT_RT
	return fabstat_reserve_take(bytes);
#else
	/* Probes run where memory is being written out to be freed: its reserves are not ours. */
	return kzalloc(bytes, GFP_NOWAIT | __GFP_NOWARN | __GFP_NOMEMALLOC);
#endif
}

static void memory_give(void *memory)
{
#ifdef CONFIG_PREEMPT_RT
	if (!preemptible()) {
		fabstat_reserve_give(memory);
		return;
	}
#endif
	kfree(memory);
}

/*
 * Counts that the ceiling has refused memory, ten times a second at most: at the ceiling that is so
 * for each request of a device that there is no room for, and what all CPUs write costs them all.
 */
static void refuse_at_ceiling(void)
{
	unsigned long until = READ_ONCE(said_until);

	if (until && time_before(jiffies, until))
		return;
	WRITE_ONCE(said_until, (jiffies + HZ / 10) | 1);
	atomic64_inc(&refused);
	atomic64_inc(&ceiling_refused);
}

/*
 * Returns true if there is room for @bytes more of what @need tells; where there is none that is
 * counted as a refusal. Whoever needs several pieces asks before for all of them, rather than
 * take some for nothing. Any context.
 */
bool fabstat_memory_has_room(size_t bytes, enum fabstat_need need)
{
	u64 limit = fabstat_memory_limit();

	if (need == FABSTAT_HISTOGRAM)
		limit = fabstat_ceiling_of_histograms(limit);
	if (fabstat_memory_used() + bytes <= limit)
		return true;
	refuse_at_ceiling();
	return false;
}

/* Returns @bytes of zeroed memory, or NULL. Any context. */
void *fabstat_alloc(size_t bytes, enum fabstat_need need)
{
	void *memory;

	/* The slab may give more than it is asked for. */
	if (!fabstat_memory_has_room(roundup_pow_of_two(bytes), need))
		return NULL;
	memory = memory_take(bytes);
	if (!memory) {
		atomic64_inc(&refused);
		return NULL;
	}
	/* Another CPU may have been faster. */
	if (atomic64_add_return(ksize(memory), &used) <= fabstat_memory_limit())
		return memory;
	atomic64_sub(ksize(memory), &used);
	memory_give(memory);
	refuse_at_ceiling();
	return NULL;
}

/* Takes @memory off the account; its owner frees it. */
void fabstat_uncharge(const void *memory)
{
	atomic64_sub(ksize(memory), &used);
}

/* Frees @memory of fabstat_alloc(). NULL is fine. Any context. */
void fabstat_free(void *memory)
{
	if (!memory)
		return;
	fabstat_uncharge(memory);
	memory_give(memory);
}
