// SPDX-License-Identifier: GPL-2.0
/*
 * The file "stats": everything that was counted, one record a line.
 *
 * The format is Documentation/ABI/testing/debugfs-fabstat. Counters are cumulative, userspace
 * subtracts two readings. Reading takes fabstat_lock, never anything that a probe waits for.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "attach.h"
#include "clock.h"
#include "counters.h"
#include "device.h"
#include "files.h"
#include "memory.h"

#define FORMAT_VERSION	1

/*
 * A record that does not fit in the rest of the buffer is formatted again for the next one. With
 * seq_file's own buffer, a page, that would be one record in five.
 */
#define BUFFER_BYTES	65536

/* A reader that finds a CPU in the middle of an event tries again up to this many times. */
#define MAX_TRIES	1000

static const char * const op_names[FABSTAT_OPS] = FABSTAT_OP_NAMES;
static const char * const event_names[FABSTAT_EVENTS] = FABSTAT_EVENT_NAMES;

/* One CPU's or the sum of all CPUs' counters. */
struct totals {
	u64 issued[FABSTAT_OPS];
	u64 completed[FABSTAT_OPS];
	u64 sent_back[FABSTAT_OPS];
	u64 bytes[FABSTAT_OPS];
	u64 device_ns[FABSTAT_OPS];
	u64 again_ns[FABSTAT_OPS];
	u64 refused_ns[FABSTAT_OPS];
	u64 refused[FABSTAT_OPS];
	u64 errors[FABSTAT_OPS][FABSTAT_ERRORS];
	u64 depth_ticks;
	u64 at_limit_ns;
	u64 rare[FABSTAT_EVENTS];
};

/* Reused by each record; fabstat_lock. */
static struct totals total, part;
static u64 buckets[FABSTAT_BUCKETS];
static unsigned int first_bucket, last_bucket;	/* all others are empty */

/* Copies @cpu's counters; returns false if an event was being written meanwhile. */
static bool copy_cpu(const struct fabstat_cpu *cpu, struct totals *copy)
{
	u64 begun = 0, ended = local64_read(&cpu->events);
	unsigned int i, j;

	smp_rmb();	/* pairs with the writers' smp_wmb() before events */
	for (i = 0; i < FABSTAT_OPS; i++) {
		copy->bytes[i] = local64_read(&cpu->bytes[i]);
		copy->device_ns[i] = local64_read(&cpu->device_ns[i]);
		copy->again_ns[i] = local64_read(&cpu->again_ns[i]);
		copy->refused_ns[i] = local64_read(&cpu->refused_ns[i]);
		copy->refused[i] = local64_read(&cpu->refused[i]);
		for (j = 0; j < FABSTAT_ERRORS; j++)
			copy->errors[i][j] = local64_read(&cpu->errors[i][j]);
	}
	copy->depth_ticks = local64_read(&cpu->depth_ticks);
	copy->at_limit_ns = local64_read(&cpu->at_limit_ns);
	for (i = 0; i < FABSTAT_EVENTS; i++)
		copy->rare[i] = local64_read(&cpu->rare[i]);
	smp_rmb();	/* pairs with the writers' smp_wmb() after issued, completed, sent_back */
	for (i = 0; i < FABSTAT_OPS; i++) {
		copy->issued[i] = local64_read(&cpu->issued[i]);
		copy->completed[i] = local64_read(&cpu->completed[i]);
		copy->sent_back[i] = local64_read(&cpu->sent_back[i]);
		begun += copy->issued[i] + copy->completed[i] + copy->sent_back[i];
	}
	return begun == ended;
}

static void sum_cpus(const struct fabstat_device *dev)
{
	unsigned int cpu, i, tries;

	memset(&total, 0, sizeof(total));
	for_each_possible_cpu(cpu) {
		const struct fabstat_cpu *counters = READ_ONCE(dev->cpu[cpu]);

		if (!counters)
			continue;
		for (tries = 0; !copy_cpu(counters, &part) && tries < MAX_TRIES; tries++)
			cpu_relax();
		for (i = 0; i < sizeof(total) / sizeof(u64); i++)
			((u64 *)&total)[i] += ((u64 *)&part)[i];
	}
}

static bool has_histogram(const struct fabstat_device *dev, unsigned int op, enum fabstat_kind kind)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const struct fabstat_cpu *counters = READ_ONCE(dev->cpu[cpu]);

		if (counters && READ_ONCE(counters->histogram[op][kind]))
			return true;
	}
	return false;
}

/* Adds the histogram @kind of all CPUs to buckets; returns the number of samples added. */
static u64 add_buckets(const struct fabstat_device *dev, unsigned int op, enum fabstat_kind kind)
{
	u64 count, sum = 0;
	unsigned int cpu, i;

	for_each_possible_cpu(cpu) {
		const struct fabstat_cpu *counters = READ_ONCE(dev->cpu[cpu]);
		const struct fabstat_histogram *histogram;

		histogram = counters ? READ_ONCE(counters->histogram[op][kind]) : NULL;
		for (i = 0; histogram && i < FABSTAT_BUCKETS; i++) {
			count = local64_read(&histogram->bucket[i]);
			if (!count)
				continue;
			buckets[i] += count;
			sum += count;
			first_bucket = min(first_bucket, i);
			last_bucket = max(last_bucket, i);
		}
	}
	return sum;
}

