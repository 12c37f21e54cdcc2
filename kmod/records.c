// SPDX-License-Identifier: GPL-2.0
/*
 * Writes records, as the text of the file "stats" or as the typed words of "stats.bin".
 *
 * Whoever shows something calls the same functions for both, so that neither file can say what the
 * other does not. A typed record is its kind and its length in bytes, 32 bits each, then what the
 * line of text has, in the same order: a number takes 64 bits, a name its room in the device's
 * identity, a word of a list 64 bits with its place there, and what is counted by bucket or by
 * event 64 bits for the place and 64 for the count.
 */
#include <linux/build_bug.h>
#include <linux/kdev_t.h>
#include <linux/kernel.h>
#include <linux/seq_file.h>
#include <linux/string.h>

#include "classify.h"
#include "files.h"
#include "histogram.h"
#include "records.h"

static const char * const kind_names[] = {
	[FABSTAT_RECORD_DEVICE] = "device",
	[FABSTAT_RECORD_QUEUE] = "queue",
	[FABSTAT_RECORD_EVENTS] = "events",
	[FABSTAT_RECORD_OP] = "op",
	[FABSTAT_RECORD_ERRORS] = "errors",
	[FABSTAT_RECORD_HISTOGRAM] = "histogram",
	[FABSTAT_RECORD_DETAIL] = "detail",
	[FABSTAT_RECORD_END] = "end",
};

static_assert(ARRAY_SIZE(kind_names) == FABSTAT_RECORD_KINDS);

static const char * const event_names[] = FABSTAT_EVENT_NAMES;

static_assert(ARRAY_SIZE(event_names) == FABSTAT_EVENTS);

static const char * const state_names[] = {
	[FABSTAT_LIVE] = "live", [FABSTAT_DYING] = "dying", [FABSTAT_GONE] = "gone",
};

static const char * const limit_names[] = {
	[FABSTAT_OF_DEVICE] = "device", [FABSTAT_OF_QUEUE] = "queue",
};

static const char * const op_names[FABSTAT_OPS] = FABSTAT_OP_NAMES;
static const char * const time_names[] = {
	[FABSTAT_TIME_DEVICE] = "device", [FABSTAT_TIME_TOTAL] = "total",
	[FABSTAT_TIME_REFUSED] = "refused",
};

static const char * const detail_names[] = {
	"time=wait", "size=4KiB", "size=32KiB", "size=256KiB", "size=above"
};

static_assert(ARRAY_SIZE(detail_names) == FABSTAT_DETAIL_SIZES + FABSTAT_SIZE_CLASSES);

static const struct {
	const char *name;
	const char *key;	/* before the word in the text */
	const char * const *word;
	unsigned int words;
} lists[] = {
	[FABSTAT_LIST_STATE] = { "state", " state=", state_names, ARRAY_SIZE(state_names) },
	[FABSTAT_LIST_LIMIT_OF] = {
		"limit_of", " limit_of=", limit_names, ARRAY_SIZE(limit_names)
	},
	[FABSTAT_LIST_OP] = { "op", " op=", op_names, ARRAY_SIZE(op_names) },
	[FABSTAT_LIST_TIME] = { "time", " time=", time_names, ARRAY_SIZE(time_names) },
	[FABSTAT_LIST_DETAIL] = { "detail", " ", detail_names, ARRAY_SIZE(detail_names) },
};

static_assert(ARRAY_SIZE(lists) == FABSTAT_LISTS);

/* The longest record is a histogram with samples in all buckets. */
#define MAX_WORDS	(8 + 2 * FABSTAT_BUCKETS)

static_assert(FABSTAT_EVENTS < FABSTAT_BUCKETS);

/* For a record that the file's buffer may have no room for; fabstat_lock. */
static u64 spare[MAX_WORDS];

/* Every record that is begun is ended. fabstat_lock. */
static void record_begin(struct fabstat_records *out, enum fabstat_record_kind kind)
{
	char *room;

	if (out->typed) {
		out->words = seq_get_buf(out->m, &room) >= sizeof(spare) ? (u64 *)room : spare;
		((u32 *)out->words)[0] = kind;
		out->nr_words = 1;
	} else {
		seq_puts(out->m, kind_names[kind]);
	}
}

/* Begins a record of the device @id. fabstat_lock. */
void fabstat_record_begin(struct fabstat_records *out, enum fabstat_record_kind kind, u64 id)
{
	record_begin(out, kind);
	fabstat_put_number(out, " id=", id);
}

void fabstat_record_end(struct fabstat_records *out)
{
	size_t bytes = out->nr_words * sizeof(out->words[0]);

	if (!out->typed) {
		seq_putc(out->m, '\n');
		return;
	}
	((u32 *)out->words)[1] = bytes;
	if (out->words == spare)
		seq_write(out->m, spare, bytes);
	else
		seq_commit(out->m, bytes);
}

void fabstat_put_dev(struct fabstat_records *out, dev_t dev)
{
	if (out->typed)
		out->words[out->nr_words++] = (u64)MAJOR(dev) << 32 | MINOR(dev);
	else
		seq_printf(out->m, " dev=%u:%u", MAJOR(dev), MINOR(dev));
}

/* Names come from drivers, which may put blanks into them. @size is a multiple of 8. */
void fabstat_put_name(struct fabstat_records *out, const char *key, const char *name, size_t size)
{
	if (out->typed) {
		strscpy_pad((char *)&out->words[out->nr_words], name, size);
		out->nr_words += size / sizeof(out->words[0]);
		return;
	}
	seq_puts(out->m, key);
	seq_escape(out->m, name, FABSTAT_ESCAPED);
}

void fabstat_put_word(struct fabstat_records *out, enum fabstat_list list, unsigned int place)
{
	if (out->typed) {
		out->words[out->nr_words++] = place;
		return;
	}
	seq_puts(out->m, lists[list].key);
	seq_puts(out->m, lists[list].word[place]);
}

void fabstat_put_event(struct fabstat_records *out, unsigned int event, u64 count)
{
	if (out->typed) {
		out->words[out->nr_words++] = event;
		out->words[out->nr_words++] = count;
		return;
	}
	seq_printf(out->m, " %s=%llu", event_names[event], count);
}

static void put_list(struct seq_file *m, const char * const words[], unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		seq_putc(m, ' ');
		seq_puts(m, words[i]);
	}
	seq_putc(m, '\n');
}

/*
 * Ends the header: the names of all events; in the typed file the lists as well, and zeros, at
 * least one, up to the first record's place, a multiple of 8.
 */
void fabstat_put_lists(struct fabstat_records *out)
{
	struct seq_file *m = out->m;
	unsigned int i;

	seq_puts(m, "event_names");
	put_list(m, event_names, ARRAY_SIZE(event_names));
	if (!out->typed)
		return;
	for (i = 0; i < FABSTAT_LISTS; i++) {
		seq_printf(m, "list %s", lists[i].name);
		put_list(m, lists[i].word, lists[i].words);
	}
	do {
		seq_putc(m, '\0');
	} while (!seq_has_overflowed(m) && !IS_ALIGNED(m->count, sizeof(u64)));
}

/* Ends a reading of so many @devices: what is cut short lacks this. */
void fabstat_put_end(struct fabstat_records *out, u64 devices)
{
	record_begin(out, FABSTAT_RECORD_END);
	fabstat_put_number(out, " devices=", devices);
	fabstat_record_end(out);
}
