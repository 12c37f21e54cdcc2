// SPDX-License-Identifier: GPL-2.0
/*
 * The slowest requests of each device since details were last switched on, and the file that shows
 * them.
 *
 * By the time to completion from the moment when the block layer got it, or, where nobody knows
 * that, from first issue. Nearly every request is faster than the fastest of those that are kept,
 * and is done with one comparison, which detail.h makes; the others take a lock.
 */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/sort.h>
#include <linux/spinlock.h>

#include "clock.h"
#include "detail.h"
#include "files.h"
#include "memory.h"
#include "slowest.h"

#define NR_KEPT		16
#define NO_CPU		U16_MAX

struct slow_request {
	u64 whole_ns;		/* the two below that do not overlap: the order */
	u64 wait_ns;		/* before the first issue */
	u64 total_ns;		/* first issue to completion */
	u64 device_ns;		/* last issue to completion */
	u64 time_ns;		/* of its first issue, CLOCK_MONOTONIC_RAW */
	u64 sector;
	u32 bytes;
	u32 times;		/* sent back or refused */
	u16 cpu;		/* of the last issue; NO_CPU: unknown */
	u16 queue;
	u8 op;
	u8 error;		/* 0, or of enum fabstat_event */
	u8 reason[FABSTAT_REASONS];	/* of enum fabstat_event, plus 1; 0: none */
};

struct fabstat_slowest {
	raw_spinlock_t lock;
	unsigned int nr;
	struct slow_request request[NR_KEPT];
};

static const char * const op_names[FABSTAT_OPS] = FABSTAT_OP_NAMES;
static const char * const event_names[FABSTAT_EVENTS] = FABSTAT_EVENT_NAMES;

static struct fabstat_slowest *slowest_of(struct fabstat_device *dev)
{
	struct fabstat_slowest *slowest = READ_ONCE(dev->slowest);

	if (slowest)
		return slowest;
	slowest = fabstat_alloc(sizeof(*slowest), FABSTAT_HISTOGRAM);
	if (!slowest) {
		/* None is kept until there is memory to be had: fabstat_devices_retry(). */
		cmpxchg(&dev->slow_floor_ns, 0, U64_MAX);
		/* Unless another CPU had some meanwhile. */
		if (READ_ONCE(dev->slowest))
			cmpxchg(&dev->slow_floor_ns, U64_MAX, 0);
		return NULL;
	}
	raw_spin_lock_init(&slowest->lock);
	return fabstat_publish(&dev->slowest, NULL, slowest);
}

/* Returns which of the requests in @slowest, which is full, is the fastest. */
static unsigned int fastest(const struct fabstat_slowest *slowest)
{
	unsigned int i, found = 0;

	for (i = 1; i < NR_KEPT; i++)
		if (slowest->request[i].whole_ns < slowest->request[found].whole_ns)
			found = i;
	return found;
}

static void slowest_insert(struct fabstat_device *dev, struct fabstat_slowest *slowest,
			   const struct slow_request *request)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&slowest->lock, flags);
	if (slowest->nr < NR_KEPT)
		slowest->request[slowest->nr++] = *request;
	else if (request->whole_ns > dev->slow_floor_ns)
		slowest->request[fastest(slowest)] = *request;
	/* Of the fastest that is kept, and 0 until the list is full. */
	if (slowest->nr == NR_KEPT)
		WRITE_ONCE(dev->slow_floor_ns, slowest->request[fastest(slowest)].whole_ns);
	raw_spin_unlock_irqrestore(&slowest->lock, flags);
}

static noinline void slowest_keep(const struct fabstat_place *place,
				  const struct fabstat_done *done,
				  const struct fabstat_extra *extra, u64 wait_ns, u64 total_ns)
{
	const struct fabstat_retry *retry = fabstat_retry(place->slot);
	struct fabstat_slowest *slowest = slowest_of(place->dev);
	struct slow_request request = {
		.time_ns = fabstat_time_ns(done->now) - total_ns,
		.whole_ns = wait_ns + total_ns,
		.wait_ns = wait_ns,
		.total_ns = total_ns,
		.device_ns = done->ns,
		.sector = place->slot->sector,
		.bytes = place->slot->bytes,
		.times = retry ? retry->times : 0,
		.cpu = extra ? READ_ONCE(extra->cpu) : NO_CPU,
		.queue = done->rq->mq_hctx->queue_num,
		.op = done->op,
		.error = done->error,
	};

	if (!slowest)
		return;
	if (retry)
		memcpy(request.reason, retry->reason, sizeof(request.reason));
	slowest_insert(place->dev, slowest, &request);
}

