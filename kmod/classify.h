/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is counted, under which name, and the rules that pick the counter.
 *
 * Pure: the unit tests compile this file in user space. The names are the ABI of the
 * debugfs file (Documentation/ABI/testing/debugfs-fabstat): append, never rename.
 */
#ifndef FABSTAT_CLASSIFY_H
#define FABSTAT_CLASSIFY_H

#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/types.h>
#else
#include <errno.h>
#include <stdbool.h>
#endif

enum fabstat_op {
	FABSTAT_READ,
	FABSTAT_WRITE,
	FABSTAT_FLUSH,
	FABSTAT_DISCARD,
	FABSTAT_OTHER,		/* passthrough, write zeroes, zone commands, ... */
	FABSTAT_OPS
};

/* clang-format off */
#define FABSTAT_OP_NAMES {		\
	[FABSTAT_READ] = "read",	\
	[FABSTAT_WRITE] = "write",	\
	[FABSTAT_FLUSH] = "flush",	\
	[FABSTAT_DISCARD] = "discard",	\
	[FABSTAT_OTHER] = "other",	\
}

/* clang-format on */

/*
 * Rare events, counted per device and CPU. All but the last group are 0 on a healthy device.
 */
enum fabstat_event {
	/* the target's answer to a command (SAM status) */
	FABSTAT_TASK_SET_FULL,
	FABSTAT_BUSY,
	/* the driver's answer to queuecommand() */
	FABSTAT_HOST_BUSY,
	FABSTAT_DEVICE_BUSY,
	FABSTAT_TARGET_BUSY,	/* iSCSI: the CmdSN window is closed */
	FABSTAT_EH_RETRY,
	FABSTAT_DRIVER_OTHER,	/* any other non-zero answer; the midlayer reads it as host busy */
	/* refused before the driver saw the request */
	FABSTAT_HELD_DEVICE,	/* the device or its session is blocked, quiesced or offline */
	FABSTAT_HELD_RECOVERY,	/* the host is in error recovery or has blocked itself */
	FABSTAT_HELD_BACKOFF,	/* pause that follows a busy answer of device, target or host */
	FABSTAT_HELD_TARGET,	/* the target's own limit in the initiator (iSCSI: cmds_max) */
	FABSTAT_HELD_OTHER,	/* host limit, or a device that is not SCSI */
	/* every block_rq_requeue, by how far the request had got */
	FABSTAT_REQUEUED_UNSTARTED,
	FABSTAT_REQUEUED_BY_DRIVER,
	FABSTAT_REQUEUED_BY_TARGET,
	/* timeouts */
	FABSTAT_TIMEOUT,	/* each expiry of a SCSI command's timer, forgiven or not */
	FABSTAT_TIMED_OUT,	/* requests that came back with the last expiry not forgiven */
	/* errors at completion */
	FABSTAT_ERROR_TIMEOUT,
	FABSTAT_ERROR_TRANSPORT,
	FABSTAT_ERROR_TARGET,
	FABSTAT_ERROR_RESERVATION,
	FABSTAT_ERROR_MEDIUM,
	FABSTAT_ERROR_PROTECTION,
	FABSTAT_ERROR_UNSUPPORTED,
	FABSTAT_ERROR_SPACE,
	FABSTAT_ERROR_OFFLINE,
	FABSTAT_ERROR_RESOURCE,
	FABSTAT_ERROR_IO,
	/* NVMe, where the block layer says no more than that it was an error */
	FABSTAT_ERROR_ABORTED,	/* by request, or because the controller was reset */
	FABSTAT_ERROR_PATH,	/* ANA: the namespace is not to be had through this controller */
	/* what the books cannot say more about */
	FABSTAT_PARTIAL,	/* partial completions; the request went on */
	FABSTAT_NEVER_ISSUED,	/* ended while it waited for its first issue, or another one */
	FABSTAT_UNMATCHED,	/* completed, its issue was not seen (it began before load) */
	FABSTAT_UNTRACKED,	/* issued, but no memory was left to remember it */
	FABSTAT_NO_HISTOGRAM,	/* counted, but no memory was left for a histogram */
	FABSTAT_NO_RETRY,	/* sent back, but no memory was left to remember since when */
	/* the data of the request went another way */
	FABSTAT_FAILED_OVER,	/* NVMe: to another path of the disk */
	/* what an NVMe command was answered with that was then sent again */
	FABSTAT_NVME_ABORTED,
	FABSTAT_NVME_PATH,
	FABSTAT_NVME_NOT_READY,	/* the namespace is not ready, or the command was interrupted */
	FABSTAT_EVENTS
};

