// SPDX-License-Identifier: GPL-2.0
/*
 * The file "stuck": requests that have been under way for longer than stuck_ms, oldest first.
 *
 * Reads the slots, and what blk-mq knows to be started (unseen.c); neither waits for anything, so
 * it works while the device, its driver and the block layer hang.
 */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "attach.h"
#include "books.h"
#include "classify.h"
#include "clock.h"
#include "device.h"
#include "files.h"
#include "unseen.h"

unsigned int fabstat_stuck_ms = 60000;
module_param_named(stuck_ms, fabstat_stuck_ms, uint, 0644);
MODULE_PARM_DESC(stuck_ms, "age in ms from which a request is on the stuck list (default 60000)");

/* A slot that changes while it is being copied is copied again up to this many times. */
#define MAX_TRIES	100

struct stuck_request {
	u64 age_ns;		/* since the first issue or refusal */
	u64 issue_age_ns;	/* since the last issue; 0: waits to be issued again */
	u64 sector;
	u32 bytes;
	u32 times;		/* sent back or refused */
	u16 device;
	u8 op;
	u8 state;		/* of stuck_state */
	dev_t devt;		/* of a disk that may not be in the table */
	char disk[32];
};

enum stuck_state { IN_FLIGHT, SENT_BACK, BEFORE_LOAD, UNTRACKED };

static const char * const state_names[] = {
	[IN_FLIGHT] = "in_flight",
	[SENT_BACK] = "sent_back",
	[BEFORE_LOAD] = "before_load",
	[UNTRACKED] = "untracked",
};

struct stuck_list {
	struct stuck_request *request;	/* NULL: only count */
	unsigned int size, found;
	u64 now;		/* ticks */
	u64 now_monotonic_ns;	/* the same moment as requests are stamped */
	u64 threshold_ns;
};

static const char * const op_names[FABSTAT_OPS] = FABSTAT_OP_NAMES;

enum copied { COPY_NOTHING, COPY_WHOLE, COPY_TORN };

/* Copies what is under way in @slot, unless that changes meanwhile. RCU. */
static enum copied copy_slot(const struct fabstat_slot *slot, struct stuck_request *copy, u64 now)
{
	u64 word = READ_ONCE(slot->issued);
	u64 issued = fabstat_issued_at(word);
	struct fabstat_retry *retry;
	u64 first;

	smp_rmb();	/* of what is written before that word nothing is older */
	retry = rcu_dereference(slot->retry);
	if (!issued && !retry)
		return COPY_NOTHING;
	copy->sector = READ_ONCE(slot->sector);
	copy->bytes = READ_ONCE(slot->bytes);
	copy->device = READ_ONCE(slot->device);
	copy->op = READ_ONCE(slot->op);
	copy->times = retry ? READ_ONCE(retry->times) : 0;
	first = retry ? READ_ONCE(retry->first) : issued;
	smp_rmb();	/* the copies above belong to the issue that is compared below */
	if (READ_ONCE(slot->issued) != word || rcu_access_pointer(slot->retry) != retry)
		return COPY_TORN;
	copy->age_ns = now > first ? fabstat_ticks_to_ns(now - first) : 0;
	copy->issue_age_ns = issued && now > issued ? fabstat_ticks_to_ns(now - issued) : 0;
	copy->state = copy->issue_age_ns ? IN_FLIGHT : SENT_BACK;
	return COPY_WHOLE;
}

static void stuck_add(struct stuck_list *list, const struct stuck_request *request)
{
	if (list->request && list->found < list->size)
		list->request[list->found] = *request;
	list->found++;
}

/* A request that is sent back and issued again all the time is stuck, too: look again. */
static void visit_slot(struct fabstat_slot *slot, unsigned int queue, void *data)
{
	struct stuck_list *list = data;
	struct stuck_request request;
	unsigned int tries = 0;
	enum copied copied;

	rcu_read_lock();
	do
		copied = copy_slot(slot, &request, list->now);
	while (copied == COPY_TORN && ++tries < MAX_TRIES);
	rcu_read_unlock();
	if (copied == COPY_WHOLE && request.age_ns >= list->threshold_ns)
		stuck_add(list, &request);
}

