// SPDX-License-Identifier: GPL-2.0
/* Choice and supervision of the clock; see clock.h. */
#include <linux/delay.h>

#include "clock.h"
#include "compat.h"

/*
 * Long enough that rounding both ends to 1 ns leaves an error below 1 ppm; the calibration is
 * not a measurement, both ends come from the timekeeper's own arithmetic.
 */
#define CALIBRATION_MS	10

struct fabstat_clock fabstat_clock;

/* Returns true when the timekeeper's counter is the one that get_cycles() reads. */
static bool counter_is_timekeeper(u64 *cycles, u64 *raw_ns, u8 *changes)
{
	u64 before, after;

	before = get_cycles();
	mb();	/* the counter may be read out of order */
	*changes = fabstat_read_timekeeper(cycles, raw_ns);
	mb();	/* as above */
	after = get_cycles();
	return before && before <= *cycles && *cycles <= after;
}

/* Ticks become ns of the timekeeper. Nothing that was timed in other ticks may be left. */
void fabstat_clock_fall_back(void)
{
	fabstat_clock.counter = false;
	fabstat_clock.mult = 1 << FABSTAT_CLOCK_SHIFT;
	fabstat_clock.offset_ns = 0;
}

/* Chooses the clock. May sleep. */
void fabstat_clock_init(void)
{
	u64 from_cycles, from_ns, to_cycles, to_ns, mult;
	u8 from_changes, to_changes;

	fabstat_clock_fall_back();
	if (!counter_is_timekeeper(&from_cycles, &from_ns, &from_changes))
		return;
	msleep(CALIBRATION_MS);
	if (!counter_is_timekeeper(&to_cycles, &to_ns, &to_changes))
		return;
	if (from_changes != to_changes || to_cycles == from_cycles)
		return;
	mult = div64_u64((to_ns - from_ns) << FABSTAT_CLOCK_SHIFT, to_cycles - from_cycles);
	/* A counter below 4 MHz is not worth having, and its multiplier would not fit. */
	if (!mult || mult > U32_MAX)
		return;
	fabstat_clock.mult = mult;
	fabstat_clock.offset_ns = to_ns - fabstat_ticks_to_ns(to_cycles);
	fabstat_clock.changes = to_changes;
	fabstat_clock.counter = true;
}

/* Returns true when the counter is in use and the timekeeper has another clock source by now. */
bool fabstat_clock_lost(void)
{
	u64 cycles, raw_ns;

	return fabstat_clock.counter &&
	       fabstat_read_timekeeper(&cycles, &raw_ns) != fabstat_clock.changes;
}

/* Returns what fabstat_ticks_to_ns() of a sum of ticks wraps at; 0 stands for 2^64. */
u64 fabstat_clock_modulus_ns(void)
{
	if (fabstat_clock.mult >= 1 << FABSTAT_CLOCK_SHIFT)
		return 0;
	return fabstat_ticks_to_ns(U64_MAX) + 1;
}