/* clang-format off */
#define FABSTAT_EVENT_NAMES {					\
	[FABSTAT_TASK_SET_FULL] = "task_set_full", \
	[FABSTAT_BUSY] = "busy", \
	[FABSTAT_HOST_BUSY] = "host_busy", \
	[FABSTAT_DEVICE_BUSY] = "device_busy", \
	[FABSTAT_TARGET_BUSY] = "target_busy", \
	[FABSTAT_EH_RETRY] = "eh_retry", \
	[FABSTAT_DRIVER_OTHER] = "driver_other", \
	[FABSTAT_HELD_DEVICE] = "held_device", \
	[FABSTAT_HELD_RECOVERY] = "held_recovery", \
	[FABSTAT_HELD_BACKOFF] = "held_backoff", \
	[FABSTAT_HELD_TARGET] = "held_target", \
	[FABSTAT_HELD_OTHER] = "held_other", \
	[FABSTAT_REQUEUED_UNSTARTED] = "requeued_unstarted", \
	[FABSTAT_REQUEUED_BY_DRIVER] = "requeued_by_driver", \
	[FABSTAT_REQUEUED_BY_TARGET] = "requeued_by_target", \
	[FABSTAT_TIMEOUT] = "timeout", \
	[FABSTAT_TIMED_OUT] = "timed_out", \
	[FABSTAT_ERROR_TIMEOUT] = "error_timeout", \
	[FABSTAT_ERROR_TRANSPORT] = "error_transport", \
	[FABSTAT_ERROR_TARGET] = "error_target", \
	[FABSTAT_ERROR_RESERVATION] = "error_reservation", \
	[FABSTAT_ERROR_MEDIUM] = "error_medium", \
	[FABSTAT_ERROR_PROTECTION] = "error_protection", \
	[FABSTAT_ERROR_UNSUPPORTED] = "error_unsupported", \
	[FABSTAT_ERROR_SPACE] = "error_space", \
	[FABSTAT_ERROR_OFFLINE] = "error_offline", \
	[FABSTAT_ERROR_RESOURCE] = "error_resource", \
	[FABSTAT_ERROR_IO] = "error_io", \
	[FABSTAT_ERROR_ABORTED] = "error_aborted", \
	[FABSTAT_ERROR_PATH] = "error_path", \
	[FABSTAT_PARTIAL] = "partial", \
	[FABSTAT_NEVER_ISSUED] = "never_issued", \
	[FABSTAT_UNMATCHED] = "unmatched", \
	[FABSTAT_UNTRACKED] = "untracked", \
	[FABSTAT_NO_HISTOGRAM] = "no_histogram", \
	[FABSTAT_NO_RETRY] = "no_retry", \
	[FABSTAT_FAILED_OVER] = "failed_over", \
	[FABSTAT_NVME_ABORTED] = "nvme_aborted", \
	[FABSTAT_NVME_PATH] = "nvme_path", \
	[FABSTAT_NVME_NOT_READY] = "nvme_not_ready", \
}

/* clang-format on */

/* Classes of requests by size: up to 4, 32 and 256 KiB, and above. */
#define FABSTAT_SIZE_CLASSES	4
#define FABSTAT_FIRST_SIZE	4096
#define FABSTAT_SIZE_NAMES	{ "4KiB", "32KiB", "256KiB", "above" }

/* Returns true if requests of kind @op are told apart by size. */
static inline bool fabstat_has_size(unsigned int op)
{
	return op == FABSTAT_READ || op == FABSTAT_WRITE;
}

/* Returns the class of a request of @bytes. */
static inline unsigned int fabstat_size_class(unsigned int bytes)
{
	return bytes <= FABSTAT_FIRST_SIZE ? 0 : 1 + (bytes > 32768) + (bytes > 262144);
}

/* The classes of errors, which are counted per op as well; contiguous among the events. */
#define FABSTAT_FIRST_ERROR	FABSTAT_ERROR_TIMEOUT
#define FABSTAT_ERRORS		(FABSTAT_ERROR_PATH - FABSTAT_FIRST_ERROR + 1)

