/* SPDX-License-Identifier: GPL-2.0 */
/*
 * fabstat: every block request's time and every refusal, per device.
 *
 *	tracepoint -> fabstat_device (by q->id) -> fabstat_slot (by tag): when was it issued
 *	                    |
 *	                    +-> fabstat_cpu: counters of this CPU -> fabstat_histogram
 *
 * A request is known by its own index: its scheduler tag when the queue has an I/O scheduler,
 * its driver tag otherwise. It keeps that index from allocation to its end, through any number
 * of requeues (a driver tag under a scheduler does not). Scheduler tags are numbered per device
 * and hardware queue, driver tags per tag set and hardware queue, so slots of the second kind
 * belong to a fabstat_set that all LUNs of a host share.
 *
 * Counters are written by their own CPU only, with single instructions that neither interrupts
 * nor preemption can split (local64_t), and summed by readers. Memory is taken on first use
 * from within the probes, which must not sleep, and accounted against a ceiling (memory.c).
 *
 * The reference on the request_queue keeps its id from being given to another queue while the
 * device is in the table; a worker retires the devices of dying queues once a second.
 */
#ifndef FABSTAT_H
#define FABSTAT_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/types.h>
#include <asm/local64.h>

#include "classify.h"
#include "clock.h"
#include "compat.h"
#include "histogram.h"

struct Scsi_Host;
struct scsi_cmnd;
struct scsi_device;

/* Queue ids are small numbers, given out lowest first; a queue beyond this is not counted. */
#define FABSTAT_MAX_QUEUES	8192
/* The devices that were removed last stay readable, so that their final counts are not lost. */
#define FABSTAT_MAX_GONE	16

/* The times a request leaves behind. */
enum fabstat_kind {
	FABSTAT_DIRECT,		/* issue to completion, went through at the first issue */
	FABSTAT_AGAIN_DEVICE,	/* last issue to completion, issued more than once */
	FABSTAT_AGAIN_TOTAL,	/* first issue to completion, issued more than once */
	FABSTAT_REFUSED,	/* first refusal to the issue that went through */
	FABSTAT_KINDS
};

/* Of the 20 that one device could have on one CPU: with the counters these are 64 KiB. */
#define FABSTAT_MAX_HISTOGRAMS	15

struct fabstat_histogram {
	local64_t bucket[FABSTAT_BUCKETS];
};

/*
 * One device's counters on one CPU. A reader gets a consistent set from a running CPU as from a
 * seqcount: issued, completed or sent_back is the first word that an event writes, events the
 * last; the set is whole when they agree.
 */
struct fabstat_cpu {
	local64_t issued[FABSTAT_OPS];
	local64_t completed[FABSTAT_OPS];
	local64_t sent_back[FABSTAT_OPS];	/* issued, then requeued */
	local64_t bytes[FABSTAT_OPS];		/* completed */
	local64_t device_ns[FABSTAT_OPS];	/* sum of last issue to completion */
	local64_t again_ns[FABSTAT_OPS];	/* sum of first to last issue */
	local64_t refused_ns[FABSTAT_OPS];	/* sum of first refusal to last issue */
	local64_t refused[FABSTAT_OPS];		/* requests completed after a refusal */
	local64_t errors[FABSTAT_OPS][FABSTAT_ERRORS];
	/*
	 * Integral of the number in flight over time: each issue subtracts the time, each
	 * completion adds it, and the reader adds (in flight) * now. In ticks modulo 2^64.
	 */
	local64_t depth_ticks;
	local64_t at_limit_ns;
	local64_t events;
	local64_t rare[FABSTAT_EVENTS];
	struct fabstat_histogram *histogram[FABSTAT_OPS][FABSTAT_KINDS];
};

/* What is remembered of a request that was refused or sent back, until it completes. */
struct fabstat_retry {
	struct rcu_head rcu;
	u64 first_issue;	/* ticks; 0: refused before it was ever issued */
	u64 first_refusal;	/* ticks; 0: sent back, but not by a refusal */
	u64 first;		/* ticks, whichever came first */
	u64 end_sector;		/* tells the request from a later one at the same index */
	u32 times;
};

