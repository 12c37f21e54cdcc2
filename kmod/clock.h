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
	u32 look_ticks;		/* how long a look at CLOCK_MONOTONIC is good for */
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
 * look is a tenth of a millisecond old: meanwhile the two clocks part by 50 ns if NTP corrects one
 * by the 500 ppm that it may at most.
 */
struct fabstat_monotonic {
	u64 ticks;		/* of the last look; 0: none */
	u64 ns;			/* CLOCK_MONOTONIC then */
};

DECLARE_PER_CPU(struct fabstat_monotonic, fabstat_monotonic);
u64 fabstat_monotonic_look(u64 ticks);

/*
 * Finds CLOCK_MONOTONIC in ns at @ticks, which are now's and the counter's, without a call. Returns
 * false if it is time for another look. Preemption is off.
 */
static __always_inline bool fabstat_monotonic_find(u64 ticks, u64 *now_ns)
{
	u64 looked = this_cpu_read(fabstat_monotonic.ticks);

	if (unlikely(ticks - looked >= fabstat_clock.look_ticks))
		return false;
	*now_ns = this_cpu_read(fabstat_monotonic.ns) + fabstat_few_ticks_to_ns(ticks - looked);
	/* An interrupt may have looked in between. */
	return likely(this_cpu_read(fabstat_monotonic.ticks) == looked);
}

/* Returns CLOCK_MONOTONIC in ns at @ticks, which are now's. Preemption is off. */
static inline u64 fabstat_monotonic_ns(u64 ticks)
{
	u64 now_ns;

	return fabstat_monotonic_find(ticks, &now_ns) ? now_ns : fabstat_monotonic_look(ticks);
}

void fabstat_clock_init(void);
bool fabstat_clock_lost(void);
bool fabstat_clock_found(void);
void fabstat_clock_fall_back(void);
u64 fabstat_clock_modulus_ns(void);

#endif
