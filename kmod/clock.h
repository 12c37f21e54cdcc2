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

#include <linux/jump_label.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/percpu.h>
#include <linux/timekeeping.h>

#include "compat.h"

#define FABSTAT_CLOCK_SHIFT	24

struct fabstat_clock {
	u32 mult;		/* ns per tick << FABSTAT_CLOCK_SHIFT */
	bool counter;		/* ticks are the cycle counter's */
	u8 changes;		/* clock source changes seen when it was chosen */
	u64 look_ticks;		/* how long a look at CLOCK_MONOTONIC is good for */
	u32 stamp_mult;		/* mult for FABSTAT_STAMP_SHIFT */
	u64 offset_ns;		/* CLOCK_MONOTONIC_RAW at tick 0 */
	u64 seen_cycles;	/* the counter, and CLOCK_MONOTONIC_RAW, at the last look */
	u64 seen_ns;
};

extern struct fabstat_clock fabstat_clock;
DECLARE_STATIC_KEY_TRUE(fabstat_timekeeper);	/* unless fabstat_clock.counter */

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

/*
 * What leads from ticks to CLOCK_MONOTONIC, in which the block layer stamps requests. To ask the
 * timekeeper each time would cost a fifth of what a request may. Each CPU asks again when its last
 * look is 0.4 ms old: meanwhile the two clocks part by 200 ns if NTP corrects one by the 500 ppm
 * that it may at most, by a tenth of that as a rule, and by 15 ns because stamp_mult is short.
 *
 * It is kept in ns << FABSTAT_STAMP_SHIFT, of which the lower 64 bits are right whatever overflows:
 * 48 bits of ns, so that times of up to 39 hours follow from two stamps.
 */
struct fabstat_looked {
	u64 ticks;		/* of the last look; 0: none */
	u64 offset;		/* the stamp of tick 0, had the clock always run as it does now */
};

DECLARE_PER_CPU(struct fabstat_looked, fabstat_looked);
u64 fabstat_monotonic_look(u64 ticks);

/*
 * Finds CLOCK_MONOTONIC as a stamp at @ticks, which are now's and the counter's, without a call.
 * Returns false if it is time for another look. Preemption is off. An interrupt that looks between
 * the two reads does no harm: a newer offset is a better one.
 */
static __always_inline bool fabstat_monotonic_find(u64 ticks, u64 *stamp)
{
	u64 looked = this_cpu_read(fabstat_looked.ticks);

	if (unlikely(ticks - looked >= fabstat_clock.look_ticks))
		return false;
	*stamp = this_cpu_read(fabstat_looked.offset) + ticks * fabstat_clock.stamp_mult;
	return true;
}

/* Returns CLOCK_MONOTONIC as a stamp at @ticks, which are now's. Preemption is off. */
static inline u64 fabstat_monotonic(u64 ticks)
{
	u64 stamp;

	return fabstat_monotonic_find(ticks, &stamp) ? stamp : fabstat_monotonic_look(ticks);
}

void fabstat_clock_init(void);
bool fabstat_clock_lost(void);
bool fabstat_clock_found(void);
void fabstat_clock_fall_back(void);
u64 fabstat_clock_modulus_ns(void);

#endif