/*
 * The upper bits of fabstat_slot.issued. They make the time since then too long for the fast
 * path of a completion, which so needs no other test of what kind of slot it has found. The
 * clock itself is far from them: 2^62 ticks are decades.
 */
#define FABSTAT_IDLE	BIT_ULL(63)			/* alone: no request */
#define FABSTAT_PAST	(BIT_ULL(63) | BIT_ULL(62))	/* there is a retry; alone: not in flight */

/* One request between issue and completion; 32 bytes, so that two share a cache line. */
struct fabstat_slot {
	u64 issued;		/* ticks, with the bits above */
	u64 sector;
	struct fabstat_retry *retry;	/* RCU */
	u32 bytes;
	u16 device;		/* queue id */
	u8 op;
	u8 refusal;		/* what the target or driver said to this issue was a refusal */
};

#define FABSTAT_CHUNK_SLOTS	128
#define FABSTAT_CHUNKS		(BLK_MQ_MAX_DEPTH / FABSTAT_CHUNK_SLOTS)

struct fabstat_chunk {
	struct fabstat_slot slot[FABSTAT_CHUNK_SLOTS];
};

/* The slots of one hardware queue, in chunks taken on first use. */
struct fabstat_table {
	struct fabstat_chunk *chunk[FABSTAT_CHUNKS];
};

/* A tag set: a SCSI host, an NVMe controller, or one disk's own. */
struct fabstat_set {
	struct list_head node;			/* RCU */
	struct list_head unused_node;
	struct blk_mq_tag_set *tag_set;		/* key only, never followed */
	u64 walk;				/* fabstat_slots_walk() was here */
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
	bool dying;			/* seen dying at the previous scan */
	u64 gone_ns;			/* when it was retired, 0: live */
	s64 eh_before;			/* of the set's eh_wakeups, those before this device */
	s64 eh_wakeups;			/* in the end, when there is no set any more */
	u64 at_limit_shown_ns;		/* fabstat_lock */
	struct list_head gone_node;
	atomic64_t forgotten;		/* in flight when the probes were taken off, or lost */
	u64 depth_base_ns;		/* integral of the depth in ticks that are no more */
	const unsigned short *limit_now; /* &own_limit, or the SCSI device's queue_depth */
	unsigned short own_limit;

	/* written by every request */
	atomic_t depth ____cacheline_aligned_in_smp;
	u32 highest;
	u32 limit;		/* the depth at which limit_since was set */
	u64 limit_since;	/* ticks; 0: below the limit */

	struct fabstat_cpu *cpu[] ____cacheline_aligned_in_smp;
};

/* Requests that could not even be given to a device. */
struct fabstat_globals {
	atomic64_t untracked;	/* no memory, the queue is dying or its id too large */
	atomic64_t devices_seen;
};

extern struct fabstat_globals fabstat_globals;
extern struct fabstat_device *fabstat_devices[FABSTAT_MAX_QUEUES];
extern struct fabstat_device fabstat_no_device;
extern struct fabstat_table fabstat_no_table;
extern struct list_head fabstat_gone;
extern struct mutex fabstat_lock;	/* retiring, reading, switching on and off */
extern unsigned int fabstat_stuck_ms;
extern u64 fabstat_loaded_ns;

/* memory.c */
enum fabstat_need {
	FABSTAT_BOOKS,		/* devices, counters, slots */
	FABSTAT_HISTOGRAM,	/* does without when memory is short */
};

void *fabstat_alloc(size_t bytes, enum fabstat_need need);
void fabstat_free(const void *memory);
void fabstat_uncharge(const void *memory);
u64 fabstat_memory_used(void);
u64 fabstat_memory_limit(void);
u64 fabstat_memory_refused(void);

/* device.c */
struct fabstat_histogram *fabstat_histogram_create(struct fabstat_cpu *cpu, unsigned int op,
						   enum fabstat_kind kind);
struct fabstat_cpu *fabstat_this_cpu(struct fabstat_device *dev);
void fabstat_devices_init(void);
void fabstat_devices_close_ticks(void);
void fabstat_scan_start(void);
void fabstat_devices_exit(void);
s64 fabstat_eh_wakeups(const struct fabstat_device *dev);
struct fabstat_set *fabstat_set_find(const struct blk_mq_tag_set *tag_set);

