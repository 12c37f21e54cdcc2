// SPDX-License-Identifier: GPL-2.0
/* Adds up the histograms of all CPUs and shows them, one a record. */
#include <linux/bitops.h>
#include <linux/build_bug.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include "counters.h"
#include "device.h"
#include "records.h"
#include "show_histograms.h"

/* Most buckets are empty, and so are most groups of buckets that lie in one cache line. */
#define GROUP	8

/* Both times of a request's last way through the device. */
#define DEVICE_KINDS	(BIT(FABSTAT_DIRECT) | BIT(FABSTAT_AGAIN_DEVICE))

/* Reused by each record, and empty when it ends; fabstat_lock. */
static u64 buckets[FABSTAT_BUCKETS];
static unsigned long used[BITS_TO_LONGS(FABSTAT_BUCKETS)];	/* the buckets that are not empty */

/* Returns the kinds of times that a CPU has a histogram for, one bit each. */
static unsigned int kinds_of(const struct fabstat_device *dev, unsigned int op)
{
	unsigned int cpu, kind, kinds = 0;

	for_each_possible_cpu(cpu) {
		const struct fabstat_cpu *counters = READ_ONCE(dev->cpu[cpu]);

		for (kind = 0; counters && kind < FABSTAT_KINDS; kind++)
			if (READ_ONCE(counters->histogram[kind][op]))
				kinds |= BIT(kind);
	}
	return kinds;
}

static bool is_empty(const local64_t *group)
{
	const u64 *count = (const u64 *)group;

	/* What comes meanwhile is in this reading or in the next. */
	return !data_race(count[0] | count[1] | count[2] | count[3] |
			  count[4] | count[5] | count[6] | count[7]);
}

/* Adds @nr buckets of @histogram from @i on; returns the number of samples added. */
static u64 add_group(const struct fabstat_histogram *histogram, unsigned int i, unsigned int nr)
{
	u64 count, samples = 0;

	for (; nr; nr--, i++) {
		count = local64_read(&histogram->bucket[i]);
		if (!count)
			continue;
		used[BIT_WORD(i)] |= BIT_MASK(i);
		buckets[i] += count;
		samples += count;
	}
	return samples;
}

/* Adds @histogram to buckets; returns the number of samples added. */
static u64 add_histogram(const struct fabstat_histogram *histogram)
{
	u64 samples = 0;
	unsigned int i;

	for (i = 0; i + GROUP <= FABSTAT_BUCKETS; i += GROUP)
		if (!is_empty(&histogram->bucket[i]))
			samples += add_group(histogram, i, GROUP);
	return samples + add_group(histogram, i, FABSTAT_BUCKETS - i);
}

/*
 * Adds up the histograms of all CPUs and of @kinds, one bit each; returns their samples. Unless
 * there are none, show_buckets() or drop_buckets() follows.
 */
static u64 fill_buckets(const struct fabstat_device *dev, unsigned int op, unsigned int kinds)
{
	unsigned int cpu, left;
	u64 samples = 0;

	for_each_possible_cpu(cpu) {
		const struct fabstat_cpu *counters = READ_ONCE(dev->cpu[cpu]);
		const struct fabstat_histogram *histogram;

		for (left = kinds; counters && left; left &= left - 1) {
			histogram = READ_ONCE(counters->histogram[__ffs(left)][op]);
			if (histogram && !fabstat_histogram_spills(histogram, cpu))
				samples += add_histogram(histogram);
		}
	}
	return samples;
}

static void drop_buckets(void)
{
	memset(buckets, 0, sizeof(buckets));
	memset(used, 0, sizeof(used));
}

/* Shows the buckets, which are empty then, and ends the record. */
static void show_buckets(struct fabstat_records *out)
{
	unsigned int i, word;

	for (word = 0; word < ARRAY_SIZE(used); word++) {
		for (; used[word]; used[word] &= used[word] - 1) {
			i = word * BITS_PER_LONG + __ffs(used[word]);
			fabstat_put_bucket(out, i, buckets[i]);
			buckets[i] = 0;
		}
	}
	fabstat_record_end(out);
}

static void show_times(struct fabstat_records *out, const struct fabstat_device *dev,
		       unsigned int op, enum fabstat_time time, unsigned int kinds)
{
	u64 count = fill_buckets(dev, op, kinds);

	if (!count)
		return;
	fabstat_record_begin(out, FABSTAT_RECORD_HISTOGRAM, dev->serial);
	fabstat_put_word(out, FABSTAT_LIST_OP, op);
	fabstat_put_word(out, FABSTAT_LIST_TIME, time);
	fabstat_put_number(out, " count=", count);
	show_buckets(out);
}

/* A record of its own, which readers that do not know it leave out. */
static void show_detail(struct fabstat_records *out, const struct fabstat_device *dev,
			unsigned int op, unsigned int detail, enum fabstat_kind kind, u64 sum_ns)
{
	u64 count = fill_buckets(dev, op, BIT(kind));

	if (!count)
		return;
	fabstat_record_begin(out, FABSTAT_RECORD_DETAIL, dev->serial);
	fabstat_put_word(out, FABSTAT_LIST_OP, op);
	fabstat_put_word(out, FABSTAT_LIST_DETAIL, detail);
	fabstat_put_number(out, " sum_ns=", sum_ns);
	fabstat_put_number(out, " count=", count);
	show_buckets(out);
}

/* Shows all histograms of @dev and @op; @wait_ns is the sum of the queue waits. fabstat_lock. */
void fabstat_show_histograms(struct fabstat_records *out, const struct fabstat_device *dev,
			     unsigned int op, u64 wait_ns)
{
	unsigned int i, kinds = kinds_of(dev, op);

	show_times(out, dev, op, FABSTAT_TIME_DEVICE, kinds & DEVICE_KINDS);
	/* Without a request that was issued twice it is the same as the device's. */
	if (kinds & BIT(FABSTAT_AGAIN_TOTAL))
		show_times(out, dev, op, FABSTAT_TIME_TOTAL,
			   kinds & (BIT(FABSTAT_DIRECT) | BIT(FABSTAT_AGAIN_TOTAL)));
	if (kinds & BIT(FABSTAT_REFUSED))
		show_times(out, dev, op, FABSTAT_TIME_REFUSED, BIT(FABSTAT_REFUSED));
	if (kinds & BIT(FABSTAT_WAIT))
		show_detail(out, dev, op, FABSTAT_DETAIL_WAIT, FABSTAT_WAIT, wait_ns);
	for (i = 0; i < FABSTAT_SIZE_CLASSES; i++)
		if (kinds & BIT(FABSTAT_SIZES + i))
			show_detail(out, dev, op, FABSTAT_DETAIL_SIZES + i, FABSTAT_SIZES + i, 0);
}

/*
 * Returns how many of the requests that have @completed, by op, are in no histogram. fabstat_lock.
 */
u64 fabstat_missing_samples(const struct fabstat_device *dev, const u64 completed[])
{
	u64 missing = 0, samples;
	unsigned int op;

	for (op = 0; op < FABSTAT_OPS; op++) {
		samples = fill_buckets(dev, op, DEVICE_KINDS);
		drop_buckets();
		/* Some have completed since the counters were added up. */
		if (samples < completed[op])
			missing += completed[op] - samples;
	}
	return missing;
}
