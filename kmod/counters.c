// SPDX-License-Identifier: GPL-2.0
/* Histograms are allocated on first use, and freed together with the counters they belong to. */
#include <linux/atomic.h>

#include "counters.h"
#include "memory.h"

/* Of the 20 that one device could have on one CPU: with the counters these are 64 KiB. */
#define MAX_HISTOGRAMS	15

static unsigned int nr_histograms(const struct fabstat_cpu *cpu)
{
	unsigned int op, kind, nr = 0;

	for (op = 0; op < FABSTAT_OPS; op++)
		for (kind = 0; kind < FABSTAT_KINDS; kind++)
			nr += !!cpu->histogram[op][kind];
	return nr;
}

/*
 * Returns @cpu's histogram for @op and @kind, new or made meanwhile by an interrupt on this CPU;
 * NULL, counted, if it may have no more. Called from probes.
 */
struct fabstat_histogram *fabstat_histogram_create(struct fabstat_cpu *cpu, unsigned int op,
						   enum fabstat_kind kind)
{
	struct fabstat_histogram *histogram = NULL, *winner;

	if (nr_histograms(cpu) < MAX_HISTOGRAMS)
		histogram = fabstat_alloc(sizeof(*histogram), FABSTAT_HISTOGRAM);
	if (!histogram) {
		fabstat_count(cpu, FABSTAT_NO_HISTOGRAM);
		return NULL;
	}
	winner = cmpxchg(&cpu->histogram[op][kind], NULL, histogram);
	if (!winner)
		return histogram;
	fabstat_free(histogram);
	return winner;
}

/* Frees @cpu with its histograms. NULL is fine. */
void fabstat_cpu_free(struct fabstat_cpu *cpu)
{
	unsigned int op, kind;

	if (!cpu)
		return;
	for (op = 0; op < FABSTAT_OPS; op++)
		for (kind = 0; kind < FABSTAT_KINDS; kind++)
			fabstat_free(cpu->histogram[op][kind]);
	fabstat_free(cpu);
}