/* identity.c */
void fabstat_identify(struct fabstat_device *dev, struct request *rq);
void fabstat_identify_forget_scsi(void);

/* slots.c */
/* Returns when the request that @issued is about was issued, in ticks; 0: it is not in flight. */
static inline u64 fabstat_issued_at(u64 issued)
{
	return issued & ~FABSTAT_PAST;
}

struct fabstat_slot *fabstat_slot_create(struct fabstat_device *dev, struct request *rq);
void fabstat_slots_walk(void (*visit)(struct fabstat_slot *slot, void *data), void *data);
void fabstat_slots_forget(void);
void fabstat_table_free(struct fabstat_table *table);
void fabstat_retry_free(struct fabstat_slot *slot);

/* block.c */
void fabstat_probe_issue(void *data, struct request *rq);
void fabstat_probe_complete(void *data, struct request *rq, fabstat_status_t status,
			    unsigned int nr_bytes);
void fabstat_probe_requeue(void *data, struct request *rq);

/* scsi.c */
enum fabstat_event fabstat_scsi_hold(struct scsi_device *sdev);
void fabstat_probe_scsi_done(void *data, struct scsi_cmnd *cmd);
void fabstat_probe_scsi_error(void *data, struct scsi_cmnd *cmd, int answer);
void fabstat_probe_scsi_timeout(void *data, struct scsi_cmnd *cmd);
void fabstat_probe_scsi_eh_wakeup(void *data, struct Scsi_Host *shost);

/* attach.c */
int fabstat_attach_init(void);
void fabstat_attach_exit(void);
int fabstat_attach(void);
void fabstat_detach(void);
bool fabstat_attached_scsi(void);

/* main.c, show.c, stuck.c */
bool fabstat_enabled(void);
void fabstat_change_clock(void);
extern const struct file_operations fabstat_stats_fops;
extern const struct file_operations fabstat_stuck_fops;

/* Counts @event on @dev, on this CPU. Preemption is off. */
static inline void fabstat_count(struct fabstat_cpu *cpu, enum fabstat_event event)
{
	local64_inc(&cpu->rare[event]);
}

/* What a probe works on. */
struct fabstat_place {
	struct fabstat_device *dev;
	struct fabstat_cpu *cpu;	/* this CPU's */
	struct fabstat_slot *slot;
};

/* Returns the device of the queue with @id, or NULL. */
static inline struct fabstat_device *fabstat_device(unsigned int id)
{
	struct fabstat_device *dev = READ_ONCE(fabstat_devices[id]);

	return dev == &fabstat_no_device ? NULL : dev;
}

/*
 * Finds the place of @rq; returns false if any part of it is not there yet, or the fast path is
 * closed to the device. Calls nothing and makes nothing: what is missing points to an empty
 * device or table, so that one test is enough for both. Preemption is off.
 */
static __always_inline bool fabstat_find(struct request *rq, struct fabstat_place *place)
{
	unsigned int queue = rq->mq_hctx->queue_num;
	unsigned int id = rq->q->id;
	int tag = rq->internal_tag;
	struct fabstat_device *dev;
	struct fabstat_chunk *chunk;
	struct fabstat_table *table;
	unsigned int index;

	if (unlikely(id >= FABSTAT_MAX_QUEUES))
		return false;
	dev = READ_ONCE(fabstat_devices[id]);
	if (unlikely(queue >= dev->nr_ready))
		return false;
	place->dev = dev;
	if (tag >= 0) {
		table = READ_ONCE(dev->sched[queue]);
	} else {
		table = READ_ONCE(dev->set->table[queue]);
		tag = rq->tag;
		if (unlikely(tag < 0))
			return false;
	}
	index = tag;
	chunk = READ_ONCE(table->chunk[index / FABSTAT_CHUNK_SLOTS]);
	if (unlikely(!chunk))
		return false;
	place->slot = chunk->slot + index % FABSTAT_CHUNK_SLOTS;
	place->cpu = READ_ONCE(dev->cpu[(unsigned int)raw_smp_processor_id()]);
	return likely(place->cpu);
}

bool fabstat_make(struct request *rq, struct fabstat_place *place);

#endif
