// SPDX-License-Identifier: GPL-2.0
/* Choice and supervision of the clock; see clock.h. */
#include <linux/delay.h>

#include "clock.h"
#include "compat.h"

/*
 * Long enough to keep the error of rounding both ends to 1 ns below 1 ppm. There is no other
 * error: nothing is measured, both ends come from the timekeeper's own arithmetic.
 */
#define CALIBRATION_MS	10

/*
 * Between two looks the counter and the timekeeper, which are read together, drift apart by the
 * rounding of the multiplier. When the machine is suspended or moved to another host, by more.
 */
#define TOLERANCE_NS	NSEC_PER_MSEC
#define TOLERANCE_SHIFT	10	/* and 0.1 % of the time passed */

/* So many looks in a row must find a counter that is to be used again. */
#define LOOKS	3

/* A look at CLOCK_MONOTONIC is good for so long, unless it took a 256th of that: an interrupt. */
#define LOOK_NS		(400 * NSEC_PER_USEC)
#define INTERRUPTED_SHIFT	8

/* By so much stamp_mult is shorter than mult. */
#define SHORTER_BY	(1U << (FABSTAT_CLOCK_SHIFT - FABSTAT_STAMP_SHIFT))

struct fabstat_clock fabstat_clock;
DEFINE_STATIC_KEY_TRUE(fabstat_timekeeper);
DEFINE_PER_CPU(struct fabstat_looked, fabstat_looked);

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

/*
 * Returns CLOCK_MONOTONIC as a stamp at @ticks, which are now's, and remembers for a while what
 * led there. Called from probes.
 */
noinline u64 fabstat_monotonic_look(u64 ticks)
{
	u64 before, took, at, offset;
	unsigned long flags;

	if (!fabstat_clock.counter)
		return ktime_get_mono_fast_ns() << FABSTAT_STAMP_SHIFT;
	local_irq_save(flags);
	before = fabstat_ticks_fast();
	offset = ktime_get_mono_fast_ns() << FABSTAT_STAMP_SHIFT;
	took = fabstat_ticks_fast() - before;
	at = before + took / 2;
	offset -= at * fabstat_clock.stamp_mult;
	if (took < fabstat_clock.look_ticks >> INTERRUPTED_SHIFT) {
		__this_cpu_write(fabstat_looked.ticks, at);
		__this_cpu_write(fabstat_looked.offset, offset);
	}
	local_irq_restore(flags);
	return offset + ticks * fabstat_clock.stamp_mult;
}

/*
 * Makes a tick one ns of the timekeeper. Nothing that was timed in other ticks may be left, and no
 * probe runs. May sleep.
 */
void fabstat_clock_fall_back(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		per_cpu_ptr(&fabstat_looked, cpu)->ticks = 0;
	fabstat_clock.counter = false;
	static_branch_enable(&fabstat_timekeeper);
	fabstat_clock.look_ticks = 0;
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
	fabstat_clock.look_ticks = ((u64)LOOK_NS << FABSTAT_CLOCK_SHIFT) / fabstat_clock.mult;
	fabstat_clock.stamp_mult = DIV_ROUND_CLOSEST(mult, SHORTER_BY);
	fabstat_clock.changes = to_changes;
	fabstat_clock.seen_cycles = to_cycles;
	fabstat_clock.seen_ns = to_ns;
	fabstat_clock.counter = true;
	static_branch_disable(&fabstat_timekeeper);
}

/*
 * Returns true when the counter is in use and the timekeeper has since changed its clock source,
 * or the two have not advanced together since the last look. One caller at a time.
 */
bool fabstat_clock_lost(void)
{
	u64 cycles, raw_ns, ticks_ns, passed_ns, apart_ns;

	if (!fabstat_clock.counter)
		return false;
	if (fabstat_read_timekeeper(&cycles, &raw_ns) != fabstat_clock.changes)
		return true;
	ticks_ns = fabstat_ticks_to_ns(cycles - fabstat_clock.seen_cycles);
	passed_ns = raw_ns - fabstat_clock.seen_ns;
	apart_ns = ticks_ns > passed_ns ? ticks_ns - passed_ns : passed_ns - ticks_ns;
	fabstat_clock.seen_cycles = cycles;
	fabstat_clock.seen_ns = raw_ns;
	return apart_ns > TOLERANCE_NS + (passed_ns >> TOLERANCE_SHIFT);
}

/*
 * Returns true when the counter is not in use, though it has been the timekeeper's at several
 * looks in a row: not while the kernel still tries one clock source after another. One caller at
 * a time.
 */
bool fabstat_clock_found(void)
{
	static unsigned int looks;
	static u8 changes;
	u64 cycles, raw_ns;
	u8 changes_now;

	bool is;

	if (fabstat_clock.counter)
		return false;
	is = counter_is_timekeeper(&cycles, &raw_ns, &changes_now) && changes_now == changes;
	changes = changes_now;
	looks = is ? looks + 1 : 0;
	if (looks < LOOKS)
		return false;
	looks = 0;
	return true;
}

/* Returns what fabstat_ticks_to_ns() of a sum of ticks wraps at; 0 stands for 2^64. */
u64 fabstat_clock_modulus_ns(void)
{
	if (fabstat_clock.mult >= 1 << FABSTAT_CLOCK_SHIFT)
		return 0;
	return fabstat_ticks_to_ns(U64_MAX) + 1;
}
