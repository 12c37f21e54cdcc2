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
	/* The counter may be read out of order; full barriers keep the three reads in order. */
	mb();
	*changes = fabstat_read_timekeeper(cycles, raw_ns);
	mb();
	after = get_cycles();
	return before && before <= *cycles && *cycles <= after;
}

/* Chooses the clock. May sleep. */
void fabstat_clock_init(void)
{
	u64 from_cycles, from_ns, to_cycles, to_ns;
	u8 from_changes, to_changes;

	if (!counter_is_timekeeper(&from_cycles, &from_ns, &from_changes))
		return;
	msleep(CALIBRATION_MS);
	if (!counter_is_timekeeper(&to_cycles, &to_ns, &to_changes))
		return;
	if (from_changes != to_changes || to_cycles == from_cycles)
		return;
	fabstat_clock.base_cycles = to_cycles;
	fabstat_clock.base_ns = to_ns;
	fabstat_clock.changes = to_changes;
	/* At most a few hundred ms << 32: fits in 64 bits. */
	fabstat_clock.mult = div64_u64((to_ns - from_ns) << FABSTAT_CLOCK_SHIFT, to_cycles - from_cycles);
}

/* Goes over to the timekeeper's own reading when its clock source has changed since load. */
void fabstat_clock_check(void)
{
	u64 cycles, raw_ns;

	if (fabstat_clock.mult &&
	    fabstat_read_timekeeper(&cycles, &raw_ns) != fabstat_clock.changes) {
		WRITE_ONCE(fabstat_clock.mult, 0);
		pr_info(KBUILD_MODNAME ": clock source changed, timing with CLOCK_MONOTONIC_RAW\n");
	}
}

const char *fabstat_clock_name(void)
{
	return fabstat_clock.mult ? "counter" : "timekeeper";
}
