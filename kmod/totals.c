// SPDX-License-Identifier: GPL-2.0
/*
 * Adds up the counters of all CPUs while requests come and go.
 *
 * Each CPU's counters are consistent, or known not to be (see struct fabstat_cpu). A request that
 * is issued on a CPU that has been added already, and completed on one that has not, is half in
 * the sum. Counters do not suffer from it; the integral of the depth is off by at most the time
 * that adding up took, for each such request. It takes microseconds, unless a hypervisor stops
 * the reader or a writer in the middle: then it is done again.
 */
#include <linux/delay.h>
#include <linux/preempt.h>
#include <linux/string.h>

#include "clock.h"
#include "counters.h"
#include "device.h"
#include "place.h"
#include "totals.h"

/* A reader that finds a CPU in the middle of an event looks again up to this many times. */
#define MAX_LOOKS	100

/* A sum that took longer than this, or found such a CPU, is made again up to MAX_SUMS times. */
#define MAX_SUM_NS	(200 * NSEC_PER_USEC)
#define MAX_SUMS	20

/* Copies @cpu's counters; returns false if an event was being written meanwhile. */
static bool copy_cpu(const struct fabstat_cpu *cpu, struct fabstat_totals *copy)
{
	u64 begun = 0;
	unsigned int i, j;

	copy->events = local64_read(&cpu->events);
	smp_rmb();	/* pairs with the writers' smp_wmb() before events */
	for (i = 0; i < FABSTAT_OPS; i++) {
		copy->bytes[i] = local64_read(&cpu->bytes[i]);
		copy->device_ns[i] = local64_read(&cpu->device_ns[i]);
		copy->again_ns[i] = local64_read(&cpu->again_ns[i]);
		copy->refused_ns[i] = local64_read(&cpu->refused_ns[i]);
		copy->wait_ns[i] = local64_read(&cpu->wait_ns[i]);
		copy->refused[i] = local64_read(&cpu->refused[i]);
		for (j = 0; j < FABSTAT_ERRORS; j++)
			copy->errors[i][j] = local64_read(&cpu->errors[i][j]);
	}
	copy->depth_ticks = local64_read(&cpu->depth_ticks);
	for (i = 0; i < FABSTAT_EVENTS; i++)
		copy->rare[i] = local64_read(&cpu->rare[i]);
	smp_rmb();	/* pairs with the writers' smp_wmb() after issued, completed, sent_back */
	for (i = 0; i < FABSTAT_OPS; i++) {
		copy->issued[i] = local64_read(&cpu->issued[i]);
		copy->completed[i] = local64_read(&cpu->completed[i]);
		copy->sent_back[i] = local64_read(&cpu->sent_back[i]);
		begun += copy->issued[i] + copy->completed[i] + copy->sent_back[i];
	}
	return begun == copy->events;
}

static u64 nr_events(const struct fabstat_device *dev)
{
	u64 events = 0;
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const struct fabstat_cpu *counters = READ_ONCE(dev->cpu[cpu]);

		if (counters)
			events += local64_read(&counters->events);
	}
	return events;
}

/* Adds up once; returns how long it took, in ns. */
static u64 sum_once(struct fabstat_device *dev, struct fabstat_sum *sum)
{
	static struct fabstat_totals part;	/* fabstat_lock */
	u64 *total = (u64 *)&sum->totals;
	unsigned int cpu, i, looks;
	u64 from, took_ns;
	bool whole;

	memset(sum, 0, sizeof(*sum));
	preempt_disable();
	from = fabstat_ticks();
	/* What is forgotten from here on counts as in flight until the sum's end, microseconds. */
	sum->forgotten = fabstat_forgotten(dev, &sum->forgotten_ticks);
	for_each_possible_cpu(cpu) {
		const struct fabstat_cpu *counters = READ_ONCE(dev->cpu[cpu]);

		if (!counters)
			continue;
		whole = copy_cpu(counters, &part);
		for (looks = 1; !whole && looks < MAX_LOOKS; looks++) {
			cpu_relax();
			whole = copy_cpu(counters, &part);
		}
		sum->torn += !whole;
		for (i = 0; i < sizeof(part) / sizeof(u64); i++)
			total[i] += ((u64 *)&part)[i];
	}
	sum->now = fabstat_ticks();
	took_ns = fabstat_ticks_to_ns(sum->now - from);
	sum->depth_error_ns = (nr_events(dev) - sum->totals.events) * took_ns;
	preempt_enable();
	return took_ns;
}

/* Adds up the counters of @dev on all CPUs. May sleep. fabstat_lock. */
void fabstat_sum(struct fabstat_device *dev, struct fabstat_sum *sum)
{
	unsigned int sums = 1;

	while ((sum_once(dev, sum) > MAX_SUM_NS || sum->torn) && sums++ < MAX_SUMS)
		usleep_range(200, 500);
}
