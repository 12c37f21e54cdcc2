// SPDX-License-Identifier: GPL-2.0
/*
 * Whether there is room for one device more, or for counters of one on one CPU more, and the
 * requests of those that there is none for.
 *
 * At the memory ceiling this is run through by each such request: it writes nothing that CPUs
 * share.
 */
#include <linux/jiffies.h>
#include <linux/log2.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <asm/local64.h>

#include "counters.h"
#include "device.h"
#include "memory.h"

/* Requests: no memory, the queue is dying or its id too large. */
static DEFINE_PER_CPU(local64_t, untracked);

/* Returns what a device of @q takes, and a set. */
static size_t bytes_of_device(const struct request_queue *q)
{
	unsigned int nr_tables = fabstat_tables_of(q->tag_set);
	unsigned int nr_depths = fabstat_limit_is_one(q) ? 1 : nr_tables;
	struct fabstat_device *dev;
	struct fabstat_set *set;

	return roundup_pow_of_two(struct_size(dev, cpu, nr_cpu_ids)) +
	       roundup_pow_of_two(struct_size(set, table, nr_tables)) +
	       roundup_pow_of_two(nr_depths * sizeof(*dev->depth)) +
	       roundup_pow_of_two(nr_tables * sizeof(*dev->depth_of)) +
	       roundup_pow_of_two(nr_tables * sizeof(*dev->sched));
}

/*
 * In jiffies, how long nobody looks for room where there was none; 0: there always was. Counters
 * are less than a device: for them there may be some where there is none for that.
 */
static unsigned long no_device_until __read_mostly, no_counters_until __read_mostly;

static bool refused_lately(const unsigned long *until)
{
	unsigned long then = READ_ONCE(*until);

	return unlikely(then) && time_before(jiffies, then);
}

static bool has_room(size_t bytes, unsigned long *until)
{
	if (refused_lately(until))
		return false;
	if (fabstat_memory_has_room(bytes, FABSTAT_BOOKS))
		return true;
	WRITE_ONCE(*until, (jiffies + HZ / 10) | 1);
	return false;
}

/*
 * Returns true if there is room for a device of @q. Pieces of it would be taken and given back by
 * each of its requests; and each need not look whether there is some now.
 */
bool fabstat_room_for_device(const struct request_queue *q)
{
	return has_room(bytes_of_device(q), &no_device_until);
}

/* Returns true if there is room for a CPU's counters of a device. */
bool fabstat_room_for_counters(void)
{
	return has_room(roundup_pow_of_two(sizeof(struct fabstat_cpu)), &no_counters_until);
}

/*
 * Returns true if @rq, which is counted then, has no device, and a moment ago there was no room for
 * one: nothing more is to be done about it. Preemption is off.
 */
notrace bool fabstat_goes_untracked(const struct request *rq)
{
	unsigned int id = rq->q->id;

	if (!refused_lately(&no_device_until) || id >= FABSTAT_MAX_QUEUES || fabstat_device(id))
		return false;
	fabstat_count_untracked();
	return true;
}

/* Counts a request, issued or completed, that is given to no device. Preemption is off. */
void fabstat_count_untracked(void)
{
	local64_inc(this_cpu_ptr(&untracked));
}

/* Returns how many requests were given to no device, issues and completions each. */
u64 fabstat_untracked(void)
{
	unsigned int cpu;
	u64 found = 0;

	for_each_possible_cpu(cpu)
		found += local64_read(per_cpu_ptr(&untracked, cpu));
	return found;
}