/* SAM-5 5.3.1 and scsi_proto.h, the same on every kernel; status_byte() is not. */
#define FABSTAT_SAM_CHECK_CONDITION	0x02
#define FABSTAT_SAM_BUSY		0x08
#define FABSTAT_SAM_RESERVATION		0x18
#define FABSTAT_SAM_TASK_SET_FULL	0x28
#define FABSTAT_SAM_TASK_ABORTED	0x40

/*
 * Returns what kind of command @cdb, of at least 6 bytes, is. Those of variable length, and
 * WRITE SAME of anything but holes, are other.
 */
static inline enum fabstat_op fabstat_cdb_op(const unsigned char *cdb)
{
	/* READ(6), (10), (12) and (16) differ in two bits alone, and so do WRITEs. */
	if ((cdb[0] & 0x5f) == 0x08)
		return FABSTAT_READ;
	if ((cdb[0] & 0x5f) == 0x0a)
		return FABSTAT_WRITE;
	switch (cdb[0]) {
	case 0x2e: /* WRITE AND VERIFY(10), (12), (16) */
	case 0xae:
	case 0x8e:
	case 0x89: /* COMPARE AND WRITE */
		return FABSTAT_WRITE;
	case 0x35: /* SYNCHRONIZE CACHE(10), (16) */
	case 0x91:
		return FABSTAT_FLUSH;
	case 0x42: /* UNMAP */
		return FABSTAT_DISCARD;
	case 0x41: /* WRITE SAME(10), (16), whose bit 3 is UNMAP */
	case 0x93:
		return cdb[1] & 0x08 ? FABSTAT_DISCARD : FABSTAT_OTHER;
	default:
		return FABSTAT_OTHER;
	}
}

/* What a target answers, other than GOOD. */
enum fabstat_answer {
	FABSTAT_ANSWER_CHECK,
	FABSTAT_ANSWER_BUSY,
	FABSTAT_ANSWER_FULL,
	FABSTAT_ANSWER_RESERVATION,
	FABSTAT_ANSWER_ABORTED,
	FABSTAT_ANSWER_OTHER,
	FABSTAT_ANSWERS
};

/* clang-format off */
#define FABSTAT_ANSWER_NAMES {					\
	[FABSTAT_ANSWER_CHECK] = "check_condition",		\
	[FABSTAT_ANSWER_BUSY] = "busy",				\
	[FABSTAT_ANSWER_FULL] = "task_set_full",		\
	[FABSTAT_ANSWER_RESERVATION] = "reservation_conflict",	\
	[FABSTAT_ANSWER_ABORTED] = "task_aborted",		\
	[FABSTAT_ANSWER_OTHER] = "other_status",		\
}

/* clang-format on */

/* Returns the counter of a SAM status other than GOOD that a target answers. */
static inline enum fabstat_answer fabstat_answer(unsigned int status)
{
	switch (status) {
	case FABSTAT_SAM_CHECK_CONDITION:
		return FABSTAT_ANSWER_CHECK;
	case FABSTAT_SAM_BUSY:
		return FABSTAT_ANSWER_BUSY;
	case FABSTAT_SAM_TASK_SET_FULL:
		return FABSTAT_ANSWER_FULL;
	case FABSTAT_SAM_RESERVATION:
		return FABSTAT_ANSWER_RESERVATION;
	case FABSTAT_SAM_TASK_ABORTED:
		return FABSTAT_ANSWER_ABORTED;
	default:
		return FABSTAT_ANSWER_OTHER;
	}
}

/* Returns the counter of a SAM status, or FABSTAT_EVENTS for a status that is no refusal. */
static inline enum fabstat_event fabstat_status_event(unsigned int status)
{
	switch (status) {
	case FABSTAT_SAM_TASK_SET_FULL:
		return FABSTAT_TASK_SET_FULL;
	case FABSTAT_SAM_BUSY:
		return FABSTAT_BUSY;
	default:
		return FABSTAT_EVENTS;
	}
}

/* Returns the counter of queuecommand()'s answer (SCSI_MLQUEUE_*: macros or an enum by kernel). */
static inline enum fabstat_event fabstat_driver_event(int answer)
{
	switch (answer) {
	case 0x1055:
		return FABSTAT_HOST_BUSY;
	case 0x1056:
		return FABSTAT_DEVICE_BUSY;
	case 0x1057:
		return FABSTAT_EH_RETRY;
	case 0x1058:
		return FABSTAT_TARGET_BUSY;
	default:
		return FABSTAT_DRIVER_OTHER;
	}
}

