// SPDX-License-Identifier: GPL-2.0
/*
 * The module's memory, under one ceiling.
 *
 * Everything is allocated from within probes, on first use. At the ceiling the module goes on
 * with less: first without further histograms, so that the books of new devices still fit, then
 * without new devices. Both are counted.
 */
#include <linux/atomic.h>
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
	return true;
}

static void *take(size_t bytes)
{
#ifdef CONFIG_PREEMPT_RT
	return fabstat_reserve_take(bytes);
#else
	/* Probes run where memory is being written out to be freed: its reserves are not ours. */
	return kzalloc(bytes, GFP_NOWAIT | __GFP_NOWARN | __GFP_NOMEMALLOC);
#endif
}

static void give(void *memory)
{
#ifdef CONFIG_PREEMPT_RT
	if (!preemptible()) {
		fabstat_reserve_give(memory);
		return;
	}
#endif
	kfree(memory);
}

/* Returns @bytes of zeroed memory, or NULL. Any context. */
void *fabstat_alloc(size_t bytes, enum fabstat_need need)
{
	u64 limit = fabstat_memory_limit();
	void *memory = NULL;
	bool fits;

	if (need == FABSTAT_HISTOGRAM)
		limit = fabstat_ceiling_of_histograms(limit);
	fits = fabstat_memory_used() + bytes <= limit;
	if (fits)
		memory = take(bytes);
	/* The slab may give more than it was asked for, and another CPU may have been faster. */
	if (memory && atomic64_add_return(ksize(memory), &used) > limit) {
		atomic64_sub(ksize(memory), &used);
		give(memory);
		memory = NULL;
		fits = false;
	}
	if (!memory) {
		atomic64_inc(&refused);
		if (!fits)
			atomic64_inc(&ceiling_refused);
	}
	return memory;
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
	give(memory);
}