/* Keeps the request at @place if it is one of the slowest so far. Called from probes. */
void fabstat_slowest_note(const struct fabstat_place *place, const struct fabstat_done *done,
			  const struct fabstat_extra *extra)
{
	const struct fabstat_retry *retry = fabstat_retry(place->slot);
	u64 wait_ns = extra ? READ_ONCE(extra->wait_ns) : 0;
	u64 total_ns = done->ns;

	if (retry && retry->first_issue)
		total_ns = fabstat_ticks_to_ns(fabstat_elapsed(retry->first_issue, done->now));
	if (wait_ns + total_ns > READ_ONCE(place->dev->slow_floor_ns))
		slowest_keep(place, done, extra, wait_ns, total_ns);
}

static void forget_slowest(struct fabstat_device *dev)
{
	struct fabstat_slowest *slowest = READ_ONCE(dev->slowest);
	unsigned long flags;

	if (!slowest)
		return;
	raw_spin_lock_irqsave(&slowest->lock, flags);
	slowest->nr = 0;
	WRITE_ONCE(dev->slow_floor_ns, 0);
	raw_spin_unlock_irqrestore(&slowest->lock, flags);
}

/* Begins the lists of all devices that are not gone anew. */
void fabstat_slowest_begin(void)
{
	struct fabstat_device *dev;
	unsigned int id;

	mutex_lock(&fabstat_lock);
	for (id = 0; id < FABSTAT_MAX_QUEUES; id++) {
		dev = fabstat_device(id);
		if (dev)
			forget_slowest(dev);
	}
	mutex_unlock(&fabstat_lock);
}

static int slower_first(const void *a, const void *b)
{
	const struct slow_request *left = a, *right = b;

	return left->whole_ns > right->whole_ns ? -1 : left->whole_ns < right->whole_ns;
}

static void show_request(struct seq_file *m, const struct fabstat_device *dev,
			 const struct slow_request *request)
{
	unsigned int i;

	seq_printf(m, "slow id=%llu disk=", dev->serial);
	seq_escape(m, dev->identity.disk, FABSTAT_ESCAPED);
	seq_printf(m, " op=%s time_ns=%llu total_ns=%llu device_ns=%llu wait_ns=%llu sector=%llu bytes=%u queue=%u",
		   op_names[request->op], request->time_ns, request->total_ns, request->device_ns,
		   request->wait_ns, request->sector, request->bytes, request->queue);
	if (request->cpu == NO_CPU)
		seq_puts(m, " cpu=-");
	else
		seq_printf(m, " cpu=%u", request->cpu);
	seq_printf(m, " error=%s sent_back=%u reasons=",
		   request->error ? event_names[request->error] : "-", request->times);
	for (i = 0; i < FABSTAT_REASONS && request->reason[i]; i++)
		seq_printf(m, "%s%s", i ? "," : "", event_names[request->reason[i] - 1]);
	seq_puts(m, i ? "\n" : "-\n");
}

static void show_device(struct seq_file *m, struct fabstat_device *dev)
{
	static struct slow_request copy[NR_KEPT];	/* fabstat_lock */
	struct fabstat_slowest *slowest = READ_ONCE(dev->slowest);
	unsigned long flags;
	unsigned int i, nr;

	if (!slowest)
		return;
	raw_spin_lock_irqsave(&slowest->lock, flags);
	nr = slowest->nr;
	memcpy(copy, slowest->request, sizeof(copy));
	raw_spin_unlock_irqrestore(&slowest->lock, flags);
	sort(copy, nr, sizeof(*copy), slower_first, NULL);
	for (i = 0; i < nr; i++)
		show_request(m, dev, &copy[i]);
}

static int slowest_show(struct seq_file *m, void *unused)
{
	struct fabstat_device *dev;
	unsigned int id;

	mutex_lock(&fabstat_lock);
	seq_puts(m, "# fabstat-slowest 1\n");
	seq_printf(m, "list kept=%u time_ns=%llu\n", NR_KEPT, fabstat_time_ns(fabstat_ticks()));
	for (id = 0; id < FABSTAT_MAX_QUEUES; id++) {
		dev = fabstat_device(id);
		if (dev)
			show_device(m, dev);
	}
	list_for_each_entry(dev, &fabstat_gone, gone_node)
		show_device(m, dev);
	mutex_unlock(&fabstat_lock);
	return 0;
}

static int slowest_open(struct inode *inode, struct file *file)
{
	return single_open(file, slowest_show, NULL);
}

const struct file_operations fabstat_slowest_fops = {
	.owner = THIS_MODULE,
	.open = slowest_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = single_release,
};
