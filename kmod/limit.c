// SPDX-License-Identifier: GPL-2.0
/*
 * The most that a device may have in flight, which may change while it is in use.
 *
 * A hardware queue has as many tags as its driver has asked for, less what it has reserved for
 * itself; nr_requests may be less. Where all queues share their tags, or the driver keeps a budget
 * of the device's own, as SCSI does with queue_depth, one limit holds for all of them together.
 *
 * The number of queues changes when a controller comes back, nr_requests when somebody writes it,
 * and nothing tells. So both are looked at once a second, and when somebody reads: they are words
 * of the queue itself, on which the device has a reference. Requests are compared with what the
 * last look has found, but for SCSI's queue_depth, which each of them reads.
 */
#include <linux/kernel.h>
#include <linux/percpu-refcount.h>
#include <scsi/scsi_device.h>

#include "device.h"

/* Returns true when one limit holds for all hardware queues of @q together, however many. */
bool fabstat_limit_is_one(const struct request_queue *q)
{
	return q->mq_ops->get_budget || q->tag_set->flags & BLK_MQ_F_TAG_HCTX_SHARED;
}

/* Notes what the tags of @dev and of its queue @q, alive now, allow. */
static void look_at_tags(struct fabstat_device *dev, const struct request_queue *q)
{
	unsigned int nr_queues = max(READ_ONCE(q->nr_hw_queues), 1U);
	unsigned long tags = min_t(unsigned long, READ_ONCE(q->nr_requests), dev->tags);

	tags = tags > dev->reserved_tags ? tags - dev->reserved_tags : 1;
	if (dev->nr_depths == 1 && !dev->tags_are_shared)
		tags *= nr_queues;
	WRITE_ONCE(dev->own_limit, min_t(unsigned long, tags, USHRT_MAX));
	/* What several have counted stays told apart when there is one again. */
	if (dev->nr_depths > 1 && nr_queues > 1)
		dev->limit_is_queues = true;
}

/* Notes the limits of @dev, whose queue @q has a request in flight. Called from probes. */
void fabstat_limit_init(struct fabstat_device *dev, const struct request_queue *q)
{
	dev->tags = q->tag_set->queue_depth;
	dev->reserved_tags = q->tag_set->reserved_tags;
	dev->tags_are_shared = q->tag_set->flags & BLK_MQ_F_TAG_HCTX_SHARED;
	look_at_tags(dev, q);
}

/* Has requests of @dev look at the lower one of its limits. @sdev, which it is, stays meanwhile. */
void fabstat_limit_of_scsi(struct fabstat_device *dev, struct scsi_device *sdev)
{
	bool tags_are_fewer = READ_ONCE(dev->own_limit) < READ_ONCE(sdev->queue_depth);

	WRITE_ONCE(dev->depth->limit_now, tags_are_fewer ? &dev->own_limit : &sdev->queue_depth);
}

/*
 * Holds @q, whose driver does not free its tags then; false if it is going. Up to 5.18 the counter
 * may be gone before its queue: not within a grace period from when the queue began to die.
 */
bool fabstat_queue_hold(struct request_queue *q)
{
	bool held;

	rcu_read_lock();
	held = !blk_queue_dying(q) && percpu_ref_tryget(&q->q_usage_counter);
	rcu_read_unlock();
	return held;
}

void fabstat_queue_release(struct request_queue *q)
{
	percpu_ref_put(&q->q_usage_counter);
}

/* Looks what the limits of @dev, which is not gone, are now. fabstat_lock. */
void fabstat_limit_look(struct fabstat_device *dev)
{
	look_at_tags(dev, dev->queue);
	/* A SCSI device is not freed before its queue has been drained. */
	if (!READ_ONCE(dev->sdev) || !fabstat_queue_hold(dev->queue))
		return;
	fabstat_limit_of_scsi(dev, dev->sdev);
	fabstat_queue_release(dev->queue);
}
