/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One device's counters on one CPU.
 *
 * Only their own CPU writes them, with single instructions that neither an interrupt nor
 * preemption can split (local64_t); readers add up all CPUs.
 */
#ifndef FABSTAT_COUNTERS_H
#define FABSTAT_COUNTERS_H

#include <asm/local64.h>

#include "classify.h"
#include "histogram.h"

/* The times that are recorded of a request. */
enum fabstat_kind {
	FABSTAT_DIRECT,		/* issue to completion, issued once */
	FABSTAT_AGAIN_DEVICE,	/* last issue to completion, issued more than once */
	FABSTAT_AGAIN_TOTAL,	/* first issue to completion, issued more than once */
	FABSTAT_REFUSED,	/* first refusal to the issue that went through */
	/* on demand */
	FABSTAT_WAIT,		/* made to first issue */
	FABSTAT_SIZES,		/* last issue to completion, one for each class of sizes */
	FABSTAT_KINDS = FABSTAT_SIZES + FABSTAT_SIZE_CLASSES
};

struct fabstat_histogram {
	local64_t bucket[FABSTAT_BUCKETS];
};

/*
 * A reader obtains a consistent set from a running CPU much as with a seqcount: an event
 * writes issued, completed or sent_back first and events last; the set is consistent when
 * they agree.
 */
struct fabstat_cpu {
	local64_t issued[FABSTAT_OPS];
	local64_t completed[FABSTAT_OPS];
	local64_t sent_back[FABSTAT_OPS];	/* issued, then requeued */
	local64_t bytes[FABSTAT_OPS];		/* completed */
	local64_t device_ns[FABSTAT_OPS];	/* sum of last issue to completion */
	local64_t again_ns[FABSTAT_OPS];	/* sum of first to last issue */
	local64_t refused_ns[FABSTAT_OPS];	/* sum of first refusal to last issue */
	local64_t wait_ns[FABSTAT_OPS];		/* sum of made to first issue, detail only */
	local64_t refused[FABSTAT_OPS];		/* requests completed after a refusal */
	local64_t errors[FABSTAT_OPS][FABSTAT_ERRORS];
	/*
	 * Integral of the number in flight over time: each issue subtracts the time, each
	 * completion adds it, and the reader adds (in flight) * now. In ticks modulo 2^64.
	 */
	local64_t depth_ticks;
	local64_t events;
	local64_t rare[FABSTAT_EVENTS];
	struct fabstat_histogram *histogram[FABSTAT_KINDS][FABSTAT_OPS];
};

/* Counts @event in @cpu, this CPU's counters. Preemption is off. */
static inline void fabstat_count(struct fabstat_cpu *cpu, enum fabstat_event event)
{
	local64_inc(&cpu->rare[event]);
}

struct fabstat_histogram *fabstat_histogram_make(struct fabstat_histogram **place);
struct fabstat_histogram *fabstat_histogram_create(struct fabstat_cpu *cpu, unsigned int op,
						   enum fabstat_kind kind);
void fabstat_record(struct fabstat_cpu *cpu, unsigned int op, enum fabstat_kind kind, u64 ns);
int fabstat_counters_init(void);
void fabstat_counters_exit(void);
bool fabstat_histogram_spills(const struct fabstat_histogram *histogram, unsigned int cpu);
void fabstat_histogram_retry(struct fabstat_histogram **place, unsigned int number);
void fabstat_cpu_retry(struct fabstat_cpu *cpu, unsigned int number);
void fabstat_cpu_free(struct fabstat_cpu *cpu, unsigned int number);

#endif