/* Returns the counter of a completion's error, an errno as blk_status_to_errno() gives it. */
static inline enum fabstat_event fabstat_error_event(int error)
{
	switch (error) {
	case -ETIMEDOUT:
		return FABSTAT_ERROR_TIMEOUT;
	case -ENOLINK:
		return FABSTAT_ERROR_TRANSPORT;
	case -EREMOTEIO:
		return FABSTAT_ERROR_TARGET;
	case -EBADE:
		return FABSTAT_ERROR_RESERVATION;
	case -ENODATA:
		return FABSTAT_ERROR_MEDIUM;
	case -EILSEQ:
		return FABSTAT_ERROR_PROTECTION;
	case -EOPNOTSUPP:
		return FABSTAT_ERROR_UNSUPPORTED;
	case -ENOSPC:
		return FABSTAT_ERROR_SPACE;
	case -ENODEV:
		return FABSTAT_ERROR_OFFLINE;
	case -ENOMEM:
	case -EBUSY:
	case -EAGAIN:
		return FABSTAT_ERROR_RESOURCE;
	default:
		return FABSTAT_ERROR_IO;
	}
}

/* NVM Express Base Specification 2.0, figures 93 to 97: type and code, the same on every kernel. */
#define FABSTAT_NVME_STATUS		0x7ff
#define FABSTAT_NVME_ABORT_REQUESTED	0x007
#define FABSTAT_NVME_QUEUE_DELETED	0x008
#define FABSTAT_NVME_NO_NAMESPACE	0x00b
#define FABSTAT_NVME_INTERRUPTED	0x021
#define FABSTAT_NVME_NAMESPACE_NOT_READY	0x082
#define FABSTAT_NVME_HOST_ABORTED	0x371	/* given by the host itself when it resets */
#define FABSTAT_NVME_TYPE		0x700
#define FABSTAT_NVME_TYPE_PATH		0x300

/* Returns the counter of an NVMe status, or FABSTAT_EVENTS for one that has none. */
static inline enum fabstat_event fabstat_nvme_event(unsigned int status)
{
	switch (status & FABSTAT_NVME_STATUS) {
	case FABSTAT_NVME_ABORT_REQUESTED:
	case FABSTAT_NVME_QUEUE_DELETED:
	case FABSTAT_NVME_HOST_ABORTED:
		return FABSTAT_NVME_ABORTED;
	case FABSTAT_NVME_INTERRUPTED:
	case FABSTAT_NVME_NAMESPACE_NOT_READY:
		return FABSTAT_NVME_NOT_READY;
	default:
		return (status & FABSTAT_NVME_TYPE) == FABSTAT_NVME_TYPE_PATH ?
			FABSTAT_NVME_PATH : FABSTAT_EVENTS;
	}
}

/*
 * Returns the counter of @error, that of an NVMe command with @status. What the kernel made of
 * the status is refined where that is less than the status says, and otherwise stands.
 */
static inline enum fabstat_event fabstat_nvme_error_event(unsigned int status,
							  enum fabstat_event error)
{
	if (error == FABSTAT_ERROR_UNSUPPORTED &&
	    (status & FABSTAT_NVME_STATUS) == FABSTAT_NVME_NO_NAMESPACE)
		return FABSTAT_ERROR_OFFLINE;
	if (error != FABSTAT_ERROR_IO)
		return error;
	switch (fabstat_nvme_event(status)) {
	case FABSTAT_NVME_ABORTED:
		return FABSTAT_ERROR_ABORTED;
	case FABSTAT_NVME_PATH:
		return FABSTAT_ERROR_PATH;
	default:
		return error;
	}
}

/* What the SCSI midlayer looks at, in this order, before it gives a request to the driver. */
struct fabstat_hold {
	bool device_running;	/* the device takes new commands */
	bool recovering;	/* error recovery, or the host blocked itself */
	bool backing_off;	/* one of device, target or host is pausing after a busy answer */
	bool target_limited;	/* the target has a command limit of its own in the initiator */
};

/* Returns the counter of a request that was refused before it was started. */
static inline enum fabstat_event fabstat_hold_event(const struct fabstat_hold *hold)
{
	if (!hold->device_running)
		return FABSTAT_HELD_DEVICE;
	if (hold->recovering)
		return FABSTAT_HELD_RECOVERY;
	if (hold->backing_off)
		return FABSTAT_HELD_BACKOFF;
	if (hold->target_limited)
		return FABSTAT_HELD_TARGET;
	return FABSTAT_HELD_OTHER;
}

#endif
