// SPDX-License-Identifier: GPL-2.0
/*
 * The files "stats" and "stats.bin": everything that was counted, as text, one record a line, and
 * as typed words.
 *
 * The formats are Documentation/ABI/testing/debugfs-fabstat. Counters are cumulative, userspace
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
#include "records.h"
#include "show_histograms.h"
#include "totals.h"

#define FORMAT_VERSION	1
#define TYPED_VERSION	1

/*
 * A record that does not fit in the rest of the buffer is formatted again for the next one. With
 * seq_file's own buffer, a page, that would be one record in five.
 */
#define BUFFER_BYTES	65536

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

static void show_errors(struct fabstat_records *out, const struct fabstat_device *dev,
			unsigned int op)
{
	unsigned int i;

	fabstat_record_begin(out, FABSTAT_RECORD_ERRORS, dev->serial);
	fabstat_put_word(out, FABSTAT_LIST_OP, op);
	for (i = 0; i < FABSTAT_ERRORS; i++)
		if (sum.totals.errors[op][i])
			fabstat_put_event(out, FABSTAT_FIRST_ERROR + i, sum.totals.errors[op][i]);
	fabstat_record_end(out);
}

static void show_op(struct fabstat_records *out, const struct fabstat_device *dev, unsigned int op)
{
	u64 errors = errors_of(op);

	if (!sum.totals.issued[op] && !sum.totals.completed[op] && !errors)
		return;
	fabstat_record_begin(out, FABSTAT_RECORD_OP, dev->serial);
	fabstat_put_word(out, FABSTAT_LIST_OP, op);
	fabstat_put_number(out, " issued=", sum.totals.issued[op]);
	fabstat_put_number(out, " completed=", sum.totals.completed[op]);
	fabstat_put_number(out, " sent_back=", sum.totals.sent_back[op]);
	fabstat_put_number(out, " bytes=", sum.totals.bytes[op]);
	fabstat_put_number(out, " errors=", errors);
	fabstat_put_number(out, " device_ns=", sum.totals.device_ns[op]);
	fabstat_put_number(out, " total_ns=", sum.totals.device_ns[op] + sum.totals.again_ns[op]);
	fabstat_put_number(out, " refused=", sum.totals.refused[op]);
	fabstat_put_number(out, " refused_ns=", sum.totals.refused_ns[op]);
	fabstat_record_end(out);
	if (errors)
		show_errors(out, dev, op);
	fabstat_show_histograms(out, dev, op, sum.totals.wait_ns[op]);
}

static void show_events(struct fabstat_records *out, const struct fabstat_device *dev)
{
	unsigned int i, op;

	/* Errors are counted per op only. */
	for (op = 0; op < FABSTAT_OPS; op++)
		for (i = 0; i < FABSTAT_ERRORS; i++)
			sum.totals.rare[FABSTAT_FIRST_ERROR + i] += sum.totals.errors[op][i];
	/*
	 * Counted is how often memory was refused; what matters is the samples that are missing.
	 * Of the device's times they are known; of others at least one is, for each refusal.
	 */
	if (sum.totals.rare[FABSTAT_NO_HISTOGRAM])
		sum.totals.rare[FABSTAT_NO_HISTOGRAM] =
			max(sum.totals.rare[FABSTAT_NO_HISTOGRAM],
			    fabstat_missing_samples(dev, sum.totals.completed));
	fabstat_record_begin(out, FABSTAT_RECORD_EVENTS, dev->serial);
	for (i = 0; i < FABSTAT_EVENTS; i++)
		if (sum.totals.rare[i])
			fabstat_put_event(out, i, sum.totals.rare[i]);
	fabstat_record_end(out);
}

