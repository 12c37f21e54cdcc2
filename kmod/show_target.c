// SPDX-License-Identifier: GPL-2.0
/*
 * The file "target": what this host has served as a target, one record a line.
 *
 * The format is Documentation/ABI/testing/debugfs-fabstat, as that of "stats". Reading takes
 * fabstat_lock, never anything that a probe waits for.
 */
#include <linux/build_bug.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/string.h>

#include "attach.h"
#include "clock.h"
#include "counters.h"
#include "device.h"
#include "files.h"
#include "memory.h"
#include "nexus.h"
#include "target.h"

#define FORMAT_VERSION	1

static const char * const op_names[FABSTAT_OPS] = FABSTAT_OP_NAMES;
static const char * const answer_names[] = FABSTAT_ANSWER_NAMES;

static_assert(ARRAY_SIZE(answer_names) == FABSTAT_ANSWERS);

/* The counters of one nexus on all CPUs. */
struct totals {
	u64 started[FABSTAT_OPS];
	u64 completed[FABSTAT_OPS];
	u64 forgotten[FABSTAT_OPS];
	u64 bytes[FABSTAT_OPS];
	u64 target_ns[FABSTAT_OPS];
	u64 passed[FABSTAT_PARTS][FABSTAT_OPS];
	u64 passed_ns[FABSTAT_PARTS][FABSTAT_OPS];
	u64 answers[FABSTAT_ANSWERS];
	u64 unmatched;
	u64 untracked;
};

/* Reused by each record; fabstat_lock. */
static struct totals totals;
static u64 buckets[FABSTAT_OPS][FABSTAT_BUCKETS];

static void add_histogram(unsigned int op, const struct fabstat_histogram *histogram,
			  unsigned int cpu)
{
	unsigned int i;

	if (!histogram || fabstat_histogram_spills(histogram, cpu))
		return;
	for (i = 0; i < FABSTAT_BUCKETS; i++)
		buckets[op][i] += local64_read(&histogram->bucket[i]);
}

/* A command is counted as completed before its time is: so the times are read first. */
static void add_cpu(const struct fabstat_nexus_cpu *from, unsigned int cpu)
{
	unsigned int i, part;

	for (i = 0; i < FABSTAT_OPS; i++) {
		add_histogram(i, READ_ONCE(from->histogram[i]), cpu);
		totals.bytes[i] += local64_read(&from->bytes[i]);
		totals.target_ns[i] += local64_read(&from->target_ns[i]);
		for (part = 0; part < FABSTAT_PARTS; part++)
			totals.passed_ns[part][i] += local64_read(&from->passed_ns[part][i]);
	}
	for (i = 0; i < FABSTAT_ANSWERS; i++)
		totals.answers[i] += local64_read(&from->answers[i]);
	totals.unmatched += local64_read(&from->unmatched);
	totals.untracked += local64_read(&from->untracked);
	smp_rmb();	/* pairs with command_complete() and fabstat_target_passes() */
	for (i = 0; i < FABSTAT_OPS; i++) {
		for (part = 0; part < FABSTAT_PARTS; part++)
			totals.passed[part][i] += local64_read(&from->passed[part][i]);
		totals.completed[i] += local64_read(&from->completed[i]);
		totals.forgotten[i] += local64_read(&from->forgotten[i]);
	}
}

static void add_up(const struct fabstat_nexus *nexus)
{
	const struct fabstat_nexus_cpu *counters;
	unsigned int cpu, op;

	memset(&totals, 0, sizeof(totals));
	memset(buckets, 0, sizeof(buckets));
	for_each_possible_cpu(cpu) {
		counters = READ_ONCE(nexus->cpu[cpu]);
		if (counters)
			add_cpu(counters, cpu);
	}
	/* What was completed has been started, whatever CPU started it. */
	smp_rmb();
	for_each_possible_cpu(cpu) {
		counters = READ_ONCE(nexus->cpu[cpu]);
		for (op = 0; counters && op < FABSTAT_OPS; op++)
			totals.started[op] += local64_read(&counters->started[op]);
	}
}

static void show_name(struct seq_file *m, const char *key, const char *name)
{
	seq_puts(m, key);
	seq_escape(m, *name ? name : "-", FABSTAT_ESCAPED);
}

static void show_histogram(struct seq_file *m, const struct fabstat_nexus *nexus,
			   unsigned int op)
{
	u64 count = 0;
	unsigned int i;

	for (i = 0; i < FABSTAT_BUCKETS; i++)
		count += buckets[op][i];
	seq_printf(m, "histogram id=%u op=%s time=target count=%llu", nexus->number,
		   op_names[op], count);
	for (i = 0; i < FABSTAT_BUCKETS; i++)
		if (buckets[op][i])
			seq_printf(m, " %u:%llu", i, buckets[op][i]);
	seq_putc(m, '\n');
}

