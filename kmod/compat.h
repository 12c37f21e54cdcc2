/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between Linux 5.10 and 7.2, and nothing else.
 *
 * Tracepoint prototypes need no entry here: attach.c has the compiler compare each probe with
 * the kernel's own prototype.
 */
#ifndef FABSTAT_COMPAT_H
#define FABSTAT_COMPAT_H

#include <linux/blkdev.h>
#include <linux/blk-mq.h>
#include <linux/bits.h>
#include <linux/preempt.h>
#include <linux/timekeeping.h>
#include <linux/timex.h>
#include <linux/version.h>

/* block_rq_complete passes a blk_status_t since 5.16, before that an errno. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 16, 0)
#define fabstat_status_t blk_status_t
static inline int fabstat_errno(fabstat_status_t status)
{
	return blk_status_to_errno(status);
}
#else
#define fabstat_status_t int
static inline int fabstat_errno(fabstat_status_t status)
{
	return status;
}
#endif

/* A request's disk moved to its queue in 5.17; a queue without a disk has NULL there. */
static inline struct gendisk *fabstat_disk(struct request *rq)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 17, 0)
	return rq->q->disk;
#else
	return rq->rq_disk;
#endif
}

/*
 * Returns the number of the disk that @q has now; 0: none, or nobody knows. A disk's memory is
 * freed a grace period after its queue has lost it.
 */
static inline u64 fabstat_queue_diskseq(struct request_queue *q)
{
	u64 diskseq = 0;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 17, 0)
	struct gendisk *disk;

	rcu_read_lock();
	disk = READ_ONCE(q->disk);
	if (disk)
		diskseq = READ_ONCE(disk->diskseq);
	rcu_read_unlock();
#endif
	return diskseq;
}

/* Since 5.15 a disk has a number that is never given twice. */
static inline u64 fabstat_diskseq(struct gendisk *disk)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 15, 0)
	return disk->diskseq;
#else
	return 0;
#endif
}

/* A disk that has no driver and is never registered; NULL or an error without memory. */
static inline struct gendisk *fabstat_spare_disk(void)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	return blk_alloc_disk(NULL, NUMA_NO_NODE);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(5, 14, 0)
	return blk_alloc_disk(NUMA_NO_NODE);
#else
	return alloc_disk(1);
#endif
}

/* Up to 5.19 a disk's queue has to be cleaned up as well, or its counter stays behind. */
static inline void fabstat_spare_disk_put(struct gendisk *disk)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 14, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(6, 0, 0)
	blk_cleanup_disk(disk);
#else
	put_disk(disk);
#endif
}

/* What NVMe keeps of a request grew in 5.15 (e7006de6c238), or where that was taken over. */
#define FABSTAT_OLD_NVME	(LINUX_VERSION_CODE < KERNEL_VERSION(5, 15, 0))

/* Classes are constant since 6.4. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
#define fabstat_class_t		const struct class
#else
#define fabstat_class_t		struct class
#endif

/* Up to 5.19 a visitor of busy requests is also told whether their tag is reserved. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 0, 0)
#define FABSTAT_BUSY_ITER_ARGS	struct request *rq, void *data
#else
#define FABSTAT_BUSY_ITER_ARGS	struct request *rq, void *data, bool reserved
#endif

/* What a queue wait counts from. */
#ifdef FABSTAT_BIO_STAMP
#define FABSTAT_WAIT_FROM	"submitted"
#else
#define FABSTAT_WAIT_FROM	"made"
#endif

/* Nobody knows. */
#define FABSTAT_UNKNOWN		S64_MIN

/* A time in ns that is shifted by so much is a stamp; of a bio's time only 51 bits are known. */
#define FABSTAT_STAMP_SHIFT	16

/*
 * Returns when @rq was made, in ns of CLOCK_MONOTONIC; 0 if nobody knows. What the kernel does not
 * stamp it clears up to 6.12. 7.2 leaves there what belongs to the request that had this tag
 * before: it stamps only what is in the I/O statistics, and the flushes that it makes itself.
 */
static __always_inline u64 fabstat_made_ns(const struct request *rq)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	if (unlikely(!(rq->rq_flags & RQF_IO_STAT)) &&
	    !(rq->rq_flags & RQF_FLUSH_SEQ && req_op(rq) == REQ_OP_FLUSH))
		return 0;
#endif
	return READ_ONCE(rq->start_time_ns);
}

/*
 * Returns for how many ns, at the stamp @now of CLOCK_MONOTONIC, the block layer has had what @rq
 * carries, or FABSTAT_UNKNOWN; where bios have no stamp, how long ago the request was made, which
 * is after a wait for its tag. A little less than 0 if it was just now, and stamped by another
 * clock.
 */
static __always_inline s64 fabstat_waited_ns(const struct request *rq, u64 now)
{
	u64 from = 0;

#ifdef FABSTAT_BIO_STAMP
	if (likely(rq->bio))
		from = rq->bio->bi_issue.value << FABSTAT_STAMP_SHIFT;
#endif
	if (unlikely(!from))
		from = fabstat_made_ns(rq) << FABSTAT_STAMP_SHIFT;
	return likely(from) ? (s64)(now - from) >> FABSTAT_STAMP_SHIFT : FABSTAT_UNKNOWN;
}

/* On x86 get_cycles() checks at each call that there is a counter; clock.c has done so. */
#ifdef CONFIG_X86_TSC
#define fabstat_read_counter()	rdtsc()
#else
#define fabstat_read_counter()	get_cycles()
#endif

/*
 * Reads the timekeeper's counter and the CLOCK_MONOTONIC_RAW time that belongs to it. Returns
 * the number of clock source changes so far (modulo 256).
 */
static inline u8 fabstat_read_timekeeper(u64 *cycles, u64 *raw_ns)
{
	struct system_time_snapshot snapshot;

#ifdef FABSTAT_SNAPSHOT_ID
	ktime_get_snapshot_id(CLOCK_MONOTONIC, &snapshot);
	*raw_ns = ktime_to_ns(snapshot.monoraw);
#else
	ktime_get_snapshot(&snapshot);
	*raw_ns = ktime_to_ns(snapshot.raw);
#endif
	*cycles = snapshot.cycles;
	return snapshot.cs_was_changed_seq;
}

/*
 * Probes run with preemption disabled up to 6.19. Since 7.0 (a46023d5616e) they are protected
 * by SRCU only, and have to disable it themselves before they touch per-CPU memory. Kbuild looks
 * which of the two this kernel does.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0) && !defined(FABSTAT_PREEMPTIBLE_PROBES)
#error "Kbuild has not found how this kernel protects probes"
#endif
#ifdef FABSTAT_PREEMPTIBLE_PROBES
#define fabstat_probe_enter()	preempt_disable_notrace()
#define fabstat_probe_leave()	preempt_enable_notrace()
#else
#define fabstat_probe_enter()	do { } while (0)
#define fabstat_probe_leave()	do { } while (0)
#endif

#endif
