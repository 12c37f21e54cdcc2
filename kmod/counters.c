// SPDX-License-Identifier: GPL-2.0
/*
 * Histograms are allocated on first use, and freed together with the counters they belong to.
 *
 * Where there is no memory for one its samples spill into a histogram that all devices share on
 * that CPU and nobody reads: the fast path stays as short as ever, and readers tell what is
 * missing from the difference to what was completed.
 */
#include <linux/atomic.h>
#include <linux/percpu.h>

#include "counters.h"
#include "memory.h"

/* Of its own: what modules have of per-CPU memory is short. */
static struct fabstat_histogram __percpu *spilled;

int fabstat_counters_init(void)
{
	spilled = alloc_percpu(struct fabstat_histogram);
	return spilled ? 0 : -ENOMEM;
}

void fabstat_counters_exit(void)
{
	free_percpu(spilled);
}

/* Returns true if @histogram stands for one that CPU @cpu has no memory for. */
bool fabstat_histogram_spills(const struct fabstat_histogram *histogram, unsigned int cpu)
{
	return histogram == per_cpu_ptr(spilled, cpu);
}

/*
 * Returns the histogram at @place, which is of this CPU's counters, new or made meanwhile by an
 * interrupt on this CPU; without memory the one that samples spill into. Called from probes.
 */
struct fabstat_histogram *fabstat_histogram_make(struct fabstat_histogram **place)
{
	struct fabstat_histogram *histogram, *winner;

	histogram = fabstat_alloc(sizeof(*histogram), FABSTAT_HISTOGRAM);
	if (!histogram)
		histogram = this_cpu_ptr(spilled);
	winner = cmpxchg(place, NULL, histogram);
	if (!winner)
		return histogram;
	if (histogram != this_cpu_ptr(spilled))
		fabstat_free(histogram);
	return winner;
}

/* Returns @cpu's histogram for @op and @kind, where there is none yet. Called from probes. */
struct fabstat_histogram *fabstat_histogram_create(struct fabstat_cpu *cpu, unsigned int op,
						   enum fabstat_kind kind)
{
	struct fabstat_histogram *histogram;

	histogram = fabstat_histogram_make(&cpu->histogram[kind][op]);
	if (histogram == this_cpu_ptr(spilled))
		fabstat_count(cpu, FABSTAT_NO_HISTOGRAM);
	return histogram;
}

/* Enters @ns in @cpu's histogram for @op and @kind. Called from probes. */
void fabstat_record(struct fabstat_cpu *cpu, unsigned int op, enum fabstat_kind kind, u64 ns)
{
	struct fabstat_histogram *histogram = READ_ONCE(cpu->histogram[kind][op]);

	if (!histogram)
		histogram = fabstat_histogram_create(cpu, op, kind);
	local64_inc(&histogram->bucket[fabstat_bucket(ns)]);
}

/* Lets the histogram at @place, of CPU @number, be asked for again if it was refused. */
void fabstat_histogram_retry(struct fabstat_histogram **place, unsigned int number)
{
	struct fabstat_histogram *spill = per_cpu_ptr(spilled, number);

	if (READ_ONCE(*place) == spill)
		cmpxchg(place, spill, NULL);
}

/* Lets @cpu, the counters of CPU @number, ask again for the histograms that were refused. */
void fabstat_cpu_retry(struct fabstat_cpu *cpu, unsigned int number)
{
	unsigned int op, kind;

	for (op = 0; op < FABSTAT_OPS; op++)
		for (kind = 0; kind < FABSTAT_KINDS; kind++)
			fabstat_histogram_retry(&cpu->histogram[kind][op], number);
}

/* Frees @cpu, the counters of CPU @number, with its histograms. NULL is fine. */
void fabstat_cpu_free(struct fabstat_cpu *cpu, unsigned int number)
{
	unsigned int op, kind;

	if (!cpu)
		return;
	for (op = 0; op < FABSTAT_OPS; op++)
		for (kind = 0; kind < FABSTAT_KINDS; kind++)
			if (!fabstat_histogram_spills(cpu->histogram[kind][op], number))
				fabstat_free(cpu->histogram[kind][op]);
	fabstat_free(cpu);
}
