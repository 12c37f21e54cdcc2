/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The module's clock: CLOCK_MONOTONIC_RAW in ns, read the cheapest way that is exact.
 *
 * Two ktime_get_ns() a request cost more than everything else the module does. While the
 * kernel's own timekeeper runs on the CPU's cycle counter (the TSC), the same time is one
 * counter read, one multiplication and two additions. The kernel checks the counter all the
 * time and drops it as clock source when it misbehaves; the module follows within a second.
 */
#ifndef FABSTAT_CLOCK_H
#define FABSTAT_CLOCK_H

#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/timekeeping.h>
#include <linux/timex.h>

#define FABSTAT_CLOCK_SHIFT	32

struct fabstat_clock {
	u64 mult;		/* ns per cycle << FABSTAT_CLOCK_SHIFT; 0: ask the timekeeper */
	u64 base_cycles;	/* counter and time at load */
	u64 base_ns;
	u8 changes;		/* clock source changes seen at load */
};

extern struct fabstat_clock fabstat_clock;

/* Returns the time in ns. Any context. */
static __always_inline u64 fabstat_now(void)
{
	u64 mult = READ_ONCE(fabstat_clock.mult);

	if (likely(mult))
		return fabstat_clock.base_ns +
		       mul_u64_u64_shr((u64)get_cycles() - fabstat_clock.base_cycles, mult,
				       FABSTAT_CLOCK_SHIFT);
	return ktime_get_raw_ns();
}

void fabstat_clock_init(void);
void fabstat_clock_check(void);
const char *fabstat_clock_name(void);

#endif
