/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What must hold of the pure headers, for whoever builds them: the unit tests do so in user space
 * (tests/unit/fabstat_header.c), KUnit in a kernel (fabstat_test.c).
 *
 * Both define ARRAY_SIZE(), and CHECK(condition, value), which reports to @test where @condition
 * is false.
 */
#ifndef FABSTAT_CHECKS_H
#define FABSTAT_CHECKS_H

#include "ceiling.h"
#include "classify.h"
#include "histogram.h"

struct kunit;

static const char *const event_names[] = FABSTAT_EVENT_NAMES;
static const char *const op_names[] = FABSTAT_OP_NAMES;
static const char *const answer_names[] = FABSTAT_ANSWER_NAMES;

/* The bucket of @ns found by looking at every bound: slow, and obviously right. */
static u32 bucket_by_search(u64 ns)
{
	u32 index = FABSTAT_BUCKETS - 1;

	while (fabstat_bucket_from(index) > ns)
		index--;
	return index;
}

static void check_time(struct kunit *test, u64 ns)
{
	u32 index = fabstat_bucket(ns);

	CHECK(index < FABSTAT_BUCKETS, ns);
	CHECK(index == bucket_by_search(ns), ns);
	if (!(ns >> FABSTAT_LIMIT_SHIFT))
		CHECK(index == fabstat_bucket_in_range(ns), ns);
}

static void check_bounds(struct kunit *test)
{
	u32 index;

	CHECK(fabstat_bucket_from(0) == 0, 0);
	CHECK(fabstat_bucket_from(FABSTAT_BUCKETS - 1) == 1ULL << FABSTAT_LIMIT_SHIFT, 0);
	for (index = 0; index + 1 < FABSTAT_BUCKETS; index++) {
		u64 from = fabstat_bucket_from(index), to = fabstat_bucket_from(index + 1);

		CHECK(from < to, index);
		/* 6.25 % from 1 us on; below that, 64 ns. */
		CHECK(from >= 1024 ? (to - from) * 16 <= from : to - from == 64, index);
		check_time(test, from);
		check_time(test, to - 1);
		CHECK(fabstat_bucket(from) == index, index);
		CHECK(fabstat_bucket(to - 1) == index, index);
	}
	check_time(test, ~0ULL);
}

static void check_random_times(struct kunit *test)
{
	u64 state = 88172645463325252ULL;
	int i;

	for (i = 0; i < 100000; i++) {
		/* xorshift64 */
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		check_time(test, state >> (state & 63));
	}
}

static void check_classes(struct kunit *test)
{
	struct fabstat_hold hold = { .device_running = true };
	unsigned int event, status;

	CHECK(ARRAY_SIZE(event_names) == FABSTAT_EVENTS, 0);
	CHECK(ARRAY_SIZE(op_names) == FABSTAT_OPS, 0);
	for (event = 0; event < FABSTAT_EVENTS; event++)
		CHECK(event_names[event], event);
	for (status = 0; status < 256; status++) {
		event = fabstat_status_event(status);
		CHECK((event == FABSTAT_TASK_SET_FULL) == (status == 0x28), status);
		CHECK((event == FABSTAT_BUSY) == (status == 0x08), status);
		CHECK(event == FABSTAT_EVENTS || status == 0x28 || status == 0x08, status);
	}
	CHECK(fabstat_driver_event(0x1055) == FABSTAT_HOST_BUSY, 0x1055);
	CHECK(fabstat_driver_event(0x1056) == FABSTAT_DEVICE_BUSY, 0x1056);
	CHECK(fabstat_driver_event(0x1057) == FABSTAT_EH_RETRY, 0x1057);
	CHECK(fabstat_driver_event(0x1058) == FABSTAT_TARGET_BUSY, 0x1058);
	CHECK(fabstat_driver_event(1) == FABSTAT_DRIVER_OTHER, 1);
	CHECK(fabstat_error_event(-ETIMEDOUT) == FABSTAT_ERROR_TIMEOUT, ETIMEDOUT);
	CHECK(fabstat_error_event(-ENOLINK) == FABSTAT_ERROR_TRANSPORT, ENOLINK);
	CHECK(fabstat_error_event(-ENODATA) == FABSTAT_ERROR_MEDIUM, ENODATA);
	CHECK(fabstat_error_event(-EIO) == FABSTAT_ERROR_IO, EIO);
	CHECK(fabstat_error_event(-1) == FABSTAT_ERROR_IO, 1);

	CHECK(fabstat_error_event(-EBADE) == FABSTAT_ERROR_RESERVATION, EBADE);
	CHECK(fabstat_error_event(-EILSEQ) == FABSTAT_ERROR_PROTECTION, EILSEQ);
	CHECK(fabstat_error_event(-ENOSPC) == FABSTAT_ERROR_SPACE, ENOSPC);

	/* The first thing that scsi_queue_rq() stumbles over is the cause. */
	CHECK(fabstat_hold_event(&hold) == FABSTAT_HELD_OTHER, 0);
	hold.target_limited = true;
	CHECK(fabstat_hold_event(&hold) == FABSTAT_HELD_TARGET, 0);
	hold.backing_off = true;
	CHECK(fabstat_hold_event(&hold) == FABSTAT_HELD_BACKOFF, 0);
	hold.recovering = true;
	CHECK(fabstat_hold_event(&hold) == FABSTAT_HELD_RECOVERY, 0);
	hold.device_running = false;
	CHECK(fabstat_hold_event(&hold) == FABSTAT_HELD_DEVICE, 0);
}

