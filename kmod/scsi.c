// SPDX-License-Identifier: GPL-2.0
/*
 * Probes on the SCSI midlayer: who refused a command, and why.
 *
 * scsi_mod may be absent, and none of its symbols is used: everything is read through headers.
 */
#include <linux/kernel.h>
#include <linux/string.h>
#include <scsi/scsi_cmnd.h>
#include <scsi/scsi_device.h>
#include <scsi/scsi_host.h>

#include "compat.h"
#include "counters.h"
#include "place.h"
#include "probes.h"

/*
 * Returns true if @rq is a command of SCSI's own that no probe sees end: since 6.18 those of a
 * host's reserved tags are, which belong to no disk. What driver it is of nothing tells but names.
 */
bool fabstat_ends_untold(const struct request *rq)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	char name[sizeof("scsi_queue_rq")];

	if (likely(!blk_mq_is_reserved_rq((struct request *)rq)))
		return false;
	snprintf(name, sizeof(name), "%ps", rq->q->mq_ops->queue_rq);
	return !strcmp(name, "scsi_queue_rq");
#else
	return false;
#endif
}

/* Returns why the midlayer held a request back, from what scsi_queue_rq() looks at. */
enum fabstat_event fabstat_scsi_hold(struct scsi_device *sdev)
{
	const struct scsi_target *starget = scsi_target(sdev);
	struct Scsi_Host *shost = sdev->host;
	struct fabstat_hold hold = {
		.device_running = sdev->sdev_state == SDEV_RUNNING,
		.recovering = scsi_host_in_recovery(shost) || shost->host_self_blocked,
		.backing_off = atomic_read(&starget->target_blocked) > 0 ||
			       atomic_read(&shost->host_blocked) > 0 ||
			       atomic_read(&sdev->device_blocked) > 0,
		.target_limited = starget->can_queue > 0,
	};

	return fabstat_hold_event(&hold);
}

/* Counts @event on the device of @cmd; the request was refused for it if @refusal. */
static void count_event(struct scsi_cmnd *cmd, enum fabstat_event event, bool refusal)
{
	struct request *rq = scsi_cmd_to_rq(cmd);
	struct fabstat_place place;

	if (!fabstat_make(rq, &place))
		return;
	fabstat_count(place.cpu, event);
	if (place.slot && refusal)
		place.slot->refusal = event + 1;
}

/* Apart, so that it costs a command that was not refused no place on the stack; see block.c. */
static noinline notrace __noclone void scsi_done_refused(void *data, struct scsi_cmnd *cmd)
{
	fabstat_probe_enter();
	count_event(cmd, fabstat_status_event(cmd->result & 0xff), true);
	fabstat_probe_leave();
}

/* The target's answer. __scsi_queue_insert() clears it before the request is requeued. */
notrace void fabstat_probe_scsi_done(void *data, struct scsi_cmnd *cmd)
{
	if (unlikely(fabstat_status_event(cmd->result & 0xff) != FABSTAT_EVENTS))
		scsi_done_refused(NULL, cmd);
}

/* The driver did not take the command. */
void fabstat_probe_scsi_error(void *data, struct scsi_cmnd *cmd, int answer)
{
	fabstat_probe_enter();
	count_event(cmd, fabstat_driver_event(answer), true);
	fabstat_probe_leave();
}

/* A command's timer expired; the transport may still forgive it. */
void fabstat_probe_scsi_timeout(void *data, struct scsi_cmnd *cmd)
{
	fabstat_probe_enter();
	count_event(cmd, FABSTAT_TIMEOUT, false);
	fabstat_probe_leave();
}

/* The error handler of a host was woken. */
void fabstat_probe_scsi_eh_wakeup(void *data, struct Scsi_Host *shost)
{
	struct fabstat_set *set;

	rcu_read_lock();
	set = fabstat_set_find(&shost->tag_set);
	if (set)
		atomic64_inc(&set->eh_wakeups);
	rcu_read_unlock();
}
