/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The module's clock: CLOCK_MONOTONIC_RAW, read the cheapest way that is exact.
 *
 * Two calls of ktime_get_ns() a request would cost more than everything else the module does.
 * While the kernel's own timekeeper runs on the CPU's cycle counter (the TSC), a tick is one
 * count of it, and reading it is one instruction; only what is recorded is converted to ns.
 * Otherwise a tick is one ns of the timekeeper. The kernel stops using a counter that
 * misbehaves, and after a suspend the counter may hold any value; main.c notices either within a
 * second (fabstat_clock_lost()), and some seconds later that it is to be had again.
 */
#ifndef FABSTAT_CLOCK_H
#define FABSTAT_CLOCK_H

#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/timekeeping.h>

#include "compat.h"

#define FABSTAT_CLOCK_SHIFT	24

struct fabstat_clock {
	u32 mult;		/* ns per tick << FABSTAT_CLOCK_SHIFT */
	bool counter;		/* ticks are the cycle counter's */
	u8 changes;		/* clock source changes seen when it was chosen */
	u64 offset_ns;		/* CLOCK_MONOTONIC_RAW at tick 0 */
	u64 seen_cycles;	/* the counter, and CLOCK_MONOTONIC_RAW, at the last look */
	u64 seen_ns;
};

extern struct fabstat_clock fabstat_clock;

/* Returns the time in ticks; only while fabstat_clock.counter is set. Any context. */
static __always_inline u64 fabstat_ticks_fast(void)
{
	return fabstat_read_counter();
}

/* Returns the time in ticks. Any context. */
static inline u64 fabstat_ticks(void)
{
	return likely(fabstat_clock.counter) ? fabstat_ticks_fast() : ktime_get_raw_ns();
}

/* Returns @ticks below 2^32 in ns, less than 2^40. */
static __always_inline u64 fabstat_few_ticks_to_ns(u64 ticks)
{
	return (ticks * fabstat_clock.mult) >> FABSTAT_CLOCK_SHIFT;
}

/* Returns @ticks in ns. */
static inline u64 fabstat_ticks_to_ns(u64 ticks)
{
	return mul_u64_u32_shr(ticks, fabstat_clock.mult, FABSTAT_CLOCK_SHIFT);
}

/* Returns the time from @from to @to; 0 if the clock of another CPU is a moment behind. */
static inline u64 fabstat_elapsed(u64 from, u64 to)
{
	return (s64)(to - from) > 0 ? to - from : 0;
}

/* Returns CLOCK_MONOTONIC_RAW at @ticks, in ns. */
static inline u64 fabstat_time_ns(u64 ticks)
{
	return fabstat_clock.offset_ns + fabstat_ticks_to_ns(ticks);
}

void fabstat_clock_init(void);
bool fabstat_clock_lost(void);
bool fabstat_clock_found(void);
void fabstat_clock_fall_back(void);
u64 fabstat_clock_modulus_ns(void);

#endif