/*
 * A request that no probe saw. How old it is the kernel knows unless the queue keeps no I/O
 * statistics; one of unknown age was there before the probes, however short a time that was.
 */
static void visit_unseen(struct request *rq, struct gendisk *disk, void *data)
{
	u64 begun_ns = fabstat_made_ns(rq);
	struct stuck_request request = {
		.sector = blk_rq_pos(rq),
		.bytes = blk_rq_bytes(rq),
		.device = rq->q->id,
		.op = fabstat_op(rq),
		.state = begun_ns < fabstat_attached_since_ns() ? BEFORE_LOAD : UNTRACKED,
		.devt = disk_devt(disk),
	};
	struct stuck_list *list = data;

	if (begun_ns) {
		request.age_ns = max_t(s64, list->now_monotonic_ns - begun_ns, 0);
		if (request.age_ns < list->threshold_ns)
			return;
	}
	strscpy(request.disk, disk->disk_name, sizeof(request.disk));
	stuck_add(list, &request);
}

static int older_first(const void *a, const void *b)
{
	const struct stuck_request *left = a, *right = b;

	return left->age_ns > right->age_ns ? -1 : left->age_ns < right->age_ns;
}

static void fill_list(struct stuck_list *list)
{
	list->found = 0;
	fabstat_devices_walk(visit_slot, list);
	if (fabstat_attached())
		fabstat_unseen_walk(visit_unseen, list);
}

static void show_request(struct seq_file *m, const struct stuck_request *request)
{
	const struct fabstat_device *dev = NULL;
	const char *disk = request->disk;
	dev_t devt = request->devt;

	if (request->device < FABSTAT_MAX_QUEUES)
		dev = fabstat_device(request->device);
	if (dev && !*disk) {
		disk = dev->identity.disk;
		devt = dev->identity.devt;
	}
	if (!*disk)
		return;
	seq_printf(m, "stuck id=%llu disk=", dev ? dev->serial : 0);
	seq_escape(m, disk, FABSTAT_ESCAPED);
	seq_printf(m, " dev=%u:%u op=%s sector=%llu bytes=%u age_ns=%llu state=%s issue_age_ns=%llu sent_back=%u\n",
		   MAJOR(devt), MINOR(devt), op_names[request->op], request->sector,
		   request->bytes, request->age_ns, state_names[request->state],
		   request->issue_age_ns, request->times);
}

static int stuck_show(struct seq_file *m, void *unused)
{
	struct stuck_list list = {
		.threshold_ns = (u64)READ_ONCE(fabstat_stuck_ms) * NSEC_PER_MSEC,
	};
	unsigned int i, shown, noio;
	int err = 0;

	mutex_lock(&fabstat_lock);
	/* What is written out for memory may wait for the requests that are to be shown. */
	noio = memalloc_noio_save();
	list.now = fabstat_ticks();
	list.now_monotonic_ns = ktime_get_ns();
	fill_list(&list);
	/* Ages are those at list.now, so the second time no request more is old enough. */
	list.size = list.found;
	if (list.size) {
		list.request = kvmalloc_array(list.size, sizeof(*list.request), GFP_KERNEL);
		if (!list.request) {
			err = -ENOMEM;
			goto unlock;
		}
		fill_list(&list);
	}
	shown = min(list.found, list.size);
	sort(list.request, shown, sizeof(*list.request), older_first, NULL);
	seq_puts(m, "# fabstat-stuck 1\n");
	seq_printf(m, "list time_ns=%llu threshold_ns=%llu requests=%u\n",
		   fabstat_time_ns(list.now), list.threshold_ns, shown);
	for (i = 0; i < shown; i++)
		show_request(m, &list.request[i]);
	kvfree(list.request);
unlock:
	memalloc_noio_restore(noio);
	mutex_unlock(&fabstat_lock);
	return err;
}

static int stuck_open(struct inode *inode, struct file *file)
{
	return single_open(file, stuck_show, NULL);
}

const struct file_operations fabstat_stuck_fops = {
	.owner = THIS_MODULE,
	.open = stuck_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = single_release,
};