/* Returns the integral of @dev's depth, in ns. */
static u64 depth_ns(const struct fabstat_device *dev)
{
	u64 begun = 0, ended = sum.forgotten;
	unsigned int op;

	for (op = 0; op < FABSTAT_OPS; op++) {
		begun += sum.totals.issued[op];
		ended += sum.totals.completed[op] + sum.totals.sent_back[op];
	}
	return dev->depth_base_ns +
	       fabstat_ticks_to_ns(sum.totals.depth_ticks + sum.forgotten_ticks +
				   (begun - ended) * sum.now);
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
static void show_depths(struct fabstat_records *out, const struct fabstat_device *dev)
{
	u64 highest = 0, limit = 0, at_limit = 0;
	unsigned int i;

	for (i = 0; i < dev->nr_depths; i++) {
		highest = max_t(u64, highest, READ_ONCE(dev->depth[i].highest));
		limit = max_t(u64, limit, READ_ONCE(dev->depth[i].limit));
		at_limit = max(at_limit, at_limit_ns(&dev->depth[i], sum.now));
	}
	fabstat_put_number(out, " highest=", highest);
	fabstat_put_number(out, " limit=", limit);
	fabstat_put_number(out, " forgotten=", sum.forgotten);
	fabstat_put_number(out, " eh_wakeups=", fabstat_eh_wakeups(dev));
	fabstat_put_number(out, " depth_ns=", depth_ns(dev));
	fabstat_put_number(out, " at_limit_ns=", at_limit);
	fabstat_put_number(out, " depth_error_ns=", sum.depth_error_ns);
	fabstat_put_number(out, " torn=", sum.torn);
	fabstat_put_word(out, FABSTAT_LIST_LIMIT_OF,
			 dev->limit_is_queues ? FABSTAT_OF_QUEUE : FABSTAT_OF_DEVICE);
}

static void show_queues(struct fabstat_records *out, const struct fabstat_device *dev)
{
	unsigned int i;

	for (i = 0; dev->limit_is_queues && i < dev->nr_depths; i++) {
		struct fabstat_depth *depth = &dev->depth[i];

		if (!READ_ONCE(depth->highest))
			continue;
		fabstat_record_begin(out, FABSTAT_RECORD_QUEUE, dev->serial);
		fabstat_put_number(out, " queue=", i);
		fabstat_put_signed(out, " in_flight=", atomic_read(&depth->now));
		fabstat_put_number(out, " highest=", READ_ONCE(depth->highest));
		fabstat_put_number(out, " limit=", READ_ONCE(depth->limit));
		fabstat_put_number(out, " at_limit_ns=", at_limit_ns(depth, sum.now));
		fabstat_put_number(out, " issued=", atomic64_read(&depth->issued));
		fabstat_record_end(out);
	}
}

static void show_device(struct fabstat_records *out, struct fabstat_device *dev)
{
	const struct fabstat_identity *id = &dev->identity;
	unsigned int op;

	if (dev->queue) {
		fabstat_identify_anew(dev);
		fabstat_limit_look(dev);
	}
	fabstat_sum(dev, &sum);
	fabstat_record_begin(out, FABSTAT_RECORD_DEVICE, dev->serial);
	fabstat_put_word(out, FABSTAT_LIST_STATE,
			 dev->gone_ns ? FABSTAT_GONE : dev->dying ? FABSTAT_DYING : FABSTAT_LIVE);
	fabstat_put_name(out, " disk=", id->disk, sizeof(id->disk));
	fabstat_put_dev(out, id->devt);
	fabstat_put_number(out, " diskseq=", id->diskseq);
	fabstat_put_name(out, " hctl=", id->hctl, sizeof(id->hctl));
	fabstat_put_name(out, " driver=", id->driver, sizeof(id->driver));
	fabstat_put_name(out, " parent=", id->parent, sizeof(id->parent));
	fabstat_put_number(out, " seen_ns=", dev->seen_ns);
	fabstat_put_number(out, " time_ns=", dev->gone_ns ?: fabstat_time_ns(sum.now));
	fabstat_put_signed(out, " in_flight=", fabstat_device_depth(dev));
	show_depths(out, dev);
	fabstat_record_end(out);
	show_queues(out, dev);
	show_events(out, dev);
	for (op = 0; op < FABSTAT_OPS; op++)
		show_op(out, dev, op);
}

/* What one reader of a file has seen. */
struct reading {
	u64 number;	/* of this pass through the file */
	u64 devices;	/* shown in it */
	bool typed;
};

/*
 * Position 0 is the header, position 1 + id a live device, the positions from FIRST_GONE the
 * devices that are gone, in the order in which they went. One that goes between two reads, and was
 * shown before, is not shown again, unless another reader has been there meanwhile.
 */
#define FIRST_GONE	(1 + FABSTAT_MAX_QUEUES)

/* Returns the first device from @pos on, which becomes its position; NULL behind the last. */
static struct fabstat_device *find_device(const struct reading *reading, loff_t *pos)
{
	struct fabstat_device *dev;

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

static void show_header(struct fabstat_records *out, const struct reading *reading)
{
	struct seq_file *m = out->m;
	loff_t first = 1;
	unsigned int i;

	seq_printf(m, out->typed ? "# fabstat-typed %d\n" : "# fabstat %d\n",
		   out->typed ? TYPED_VERSION : FORMAT_VERSION);
	seq_printf(m, "module version=%s enabled=%d scsi=%d clock=%s loaded_ns=%llu time_ns=%llu stuck_ms=%u",
		   THIS_MODULE->version, fabstat_attached(), fabstat_attached_scsi(),
		   fabstat_clock.counter ? "counter" : "timekeeper", fabstat_globals.loaded_ns,
		   fabstat_time_ns(fabstat_ticks()), READ_ONCE(fabstat_stuck_ms));
	seq_printf(m, " depth_modulus_ns=%llu detail=%d wait_from=%s", fabstat_clock_modulus_ns(),
		   static_key_enabled(&fabstat_detail),
		   FABSTAT_WAIT_FROM);
	seq_printf(m, " memory_bytes=%llu memory_limit_bytes=%llu memory_refused=%llu",
		   fabstat_memory_used(), fabstat_memory_limit(), fabstat_memory_refused());
	seq_printf(m, " devices_seen=%lld untracked=%llu missing=",
		   (s64)atomic64_read(&fabstat_globals.devices_seen),
		   fabstat_untracked());
	for (i = 0; fabstat_missing(i); i++)
		seq_printf(m, "%s%s", i ? "," : "", fabstat_missing(i));
	/* A device that is there now is shown, though it may go meanwhile. */
	seq_printf(m, "%s ends=%d counting_since_ns=%llu\n", i ? "" : "-",
		   !!find_device(reading, &first), fabstat_counting_since_ns());
	/* One number a bucket: its lower bound, which is its predecessor's upper one. */
	seq_puts(m, "buckets from_ns");
	for (i = 0; i < FABSTAT_BUCKETS; i++)
		seq_printf(m, " %llu", fabstat_bucket_from(i));
	seq_putc(m, '\n');
	fabstat_put_lists(out);
}

/* Behind all devices, if there are any: older readers take a record for one's. */
#define END		(LLONG_MAX - 1)
#define END_TOKEN	((void *)&sum)

static void *find_record(const struct reading *reading, loff_t *pos)
{
	struct fabstat_device *dev;

	if (!*pos)
		return SEQ_START_TOKEN;
	dev = find_device(reading, pos);
	if (dev || !reading->devices || *pos > END)
		return dev;
	*pos = END;
	return END_TOKEN;
}

static void *stats_start(struct seq_file *m, loff_t *pos)
{
	static u64 readings;	/* fabstat_lock */
	struct reading *reading = m->private;

	mutex_lock(&fabstat_lock);
	if (!*pos) {
		reading->number = ++readings;
		reading->devices = 0;
	}
	return find_record(reading, pos);
}

static void *stats_next(struct seq_file *m, void *record, loff_t *pos)
{
	struct reading *reading = m->private;

	if (record != SEQ_START_TOKEN && record != END_TOKEN) {
		((struct fabstat_device *)record)->shown_in = reading->number;
		reading->devices++;
	}
	++*pos;
	return find_record(reading, pos);
}

static void stats_stop(struct seq_file *m, void *record)
{
	mutex_unlock(&fabstat_lock);
}

static int stats_show(struct seq_file *m, void *record)
{
	const struct reading *reading = m->private;
	struct fabstat_records out = { .m = m, .typed = reading->typed };

	if (record == SEQ_START_TOKEN)
		show_header(&out, reading);
	else if (record == END_TOKEN)
		fabstat_put_end(&out, reading->devices);
	else
		show_device(&out, record);
	return 0;
}

static const struct seq_operations stats_ops = {
	.start = stats_start,
	.next = stats_next,
	.stop = stats_stop,
	.show = stats_show,
};

static int open_reading(struct file *file, bool typed)
{
	struct reading *reading = __seq_open_private(file, &stats_ops, sizeof(*reading));
	struct seq_file *m;

	if (!reading)
		return -ENOMEM;
	reading->typed = typed;
	m = file->private_data;
	/* Without memory for it seq_file allocates its own; it frees either. */
	m->buf = kvmalloc(BUFFER_BYTES, GFP_KERNEL);
	if (m->buf)
		m->size = BUFFER_BYTES;
	return 0;
}

static int stats_open(struct inode *inode, struct file *file)
{
	return open_reading(file, false);
}

static int typed_open(struct inode *inode, struct file *file)
{
	return open_reading(file, true);
}

const struct file_operations fabstat_stats_fops = {
	.owner = THIS_MODULE,
	.open = stats_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = seq_release_private,
};

const struct file_operations fabstat_typed_fops = {
	.owner = THIS_MODULE,
	.open = typed_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = seq_release_private,
};