static void show_histogram(struct seq_file *m, const struct fabstat_device *dev, unsigned int op,
			   const char *name, enum fabstat_kind first, enum fabstat_kind second)
{
	unsigned int i;
	u64 count;

	memset(buckets, 0, sizeof(buckets));
	first_bucket = FABSTAT_BUCKETS;
	last_bucket = 0;
	count = add_buckets(dev, op, first);
	if (second != first)
		count += add_buckets(dev, op, second);
	if (!count)
		return;
	seq_printf(m, "histogram id=%llu op=%s time=%s count=%llu", dev->serial, op_names[op], name,
		   count);
	for (i = first_bucket; i <= last_bucket; i++) {
		if (!buckets[i])
			continue;
		seq_put_decimal_ull(m, " ", i);
		seq_put_decimal_ull(m, ":", buckets[i]);
	}
	seq_putc(m, '\n');
}

static u64 errors_of(unsigned int op)
{
	u64 sum = 0;
	unsigned int i;

	for (i = 0; i < FABSTAT_ERRORS; i++)
		sum += total.errors[op][i];
	return sum;
}

static void show_errors(struct seq_file *m, const struct fabstat_device *dev, unsigned int op)
{
	unsigned int i;

	seq_printf(m, "errors id=%llu op=%s", dev->serial, op_names[op]);
	for (i = 0; i < FABSTAT_ERRORS; i++)
		if (total.errors[op][i])
			seq_printf(m, " %s=%llu", event_names[FABSTAT_FIRST_ERROR + i],
				   total.errors[op][i]);
	seq_putc(m, '\n');
}

static void show_op(struct seq_file *m, const struct fabstat_device *dev, unsigned int op)
{
	u64 errors = errors_of(op);

	if (!total.issued[op] && !total.completed[op] && !errors)
		return;
	seq_printf(m, "op id=%llu op=%s", dev->serial, op_names[op]);
	seq_put_decimal_ull(m, " issued=", total.issued[op]);
	seq_put_decimal_ull(m, " completed=", total.completed[op]);
	seq_put_decimal_ull(m, " sent_back=", total.sent_back[op]);
	seq_put_decimal_ull(m, " bytes=", total.bytes[op]);
	seq_put_decimal_ull(m, " errors=", errors);
	seq_put_decimal_ull(m, " device_ns=", total.device_ns[op]);
	seq_put_decimal_ull(m, " total_ns=", total.device_ns[op] + total.again_ns[op]);
	seq_put_decimal_ull(m, " refused=", total.refused[op]);
	seq_put_decimal_ull(m, " refused_ns=", total.refused_ns[op]);
	seq_putc(m, '\n');
	if (errors)
		show_errors(m, dev, op);
	show_histogram(m, dev, op, "device", FABSTAT_DIRECT, FABSTAT_AGAIN_DEVICE);
	/* Without a request that was issued twice it is the same as the device's. */
	if (has_histogram(dev, op, FABSTAT_AGAIN_TOTAL))
		show_histogram(m, dev, op, "total", FABSTAT_DIRECT, FABSTAT_AGAIN_TOTAL);
	if (has_histogram(dev, op, FABSTAT_REFUSED))
		show_histogram(m, dev, op, "refused", FABSTAT_REFUSED, FABSTAT_REFUSED);
}

static void show_events(struct seq_file *m, const struct fabstat_device *dev)
{
	unsigned int i, op;

	/* Errors are counted per op only. */
	for (op = 0; op < FABSTAT_OPS; op++)
		for (i = 0; i < FABSTAT_ERRORS; i++)
			total.rare[FABSTAT_FIRST_ERROR + i] += total.errors[op][i];
	seq_printf(m, "events id=%llu", dev->serial);
	for (i = 0; i < FABSTAT_EVENTS; i++)
		if (total.rare[i])
			seq_printf(m, " %s=%llu", event_names[i], total.rare[i]);
	seq_putc(m, '\n');
}

