// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of the pure parts, as the kernel's own compiler, options and sanitizers build them.
 *
 * A module of its own, made for kernels with KUnit when asked for (Kbuild). It needs nothing of
 * fabstat.ko and may be loaded beside it or without it.
 */
#include <kunit/test.h>
#include <linux/blk-mq.h>
#include <linux/module.h>

/* In a function: each of KUnit's own macros takes room on the stack of its caller. */
static noinline void report(struct kunit *test, int line, const char *condition, u64 value)
{
	KUNIT_FAIL(test, "line %d: %s does not hold for %llu\n", line, condition, value);
}

#define CHECK(condition, value)							\
	do {									\
		if (!(condition))						\
			report(test, __LINE__, #condition, value);		\
	} while (0)

#include "checks.h"
#include "clock.h"
#include "compat.h"
#include "slots.h"

/* The clock of the tests; fabstat.ko has its own. */
struct fabstat_clock fabstat_clock;

/* What depths do is simple enough to be had whole. */
#include "depth.c"

static void check_elapsed(struct kunit *test)
{
	u64 now = 1ULL << 40;
	u64 step;

	CHECK(fabstat_elapsed(now, now) == 0, now);
	for (step = 1; step < now; step *= 2) {
		CHECK(fabstat_elapsed(now, now + step) == step, step);
		/* Another CPU's clock may be behind. */
		CHECK(fabstat_elapsed(now, now - step) == 0, step);
		/* A counter may pass its end. */
		CHECK(fabstat_elapsed(-step, step) == 2 * step, step);
	}
}

/* Few ticks are converted as many are, at 62 MHz to 16 GHz. */
static void check_ticks(struct kunit *test)
{
	u64 ticks;
	u32 mult;

	for (mult = 1 << 20; mult <= 1 << 28; mult *= 2) {
		fabstat_clock.mult = mult;
		for (ticks = 1; ticks <= U32_MAX; ticks = 3 * ticks + 1) {
			CHECK(fabstat_few_ticks_to_ns(ticks) == fabstat_ticks_to_ns(ticks), ticks);
			CHECK(fabstat_ticks_to_ns(ticks) ==
			      ticks * mult / (1 << FABSTAT_CLOCK_SHIFT), ticks);
		}
		CHECK(fabstat_few_ticks_to_ns(U32_MAX) < 1ULL << 40, mult);
		CHECK(fabstat_ticks_to_ns(1ULL << FABSTAT_CLOCK_SHIFT << 24) == (u64)mult << 24,
		      mult);
	}
}

static void check_slots(struct kunit *test)
{
	u64 ticks = 12345;

	CHECK(!fabstat_issued_at(FABSTAT_IDLE), 0);
	CHECK(!fabstat_issued_at(FABSTAT_PAST), 0);
	CHECK(fabstat_issued_at(ticks) == ticks, ticks);
	CHECK(fabstat_issued_at(ticks | FABSTAT_PAST) == ticks, ticks);
	/* What the fast path of a completion relies on: such slots look issued too long ago. */
	CHECK((ticks - FABSTAT_IDLE) >> 32, ticks);
	CHECK((ticks - (ticks | FABSTAT_PAST)) >> 32, ticks);
}

static void check_wait(struct kunit *test)
{
	struct request *rq = kunit_kzalloc(test, sizeof(*rq), GFP_KERNEL);
	u64 now = NSEC_PER_SEC;
	u64 stamp = now << FABSTAT_STAMP_SHIFT;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, rq);
	CHECK(fabstat_waited_ns(rq, stamp) == FABSTAT_UNKNOWN, now);
	rq->start_time_ns = now - 5;
	CHECK(fabstat_waited_ns(rq, stamp) == 5, now);
	/* The two clocks may differ by a moment. */
	CHECK(fabstat_waited_ns(rq, (now - 8) << FABSTAT_STAMP_SHIFT) == -3, now);
}

static void check_depth(struct kunit *test)
{
	struct fabstat_depth *depth = kunit_kzalloc(test, sizeof(*depth), GFP_KERNEL);
	unsigned short limit = 3;
	unsigned int i;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, depth);
	fabstat_clock.mult = 1 << FABSTAT_CLOCK_SHIFT;
	depth->limit_now = &limit;
	for (i = 1; i <= 3; i++) {
		fabstat_depth_enter(depth, 100 * i);
		CHECK(depth->highest == i && depth->limit == 3, i);
	}
	CHECK(depth->limit_since == 300, depth->limit_since);
	/* Given more room, it has it from the next request on. */
	limit = 5;
	fabstat_depth_leave(depth, 1000);
	CHECK(!depth->limit_since && atomic64_read(&depth->at_limit_ns) == 700, 700);
	fabstat_depth_enter(depth, 1100);
	CHECK(depth->limit == 5 && !depth->limit_since && depth->highest == 3, 5);
	for (i = 0; i < 3; i++)
		fabstat_depth_leave(depth, 2000);
	CHECK(!atomic_read(&depth->now) && atomic64_read(&depth->at_limit_ns) == 700, 700);
	/* Another CPU's request left when this one had reached the limit and not said so yet. */
	atomic_set(&depth->now, 4);
	fabstat_depth_peak(depth, 5, 5, 3000);
	CHECK(!depth->limit_since && atomic64_read(&depth->at_limit_ns) == 700, 3000);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(check_bounds),
	KUNIT_CASE(check_random_times),
	KUNIT_CASE(check_classes),
	KUNIT_CASE(check_commands),
	KUNIT_CASE(check_nvme),
	KUNIT_CASE(check_ceiling),
	KUNIT_CASE(check_elapsed),
	KUNIT_CASE(check_ticks),
	KUNIT_CASE(check_slots),
	KUNIT_CASE(check_wait),
	KUNIT_CASE(check_depth),
	{}
};

static struct kunit_suite suite = { .name = "fabstat", .test_cases = cases };

kunit_test_suite(suite);

MODULE_DESCRIPTION("Tests of fabstat");
MODULE_LICENSE("GPL");
