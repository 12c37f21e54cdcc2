// SPDX-License-Identifier: GPL-2.0
/* Adds up the histograms of all CPUs and shows them, one a line. */
#include <linux/build_bug.h>
#include <linux/seq_file.h>
#include <linux/string.h>

#include "counters.h"
#include "device.h"
#include "show_histograms.h"

static const char * const op_names[FABSTAT_OPS] = FABSTAT_OP_NAMES;
static const char * const size_names[] = FABSTAT_SIZE_NAMES;

static_assert(ARRAY_SIZE(size_names) == FABSTAT_SIZE_CLASSES);

/* Reused by each record; fabstat_lock. */
static u64 buckets[FABSTAT_BUCKETS];
static unsigned int first_bucket, last_bucket;	/* all others are empty */

static bool has_histogram(const struct fabstat_device *dev, unsigned int op, enum fabstat_kind kind)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const struct fabstat_cpu *counters = READ_ONCE(dev->cpu[cpu]);

		if (counters && READ_ONCE(counters->histogram[kind][op]))
			return true;
	}
	return false;
}

/* Adds the histogram @kind of all CPUs to buckets; returns the number of samples added. */
static u64 add_buckets(const struct fabstat_device *dev, unsigned int op, enum fabstat_kind kind)
{
	u64 count, samples = 0;
	unsigned int cpu, i;

	for_each_possible_cpu(cpu) {
		const struct fabstat_cpu *counters = READ_ONCE(dev->cpu[cpu]);
		const struct fabstat_histogram *histogram;

		histogram = counters ? READ_ONCE(counters->histogram[kind][op]) : NULL;
		if (fabstat_histogram_spills(histogram, cpu))
			continue;
		for (i = 0; histogram && i < FABSTAT_BUCKETS; i++) {
			count = local64_read(&histogram->bucket[i]);
			if (!count)
				continue;
			buckets[i] += count;
			samples += count;
			first_bucket = min(first_bucket, i);
			last_bucket = max(last_bucket, i);
		}
	}
	return samples;
}

/* Adds up the histograms @first and, unless it is the same, @second; returns their samples. */
static u64 fill_buckets(const struct fabstat_device *dev, unsigned int op, enum fabstat_kind first,
			enum fabstat_kind second)
{
	u64 count;

	memset(buckets, 0, sizeof(buckets));
	first_bucket = FABSTAT_BUCKETS;
	last_bucket = 0;
	count = add_buckets(dev, op, first);
	if (second != first)
		count += add_buckets(dev, op, second);
	return count;
}

static void show_buckets(struct seq_file *m)
{
	unsigned int i;

	for (i = first_bucket; i <= last_bucket; i++) {
		if (!buckets[i])
			continue;
		seq_put_decimal_ull(m, " ", i);
		seq_put_decimal_ull(m, ":", buckets[i]);
	}
	seq_putc(m, '\n');
}

static void show_times(struct seq_file *m, const struct fabstat_device *dev, unsigned int op,
		       const char *name, enum fabstat_kind first, enum fabstat_kind second)
{
	u64 count = fill_buckets(dev, op, first, second);

	if (!count)
		return;
	seq_printf(m, "histogram id=%llu op=%s time=%s count=%llu", dev->serial, op_names[op], name,
		   count);
	show_buckets(m);
}

/* A record of its own, which readers that do not know it leave out. */
static void show_detail(struct seq_file *m, const struct fabstat_device *dev, unsigned int op,
			const char *what, const char *name, enum fabstat_kind kind, u64 sum_ns)
{
	u64 count = fill_buckets(dev, op, kind, kind);

	if (!count)
		return;
	seq_printf(m, "detail id=%llu op=%s %s=%s sum_ns=%llu count=%llu", dev->serial,
		   op_names[op], what, name, sum_ns, count);
	show_buckets(m);
}

/* Shows all histograms of @dev and @op; @wait_ns is the sum of the queue waits. fabstat_lock. */
void fabstat_show_histograms(struct seq_file *m, const struct fabstat_device *dev, unsigned int op,
			     u64 wait_ns)
{
	unsigned int i;

	show_times(m, dev, op, "device", FABSTAT_DIRECT, FABSTAT_AGAIN_DEVICE);
	/* Without a request that was issued twice it is the same as the device's. */
	if (has_histogram(dev, op, FABSTAT_AGAIN_TOTAL))
		show_times(m, dev, op, "total", FABSTAT_DIRECT, FABSTAT_AGAIN_TOTAL);
	if (has_histogram(dev, op, FABSTAT_REFUSED))
		show_times(m, dev, op, "refused", FABSTAT_REFUSED, FABSTAT_REFUSED);
	if (has_histogram(dev, op, FABSTAT_WAIT))
		show_detail(m, dev, op, "time", "wait", FABSTAT_WAIT, wait_ns);
	for (i = 0; i < FABSTAT_SIZE_CLASSES; i++)
		if (has_histogram(dev, op, FABSTAT_SIZES + i))
			show_detail(m, dev, op, "size", size_names[i], FABSTAT_SIZES + i, 0);
}

/*
 * Returns how many of the requests that have @completed, by op, are in no histogram. fabstat_lock.
 */
u64 fabstat_missing_samples(const struct fabstat_device *dev, const u64 completed[])
{
	u64 missing = 0, samples;
	unsigned int op;

	for (op = 0; op < FABSTAT_OPS; op++) {
		samples = add_buckets(dev, op, FABSTAT_DIRECT) +
			  add_buckets(dev, op, FABSTAT_AGAIN_DEVICE);
		/* Some have completed since the counters were added up. */
		if (samples < completed[op])
			missing += completed[op] - samples;
	}
	return missing;
}