static void show_device(struct seq_file *m, struct fabstat_device *dev)
{
	const struct fabstat_identity *id = &dev->identity;
	u64 by_the_books, begun = 0, ended, now, since, depth_ns;
	unsigned int op;

	sum_cpus(dev);
	now = fabstat_ticks();
	since = READ_ONCE(dev->limit_since);
	ended = atomic64_read(&dev->forgotten);
	for (op = 0; op < FABSTAT_OPS; op++) {
		begun += total.issued[op];
		ended += total.completed[op] + total.sent_back[op];
	}
	by_the_books = begun - ended;
	depth_ns = dev->depth_base_ns + fabstat_ticks_to_ns(total.depth_ticks + by_the_books * now);
	if (since && now > since)
		total.at_limit_ns += fabstat_ticks_to_ns(now - since);
	/* Time at the limit that ended after the sum and before since was read is in neither. */
	dev->at_limit_shown_ns = max(dev->at_limit_shown_ns, total.at_limit_ns);
	seq_printf(m, "device id=%llu state=%s disk=%s dev=%u:%u diskseq=%llu hctl=%s driver=%s parent=%s",
		   dev->serial, dev->gone_ns ? "gone" : dev->dying ? "dying" : "live", id->disk,
		   MAJOR(id->devt), MINOR(id->devt), id->diskseq, id->hctl, id->driver, id->parent);
	seq_put_decimal_ull(m, " seen_ns=", dev->seen_ns);
	seq_put_decimal_ull(m, " time_ns=", dev->gone_ns ?: fabstat_time_ns(now));
	seq_put_decimal_ull(m, " in_flight=", atomic_read(&dev->depth));
	seq_put_decimal_ull(m, " highest=", dev->highest);
	seq_put_decimal_ull(m, " limit=", dev->limit);
	seq_put_decimal_ull(m, " forgotten=", atomic64_read(&dev->forgotten));
	seq_put_decimal_ull(m, " eh_wakeups=", fabstat_eh_wakeups(dev));
	seq_put_decimal_ull(m, " depth_ns=", depth_ns);
	seq_put_decimal_ull(m, " at_limit_ns=", dev->at_limit_shown_ns);
	seq_putc(m, '\n');
	show_events(m, dev);
	for (op = 0; op < FABSTAT_OPS; op++)
		show_op(m, dev, op);
}

static void show_header(struct seq_file *m)
{
	unsigned int i;

	seq_printf(m, "# fabstat %d\n", FORMAT_VERSION);
	seq_printf(m, "module version=%s enabled=%d scsi=%d clock=%s loaded_ns=%llu time_ns=%llu stuck_ms=%u",
		   THIS_MODULE->version, fabstat_attached(), fabstat_attached_scsi(),
		   fabstat_clock.counter ? "counter" : "timekeeper", fabstat_globals.loaded_ns,
		   fabstat_time_ns(fabstat_ticks()), READ_ONCE(fabstat_stuck_ms));
	seq_printf(m, " depth_modulus_ns=%llu", fabstat_clock_modulus_ns());
	seq_printf(m, " memory_bytes=%llu memory_limit_bytes=%llu memory_refused=%llu",
		   fabstat_memory_used(), fabstat_memory_limit(), fabstat_memory_refused());
	seq_printf(m, " devices_seen=%lld untracked=%lld\n",
		   (s64)atomic64_read(&fabstat_globals.devices_seen),
		   (s64)atomic64_read(&fabstat_globals.untracked));
	/* One number a bucket: its lower bound, which is its predecessor's upper one. */
	seq_puts(m, "buckets from_ns");
	for (i = 0; i < FABSTAT_BUCKETS; i++)
		seq_printf(m, " %llu", fabstat_bucket_from(i));
	seq_puts(m, "\nevent_names");
	for (i = 0; i < FABSTAT_EVENTS; i++)
		seq_printf(m, " %s", event_names[i]);
	seq_putc(m, '\n');
}

/*
 * Position 0 is the header, position 1 + id a live device, the positions from FIRST_GONE the
 * devices that are gone, oldest first.
 */
#define FIRST_GONE	(1 + FABSTAT_MAX_QUEUES)

static void *find_record(loff_t *pos)
{
	struct fabstat_device *dev;
	loff_t gone = FIRST_GONE;

	if (!*pos)
		return SEQ_START_TOKEN;
	for (; *pos < FIRST_GONE; ++*pos) {
		dev = fabstat_device(*pos - 1);
		if (dev)
			return dev;
	}
	list_for_each_entry(dev, &fabstat_gone, gone_node)
		if (gone++ == *pos)
			return dev;
	return NULL;
}

static void *stats_start(struct seq_file *m, loff_t *pos)
{
	mutex_lock(&fabstat_lock);
	return find_record(pos);
}

static void *stats_next(struct seq_file *m, void *record, loff_t *pos)
{
	++*pos;
	return find_record(pos);
}

static void stats_stop(struct seq_file *m, void *record)
{
	mutex_unlock(&fabstat_lock);
}

static int stats_show(struct seq_file *m, void *record)
{
	if (record == SEQ_START_TOKEN)
		show_header(m);
	else
		show_device(m, record);
	return 0;
}

static const struct seq_operations stats_ops = {
	.start = stats_start,
	.next = stats_next,
	.stop = stats_stop,
	.show = stats_show,
};

static int stats_open(struct inode *inode, struct file *file)
{
	int err = seq_open(file, &stats_ops);
	struct seq_file *m = file->private_data;

	if (err)
		return err;
	/* Without memory for it seq_file allocates its own; it frees either. */
	m->buf = kvmalloc(BUFFER_BYTES, GFP_KERNEL);
	if (m->buf)
		m->size = BUFFER_BYTES;
	return 0;
}

const struct file_operations fabstat_stats_fops = {
	.owner = THIS_MODULE,
	.open = stats_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = seq_release,
};
