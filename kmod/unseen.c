// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that no probe saw being issued, though the driver has them: above all those that were
 * outstanding when the module was loaded, on a host that hangs.
 *
 * They are looked for when the stuck list is read. That takes references as blk-mq's own timeouts
 * do, and waits for nothing.
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/device.h>

#include "compat.h"
#include "place.h"
#include "unseen.h"

/* What all disks have in common; neither is an exported symbol. */
static fabstat_class_t *disks_class;
static const struct device_type *disks_type;

struct unseen_walk {
	struct gendisk *disk;
	fabstat_unseen_t visit;
	void *data;
};

/* Learns what a disk is from one that is never registered. Returns 0 or -errno. */
int fabstat_unseen_init(void)
{
	struct gendisk *disk = fabstat_spare_disk();

	if (IS_ERR_OR_NULL(disk))
		return disk ? PTR_ERR(disk) : -ENOMEM;
	disks_class = disk_to_dev(disk)->class;
	disks_type = disk_to_dev(disk)->type;
	fabstat_spare_disk_put(disk);
	return 0;
}

/* Visits @rq unless it belongs to another disk of the same tag set. A reference keeps it. */
static bool look_at(FABSTAT_BUSY_ITER_ARGS)
{
	struct unseen_walk *walk = data;

	if (rq->q == walk->disk->queue && blk_mq_rq_state(rq) == MQ_RQ_IN_FLIGHT &&
	    !fabstat_sees(rq))
		walk->visit(rq, walk->disk, walk->data);
	return true;
}

/* Calls @visit on each request that a driver has and the books do not. May sleep. */
void fabstat_unseen_walk(fabstat_unseen_t visit, void *data)
{
	struct unseen_walk walk = { .visit = visit, .data = data };
	struct class_dev_iter iter;
	struct device *device;

	class_dev_iter_init(&iter, disks_class, NULL, disks_type);
	while ((device = class_dev_iter_next(&iter))) {
		struct request_queue *q;

		walk.disk = dev_to_disk(device);
		q = walk.disk->queue;
		if (!q || !q->mq_ops || !fabstat_queue_hold(q))
			continue;
		blk_mq_tagset_busy_iter(q->tag_set, look_at, &walk);
		fabstat_queue_release(q);
	}
	class_dev_iter_exit(&iter);
}
