/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device table: what is known of each request queue, by the queue's id.
 *
 * The reference on the request_queue keeps its id from being given to another queue while the
 * device is in the table.
 */
#ifndef FABSTAT_DEVICE_H
#define FABSTAT_DEVICE_H

#include <linux/atomic.h>
#include <linux/blk-mq.h>
#include <linux/cache.h>
#include <linux/cpumask.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "depth.h"
#include "slots.h"

struct fabstat_cpu;
struct fabstat_slowest;
struct scsi_device;

/* Queue ids are small numbers, given out lowest first; queues with higher ids are not counted. */
#define FABSTAT_MAX_QUEUES	8192

/* A tag set: a SCSI host, an NVMe controller, or one disk's own. */
struct fabstat_set {
	struct list_head node;			/* RCU */
	struct list_head unused_node;
	struct blk_mq_tag_set *tag_set;		/* key only, never followed */
	u64 walk;				/* the last fabstat_devices_walk() that was here */
	unsigned int users;			/* devices */
	unsigned int nr_tables;
	atomic64_t eh_wakeups;			/* SCSI: error handler woken */
	struct fabstat_table *table[];		/* by hardware queue */
};

struct fabstat_identity {
	bool known;		/* a disk was seen, the rest is filled in */
	dev_t devt;
	u64 diskseq;
	char disk[32];
	char hctl[40];		/* host:channel:id:lun, "-" unless SCSI */
	char driver[32];
	char parent[32];	/* transport: session1, rport-1:0-2, virtio3, nvme0, ... */
};

struct fabstat_device {
	struct request_queue *queue;
	struct scsi_device *sdev;	/* NULL unless SCSI; valid while a request is in flight */
	struct fabstat_set *set;
	struct fabstat_table **sched;	/* by hardware queue */
	unsigned int nr_tables;
	unsigned int nr_ready;		/* nr_tables once the fast path is open, 0 until then */
	unsigned int id;		/* queue id */
	u64 serial;			/* its name in the files, never given twice */
	u64 seen_ns;			/* CLOCK_MONOTONIC_RAW of its first request */
	struct fabstat_identity identity;
	bool is_nvme;			/* once its disk is known */
	bool dying;			/* seen dying at the previous scan */
	u64 gone_ns;			/* when it was retired, 0: live */
	s64 eh_before;			/* the set's eh_wakeups when this device was first seen */
	s64 eh_wakeups;			/* the final number, once there is no set any more */
	struct list_head gone_node;
	u64 gone_number;		/* in the order in which devices went, from 0 */
	u64 shown_in;			/* fabstat_lock, see show.c */
	u64 depth_base_ns;		/* integral of the depth that was kept in former ticks */
	unsigned short own_limit;	/* by its tags, see limit.c */
	unsigned int tags;		/* of a hardware queue, as its driver has asked for them */
	unsigned int reserved_tags;	/* of these, for the driver itself */
	bool tags_are_shared;		/* by all hardware queues */
	struct fabstat_depth *depth;	/* the device's own, or one a hardware queue */
	unsigned int nr_depths;
	bool limit_is_queues;		/* there are several hardware queues with limits, or were */
	struct fabstat_slowest *slowest;	/* NULL until details are wanted */
	u64 slow_floor_ns;		/* what a request must exceed to be one of these */
	struct fabstat_depth **depth_of; /* by hardware queue, for the fast path */

	struct {
		raw_spinlock_t lock;
		u64 requests;		/* in flight when the probes were taken off, or lost */
		u64 ticks;		/* the sum of the times at which */
	} forgotten ____cacheline_aligned_in_smp;

	struct fabstat_cpu *cpu[] ____cacheline_aligned_in_smp;
};

/* What belongs to no device. */
struct fabstat_globals {
	u64 loaded_ns;
	atomic64_t devices_seen;
};

extern struct fabstat_globals fabstat_globals;
extern struct fabstat_device __rcu *fabstat_devices[FABSTAT_MAX_QUEUES];
/* Stands for a device that has not been seen yet: the fast path is closed to it. */
extern struct fabstat_device fabstat_no_device;
extern struct list_head fabstat_gone;
extern struct mutex fabstat_lock;	/* retiring, reading, switching on and off */

/* Returns the device of the queue with @id, or NULL. Preemption is off, or fabstat_lock. */
static inline struct fabstat_device *fabstat_device(unsigned int id)
{
	struct fabstat_device *dev;

	dev = rcu_dereference_check(fabstat_devices[id],
				    rcu_read_lock_sched_held() || lockdep_is_held(&fabstat_lock));

	return dev == &fabstat_no_device ? NULL : dev;
}

/* device.c */
struct fabstat_device *fabstat_device_create(struct request *rq);
void fabstat_devices_init(void);
void fabstat_devices_scan(void);
void fabstat_devices_retry(void);
void fabstat_devices_walk(fabstat_visit_t visit, void *data);
void fabstat_devices_close_ticks(void);
int fabstat_device_depth(const struct fabstat_device *dev);
void fabstat_devices_exit(void);
s64 fabstat_eh_wakeups(const struct fabstat_device *dev);
struct fabstat_set *fabstat_set_find(const struct blk_mq_tag_set *tag_set);

/* A controller may come back with more queues than it has now, up to one a CPU. */
static inline unsigned int fabstat_tables_of(const struct blk_mq_tag_set *tag_set)
{
	return max(tag_set->nr_hw_queues, nr_cpu_ids);
}

/* room.c */
bool fabstat_room_for_device(const struct request_queue *q);
bool fabstat_room_for_counters(void);
bool fabstat_goes_untracked(const struct request *rq);
void fabstat_count_untracked(void);
u64 fabstat_untracked(void);

/* limit.c */
void fabstat_limit_init(struct fabstat_device *dev, const struct request_queue *q);
void fabstat_limit_of_scsi(struct fabstat_device *dev, struct scsi_device *sdev);
void fabstat_limit_look(struct fabstat_device *dev);
bool fabstat_limit_is_one(const struct request_queue *q);
bool fabstat_queue_hold(struct request_queue *q);
void fabstat_queue_release(struct request_queue *q);

/* identity.c */
void fabstat_identify(struct fabstat_device *dev, struct request *rq);
void fabstat_identify_anew(struct fabstat_device *dev);
void fabstat_identify_forget_scsi(void);

#endif