/* Opcodes by SBC-4, WRITE SAME with UNMAP set and not. */
static void check_commands(struct kunit *test)
{
	static const unsigned char kinds[FABSTAT_OPS][11] = {
		[FABSTAT_READ] = { 0x08, 0x28, 0x88, 0xa8 },
		[FABSTAT_WRITE] = { 0x0a, 0x2a, 0x2e, 0x89, 0x8a, 0x8e, 0xaa, 0xae },
		[FABSTAT_FLUSH] = { 0x35, 0x91 },
		[FABSTAT_DISCARD] = { 0x42 },
	};
	unsigned int op, opcode, answer, named = 0;
	const unsigned char *kind;

	for (op = 0; op < FABSTAT_OPS; op++) {
		for (kind = kinds[op]; *kind; kind++, named++) {
			unsigned char cdb[6] = { *kind };

			CHECK(fabstat_cdb_op(cdb) == op, *kind);
		}
	}
	for (opcode = 0; opcode < 256; opcode++) {
		unsigned char cdb[6] = { opcode, 0xf7 };

		named -= fabstat_cdb_op(cdb) != FABSTAT_OTHER;
		cdb[1] = 0x08;
		CHECK((fabstat_cdb_op(cdb) == FABSTAT_DISCARD) ==
		      (opcode == 0x41 || opcode == 0x42 || opcode == 0x93), opcode);
	}
	CHECK(!named, named);
	for (answer = 0; answer < FABSTAT_ANSWERS; answer++)
		CHECK(answer_names[answer], answer);
	CHECK(fabstat_answer(0x02) == FABSTAT_ANSWER_CHECK, 2);
	CHECK(fabstat_answer(0x08) == FABSTAT_ANSWER_BUSY, 8);
	CHECK(fabstat_answer(0x18) == FABSTAT_ANSWER_RESERVATION, 0x18);
	CHECK(fabstat_answer(0x28) == FABSTAT_ANSWER_FULL, 0x28);
	CHECK(fabstat_answer(0x40) == FABSTAT_ANSWER_ABORTED, 0x40);
	CHECK(fabstat_answer(0x30) == FABSTAT_ANSWER_OTHER, 0x30);
}

