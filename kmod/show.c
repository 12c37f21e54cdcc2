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
#include "detail.h"
#include "device.h"
#include "files.h"
#include "histogram.h"
#include "memory.h"
#include "show_histograms.h"
#include "totals.h"

#define FORMAT_VERSION	1

/*
 * A record that does not fit in the rest of the buffer is formatted again for the next one. With
 * seq_file's own buffer, a page, that would be one record in five.
 */
#define BUFFER_BYTES	65536

static const char * const op_names[FABSTAT_OPS] = FABSTAT_OP_NAMES;
static const char * const event_names[] = FABSTAT_EVENT_NAMES;

static_assert(ARRAY_SIZE(event_names) == FABSTAT_EVENTS);

/* Reused by each record; fabstat_lock. */
static struct fabstat_sum sum;

static u64 errors_of(unsigned int op)
{
	u64 errors = 0;
	unsigned int i;

	for (i = 0; i < FABSTAT_ERRORS; i++)
		errors += sum.totals.errors[op][i];
	return errors;
}

static void show_errors(struct seq_file *m, const struct fabstat_device *dev, unsigned int op)
{
	unsigned int i;

	seq_printf(m, "errors id=%llu op=%s", dev->serial, op_names[op]);
	for (i = 0; i < FABSTAT_ERRORS; i++)
		if (sum.totals.errors[op][i])
			seq_printf(m, " %s=%llu", event_names[FABSTAT_FIRST_ERROR + i],
				   sum.totals.errors[op][i]);
	seq_putc(m, '\n');
}

static void show_op(struct seq_file *m, const struct fabstat_device *dev, unsigned int op)
{
	u64 errors = errors_of(op);

	if (!sum.totals.issued[op] && !sum.totals.completed[op] && !errors)
		return;
	seq_printf(m, "op id=%llu op=%s", dev->serial, op_names[op]);
	seq_put_decimal_ull(m, " issued=", sum.totals.issued[op]);
	seq_put_decimal_ull(m, " completed=", sum.totals.completed[op]);
	seq_put_decimal_ull(m, " sent_back=", sum.totals.sent_back[op]);
	seq_put_decimal_ull(m, " bytes=", sum.totals.bytes[op]);
	seq_put_decimal_ull(m, " errors=", errors);
	seq_put_decimal_ull(m, " device_ns=", sum.totals.device_ns[op]);
	seq_put_decimal_ull(m, " total_ns=", sum.totals.device_ns[op] + sum.totals.again_ns[op]);
	seq_put_decimal_ull(m, " refused=", sum.totals.refused[op]);
	seq_put_decimal_ull(m, " refused_ns=", sum.totals.refused_ns[op]);
	seq_putc(m, '\n');
	if (errors)
		show_errors(m, dev, op);
	fabstat_show_histograms(m, dev, op, sum.totals.wait_ns[op]);
}

static void show_events(struct seq_file *m, const struct fabstat_device *dev)
{
	unsigned int i, op;

	/* Errors are counted per op only. */
	for (op = 0; op < FABSTAT_OPS; op++)
		for (i = 0; i < FABSTAT_ERRORS; i++)
			sum.totals.rare[FABSTAT_FIRST_ERROR + i] += sum.totals.errors[op][i];
	/* Counted is how often memory was refused; what matters is the samples that are missing. */
	if (sum.totals.rare[FABSTAT_NO_HISTOGRAM])
		sum.totals.rare[FABSTAT_NO_HISTOGRAM] =
			fabstat_missing_samples(dev, sum.totals.completed);
	seq_printf(m, "events id=%llu", dev->serial);
	for (i = 0; i < FABSTAT_EVENTS; i++)
		if (sum.totals.rare[i])
			seq_printf(m, " %s=%llu", event_names[i], sum.totals.rare[i]);
	seq_putc(m, '\n');
}

/* Returns the integral of @dev's depth, in ns. */
static u64 depth_ns(const struct fabstat_device *dev)
{
	u64 begun = 0, ended = atomic64_read(&dev->forgotten);
	unsigned int op;

	for (op = 0; op < FABSTAT_OPS; op++) {
		begun += sum.totals.issued[op];
		ended += sum.totals.completed[op] + sum.totals.sent_back[op];
	}
	return dev->depth_base_ns +
	       fabstat_ticks_to_ns(sum.totals.depth_ticks + (begun - ended) * sum.now);
}

/* Returns how long @depth has been at its limit so far, in ns. */
static u64 at_limit_ns(struct fabstat_depth *depth, u64 now)
{
	u64 ns = atomic64_read(&depth->at_limit_ns);
	u64 since = READ_ONCE(depth->limit_since);

	if (since && now > since)
		ns += fabstat_ticks_to_ns(now - since);
	/* Time at the limit that ended between the two reads above is in neither. */
	depth->at_limit_shown_ns = max(depth->at_limit_shown_ns, ns);
	return depth->at_limit_shown_ns;
}

/* The most of all hardware queues, where each has a limit of its own. */
static void show_depths(struct seq_file *m, const struct fabstat_device *dev)
{
	u64 highest = 0, limit = 0, at_limit = 0;
	unsigned int i;

	for (i = 0; i < dev->nr_depths; i++) {
		highest = max_t(u64, highest, READ_ONCE(dev->depth[i].highest));
		limit = max_t(u64, limit, READ_ONCE(dev->depth[i].limit));
		at_limit = max(at_limit, at_limit_ns(&dev->depth[i], sum.now));
	}
	seq_put_decimal_ull(m, " highest=", highest);
	seq_put_decimal_ull(m, " limit=", limit);
	seq_put_decimal_ull(m, " forgotten=", atomic64_read(&dev->forgotten));
	seq_put_decimal_ull(m, " eh_wakeups=", fabstat_eh_wakeups(dev));
	seq_put_decimal_ull(m, " depth_ns=", depth_ns(dev));
	seq_put_decimal_ull(m, " at_limit_ns=", at_limit);
	seq_put_decimal_ull(m, " depth_error_ns=", sum.depth_error_ns);
	seq_put_decimal_ull(m, " torn=", sum.torn);
	seq_printf(m, " limit_of=%s\n", dev->limit_is_queues ? "queue" : "device");
}

