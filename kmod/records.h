/* SPDX-License-Identifier: GPL-2.0 */
/* One way to write a record, which becomes text or typed words; see records.c. */
#ifndef FABSTAT_RECORDS_H
#define FABSTAT_RECORDS_H

#include <linux/seq_file.h>
#include <linux/types.h>

/* In the typed file a number: new ones at the end. */
enum fabstat_record_kind {
	FABSTAT_RECORD_DEVICE,
	FABSTAT_RECORD_QUEUE,
	FABSTAT_RECORD_EVENTS,
	FABSTAT_RECORD_OP,
	FABSTAT_RECORD_ERRORS,
	FABSTAT_RECORD_HISTOGRAM,
	FABSTAT_RECORD_DETAIL,
	FABSTAT_RECORD_END,
	FABSTAT_RECORD_KINDS
};

/* What is one word of a list; the typed file has its place there, and the lists in its header. */
enum fabstat_list {
	FABSTAT_LIST_STATE,
	FABSTAT_LIST_LIMIT_OF,
	FABSTAT_LIST_OP,
	FABSTAT_LIST_TIME,
	FABSTAT_LIST_DETAIL,
	FABSTAT_LISTS
};

/* The places in these lists; the places in the list of ops are enum fabstat_op. */
enum fabstat_state { FABSTAT_LIVE, FABSTAT_DYING, FABSTAT_GONE };
enum fabstat_limit_of { FABSTAT_OF_DEVICE, FABSTAT_OF_QUEUE };
enum fabstat_time { FABSTAT_TIME_DEVICE, FABSTAT_TIME_TOTAL, FABSTAT_TIME_REFUSED };
enum fabstat_detailed { FABSTAT_DETAIL_WAIT, FABSTAT_DETAIL_SIZES };

struct fabstat_records {
	struct seq_file *m;
	bool typed;
	u64 *words;	/* of the typed record that has been begun: there is room for the longest */
	unsigned int nr_words;
};

void fabstat_record_begin(struct fabstat_records *out, enum fabstat_record_kind kind, u64 id);
void fabstat_record_end(struct fabstat_records *out);

/* Adds a number; @key is what stands before it in the text: " issued=". */
static inline void fabstat_put_number(struct fabstat_records *out, const char *key, u64 value)
{
	if (out->typed)
		out->words[out->nr_words++] = value;
	else
		seq_put_decimal_ull(out->m, key, value);
}

static inline void fabstat_put_signed(struct fabstat_records *out, const char *key, s64 value)
{
	if (out->typed)
		out->words[out->nr_words++] = value;
	else
		seq_put_decimal_ll(out->m, key, value);
}

/* Adds how many samples fell in @bucket. */
static inline void fabstat_put_bucket(struct fabstat_records *out, unsigned int bucket, u64 count)
{
	if (out->typed) {
		out->words[out->nr_words++] = bucket;
		out->words[out->nr_words++] = count;
		return;
	}
	seq_put_decimal_ull(out->m, " ", bucket);
	seq_put_decimal_ull(out->m, ":", count);
}

void fabstat_put_dev(struct fabstat_records *out, dev_t dev);
void fabstat_put_name(struct fabstat_records *out, const char *key, const char *name, size_t size);
void fabstat_put_word(struct fabstat_records *out, enum fabstat_list list, unsigned int place);
void fabstat_put_event(struct fabstat_records *out, unsigned int event, u64 count);
void fabstat_put_lists(struct fabstat_records *out);
void fabstat_put_end(struct fabstat_records *out, u64 devices);

#endif