/* Statuses of NVMe, with all that the bits above may be, and what the kernel made of them. */
static void check_nvme(struct kunit *test)
{
	static const struct {
		unsigned short status;
		enum fabstat_event again, kernel, error;
	} answers[] = {
		{ 0x000, FABSTAT_EVENTS, FABSTAT_ERROR_IO, FABSTAT_ERROR_IO },
		{ 0x006, FABSTAT_EVENTS, FABSTAT_ERROR_IO, FABSTAT_ERROR_IO },
		{ 0x007, FABSTAT_NVME_ABORTED, FABSTAT_ERROR_IO, FABSTAT_ERROR_ABORTED },
		{ 0x008, FABSTAT_NVME_ABORTED, FABSTAT_ERROR_IO, FABSTAT_ERROR_ABORTED },
		{ 0x371, FABSTAT_NVME_ABORTED, FABSTAT_ERROR_IO, FABSTAT_ERROR_ABORTED },
		{ 0x371, FABSTAT_NVME_ABORTED, FABSTAT_ERROR_TRANSPORT, FABSTAT_ERROR_TRANSPORT },
		{ 0x00b, FABSTAT_EVENTS, FABSTAT_ERROR_UNSUPPORTED, FABSTAT_ERROR_OFFLINE },
		{ 0x001, FABSTAT_EVENTS, FABSTAT_ERROR_UNSUPPORTED, FABSTAT_ERROR_UNSUPPORTED },
		{ 0x021, FABSTAT_NVME_NOT_READY, FABSTAT_ERROR_TARGET, FABSTAT_ERROR_TARGET },
		{ 0x082, FABSTAT_NVME_NOT_READY, FABSTAT_ERROR_IO, FABSTAT_ERROR_IO },
		{ 0x083, FABSTAT_EVENTS, FABSTAT_ERROR_RESERVATION, FABSTAT_ERROR_RESERVATION },
		{ 0x281, FABSTAT_EVENTS, FABSTAT_ERROR_MEDIUM, FABSTAT_ERROR_MEDIUM },
		{ 0x300, FABSTAT_NVME_PATH, FABSTAT_ERROR_IO, FABSTAT_ERROR_PATH },
		{ 0x301, FABSTAT_NVME_PATH, FABSTAT_ERROR_IO, FABSTAT_ERROR_PATH },
		{ 0x302, FABSTAT_NVME_PATH, FABSTAT_ERROR_IO, FABSTAT_ERROR_PATH },
		{ 0x303, FABSTAT_NVME_PATH, FABSTAT_ERROR_IO, FABSTAT_ERROR_PATH },
		{ 0x360, FABSTAT_NVME_PATH, FABSTAT_ERROR_IO, FABSTAT_ERROR_PATH },
		{ 0x370, FABSTAT_NVME_PATH, FABSTAT_ERROR_TRANSPORT, FABSTAT_ERROR_TRANSPORT },
		{ 0x700, FABSTAT_EVENTS, FABSTAT_ERROR_IO, FABSTAT_ERROR_IO },
	};
	unsigned int i, above, status;

	for (i = 0; i < ARRAY_SIZE(answers); i++) {
		for (above = 0; above < 0x10000; above += 0x800) {
			status = answers[i].status | above;
			CHECK(fabstat_nvme_event(status) == answers[i].again, status);
			CHECK(fabstat_nvme_error_event(status, answers[i].kernel) ==
			      answers[i].error, status);
		}
	}
	/* What the kernel told more of than that it was an error stands, whatever was read. */
	for (status = 0; status < 0x800; status++) {
		CHECK(fabstat_nvme_error_event(status, FABSTAT_ERROR_MEDIUM) ==
		      FABSTAT_ERROR_MEDIUM, status);
		CHECK(fabstat_nvme_error_event(status, FABSTAT_ERROR_IO) >= FABSTAT_ERROR_IO,
		      status);
	}
}

/* Of 128 MiB histograms have 112. */
static void check_ceiling(struct kunit *test)
{
	const u64 mib = 1 << 20, limit = 128 * mib;
	u64 used;

	CHECK(fabstat_ceiling_of_histograms(limit) == 112 * mib, limit);
	for (used = 0; used <= limit; used += mib / 4) {
		/* Where the kernel had none for a moment, there is as soon as it has. */
		CHECK(fabstat_ceiling_has_room(used, limit, false) == (used < 112 * mib), used);
		CHECK(fabstat_ceiling_has_room(used, limit, true) == (used < 104 * mib), used);
	}
	/* A ceiling of some MiB more than what is in use is one with room. */
	CHECK(!fabstat_ceiling_has_room(112 * mib, limit, true), limit);
	CHECK(fabstat_ceiling_has_room(112 * mib, 140 * mib, true), 140 * mib);
	CHECK(!fabstat_ceiling_has_room(0, 0, true), 0);
}

#endif