static void show_op(struct seq_file *m, const struct fabstat_nexus *nexus, unsigned int op)
{
	if (!totals.started[op])
		return;
	seq_printf(m, "op id=%u op=%s started=%llu completed=%llu forgotten=%llu bytes=%llu target_ns=%llu",
		   nexus->number, op_names[op], totals.started[op], totals.completed[op],
		   totals.forgotten[op], totals.bytes[op], totals.target_ns[op]);
	seq_printf(m, " ready=%llu ready_ns=%llu done=%llu done_ns=%llu\n",
		   totals.passed[FABSTAT_READY][op], totals.passed_ns[FABSTAT_READY][op],
		   totals.passed[FABSTAT_DONE][op], totals.passed_ns[FABSTAT_DONE][op]);
	show_histogram(m, nexus, op);
}

static void show_nexus(struct seq_file *m, const struct fabstat_nexus *nexus)
{
	const struct fabstat_nexus_names *names = &nexus->names;
	/* LIO keeps the first eight hex digits of an ISID as text in a number, big end first. */
	__be64 digits = cpu_to_be64(names->isid);
	char isid[sizeof(digits) + 1] = "";
	u64 now = fabstat_ticks();
	unsigned int i;

	add_up(nexus);
	memcpy(isid, &digits, sizeof(digits));
	seq_printf(m, "nexus id=%u", nexus->number);
	show_name(m, " fabric=", names->fabric);
	show_name(m, " initiator=", names->initiator);
	show_name(m, " isid=", isid);
	show_name(m, " target=", names->target);
	show_name(m, " tpg=", names->tpg);
	seq_printf(m, " lun=%llu seen_ns=%llu time_ns=%llu at_target=%llu oldest_ns=%llu",
		   names->lun, nexus->seen_ns, fabstat_time_ns(now), nexus->at_target,
		   nexus->at_target ? fabstat_ticks_to_ns(fabstat_elapsed(nexus->oldest, now)) : 0);
	seq_printf(m, " unmatched=%llu untracked=%llu window=%u", totals.unmatched,
		   totals.untracked, READ_ONCE(nexus->window));
	for (i = 0; i < FABSTAT_ANSWERS; i++)
		seq_printf(m, " %s=%llu", answer_names[i], totals.answers[i]);
	seq_putc(m, '\n');
	for (i = 0; i < FABSTAT_OPS; i++)
		show_op(m, nexus, i);
}

static void show_header(struct seq_file *m)
{
	unsigned int i;

	seq_printf(m, "# fabstat-target %d\n", FORMAT_VERSION);
	seq_printf(m, "module version=%s enabled=%d wanted=%d target=%d loaded_ns=%llu time_ns=%llu",
		   THIS_MODULE->version, fabstat_attached(), fabstat_target_wanted(),
		   fabstat_attached_target(),
		   fabstat_globals.loaded_ns, fabstat_time_ns(fabstat_ticks()));
	seq_printf(m, " parts=%d parts_missed=%llu untracked=%llu crowded=%llu most=%u most_nexuses=%u memory_refused=%llu ends=%d",
		   fabstat_target_parts_seen(), fabstat_target_missed(),
		   fabstat_nexus_untracked(), fabstat_target_crowded(), FABSTAT_TARGET_COMMANDS,
		   FABSTAT_MAX_NEXUSES, fabstat_memory_refused(), !!fabstat_nexus(0));
	seq_printf(m, " counting_since_ns=%llu\n", fabstat_target_counting_since_ns());
	seq_puts(m, "buckets from_ns");
	for (i = 0; i < FABSTAT_BUCKETS; i++)
		seq_printf(m, " %llu", fabstat_bucket_from(i));
	seq_putc(m, '\n');
}

/* Behind all nexuses, if there are any: older readers take a record for one's. */
#define END_TOKEN	((void *)&totals)

#define END		(LLONG_MAX - 1)

/* Position 0 is the header, position n the nexus that came as the nth. */
static void *find_record(loff_t *pos)
{
	struct fabstat_nexus *nexus = NULL;

	if (!*pos)
		return SEQ_START_TOKEN;
	if (*pos <= FABSTAT_MAX_NEXUSES)
		nexus = fabstat_nexus(*pos - 1);
	if (nexus || *pos == 1 || *pos > END)
		return nexus;
	*pos = END;
	return END_TOKEN;
}

static void *target_start(struct seq_file *m, loff_t *pos)
{
	mutex_lock(&fabstat_lock);
	fabstat_target_look();
	return find_record(pos);
}

static void *target_next(struct seq_file *m, void *record, loff_t *pos)
{
	++*pos;
	return find_record(pos);
}

static void target_stop(struct seq_file *m, void *record)
{
	mutex_unlock(&fabstat_lock);
}

static int target_show(struct seq_file *m, void *record)
{
	if (record == SEQ_START_TOKEN)
		show_header(m);
	else if (record == END_TOKEN)
		seq_puts(m, "end\n");
	else
		show_nexus(m, record);
	return 0;
}

static const struct seq_operations target_ops = {
	.start = target_start,
	.next = target_next,
	.stop = target_stop,
	.show = target_show,
};

static int target_open(struct inode *inode, struct file *file)
{
	return seq_open(file, &target_ops);
}

const struct file_operations fabstat_target_fops = {
	.owner = THIS_MODULE,
	.open = target_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = seq_release,
};