static void show_queues(struct seq_file *m, const struct fabstat_device *dev)
{
	unsigned int i;

	for (i = 0; dev->limit_is_queues && i < dev->nr_depths; i++) {
		struct fabstat_depth *depth = &dev->depth[i];

		if (!READ_ONCE(depth->highest))
			continue;
		seq_printf(m, "queue id=%llu queue=%u in_flight=%d highest=%u limit=%u at_limit_ns=%llu\n",
			   dev->serial, i, atomic_read(&depth->now), READ_ONCE(depth->highest),
			   READ_ONCE(depth->limit), at_limit_ns(depth, sum.now));
	}
}

/* Names come from drivers, which may put blanks into them. */
static void show_name(struct seq_file *m, const char *key, const char *name)
{
	seq_puts(m, key);
	seq_escape(m, name, " \t\n\\");
}

static void show_device(struct seq_file *m, struct fabstat_device *dev)
{
	const struct fabstat_identity *id = &dev->identity;
	unsigned int op;

	fabstat_sum(dev, &sum);
	seq_printf(m, "device id=%llu state=%s", dev->serial,
		   dev->gone_ns ? "gone" : dev->dying ? "dying" : "live");
	show_name(m, " disk=", id->disk);
	seq_printf(m, " dev=%u:%u diskseq=%llu", MAJOR(id->devt), MINOR(id->devt), id->diskseq);
	show_name(m, " hctl=", id->hctl);
	show_name(m, " driver=", id->driver);
	show_name(m, " parent=", id->parent);
	seq_put_decimal_ull(m, " seen_ns=", dev->seen_ns);
	seq_put_decimal_ull(m, " time_ns=", dev->gone_ns ?: fabstat_time_ns(sum.now));
	seq_printf(m, " in_flight=%d", fabstat_device_depth(dev));
	show_depths(m, dev);
	show_queues(m, dev);
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
	seq_printf(m, " depth_modulus_ns=%llu detail=%d wait_from=%s", fabstat_clock_modulus_ns(),
		   static_key_enabled(&fabstat_detail),
		   FABSTAT_WAIT_FROM);
	seq_printf(m, " memory_bytes=%llu memory_limit_bytes=%llu memory_refused=%llu",
		   fabstat_memory_used(), fabstat_memory_limit(), fabstat_memory_refused());
	seq_printf(m, " devices_seen=%lld untracked=%lld missing=",
		   (s64)atomic64_read(&fabstat_globals.devices_seen),
		   (s64)atomic64_read(&fabstat_globals.untracked));
	for (i = 0; fabstat_missing(i); i++)
		seq_printf(m, "%s%s", i ? "," : "", fabstat_missing(i));
	seq_puts(m, i ? "\n" : "-\n");
	/* One number a bucket: its lower bound, which is its predecessor's upper one. */
	seq_puts(m, "buckets from_ns");
	for (i = 0; i < FABSTAT_BUCKETS; i++)
		seq_printf(m, " %llu", fabstat_bucket_from(i));
	seq_puts(m, "\nevent_names");
	for (i = 0; i < FABSTAT_EVENTS; i++)
		seq_printf(m, " %s", event_names[i]);
	seq_putc(m, '\n');
}

/* What one reader of the file has seen. */
struct reading {
	u64 number;	/* of this pass through the file */
};

/*
 * Position 0 is the header, position 1 + id a live device, the positions from FIRST_GONE the
 * devices that are gone, in the order in which they went. One that goes between two reads, and was
 * shown before, is not shown again.
 */
#define FIRST_GONE	(1 + FABSTAT_MAX_QUEUES)

static void *find_record(const struct reading *reading, loff_t *pos)
{
	struct fabstat_device *dev;

	if (!*pos)
		return SEQ_START_TOKEN;
	for (; *pos < FIRST_GONE; ++*pos) {
		dev = fabstat_device(*pos - 1);
		if (dev)
			return dev;
	}
	list_for_each_entry(dev, &fabstat_gone, gone_node) {
		loff_t place = FIRST_GONE + dev->gone_number;

		if (place < *pos || dev->shown_in == reading->number)
			continue;
		*pos = place;
		return dev;
	}
	return NULL;
}

static void *stats_start(struct seq_file *m, loff_t *pos)
{
	static u64 readings;	/* fabstat_lock */
	struct reading *reading = m->private;

	mutex_lock(&fabstat_lock);
	if (!*pos)
		reading->number = ++readings;
	return find_record(reading, pos);
}

static void *stats_next(struct seq_file *m, void *record, loff_t *pos)
{
	const struct reading *reading = m->private;

	if (record != SEQ_START_TOKEN)
		((struct fabstat_device *)record)->shown_in = reading->number;
	++*pos;
	return find_record(reading, pos);
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
	struct seq_file *m;

	if (!__seq_open_private(file, &stats_ops, sizeof(struct reading)))
		return -ENOMEM;
	m = file->private_data;
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
	.release = seq_release_private,
};
