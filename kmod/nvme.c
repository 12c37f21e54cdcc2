// SPDX-License-Identifier: GPL-2.0
/*
 * NVMe: what a controller answered, of commands that failed or are sent again.
 *
 * The driver keeps the answer in struct nvme_request, which is in no header that modules have.
 * Each of its transports must have that first in what it keeps of a request, so the answer can be
 * read without following a pointer, and within memory that the driver asked for. What is read is
 * not relied on: it refines what the kernel itself made of it (fabstat_nvme_error_event()).
 */
#include <linux/blk-mq.h>
#include <linux/nvme.h>

#include "compat.h"
#include "counters.h"
#include "place.h"
#include "probes.h"

/* The beginning of struct nvme_request (drivers/nvme/host/nvme.h). */
struct nvme_request_head {
	void *cmd;
	u64 result;
	u8 genctr;	/* since 5.15 (e7006de6c238) */
	u8 retries;
	u8 flags;
	u16 status;
};

#define NVME_CANCELLED	BIT(0)	/* in its flags */

/* The same up to 5.14, unless the change was taken over. */
struct old_nvme_request_head {
	void *cmd;
	u64 result;
	u8 retries;
	u8 flags;
	u16 status;
};

/*
 * Returns the status that @rq came back with, or 0. A failure is not 0, and where the new structure
 * has it the old one has a gap, which is.
 */
static unsigned int status_of(struct request *rq)
{
	const struct nvme_request_head *head = blk_mq_rq_to_pdu(rq);
	const struct old_nvme_request_head *old = blk_mq_rq_to_pdu(rq);

	/* One that did not come back, but was ended, keeps what its predecessor was answered. */
	if (blk_mq_rq_state(rq) != MQ_RQ_COMPLETE || rq->q->tag_set->cmd_size < sizeof(*head))
		return 0;
	return head->status || !FABSTAT_OLD_NVME ? head->status : old->status;
}

/* Returns the counter of an error of @rq, which @error is by what the block layer was told. */
enum fabstat_event fabstat_nvme_error(const struct fabstat_device *dev, struct request *rq,
				      enum fabstat_event error)
{
	return dev->is_nvme ? fabstat_nvme_error_event(status_of(rq), error) : error;
}

/* Returns true if @rq is of a multipath disk, whose driver may send its data another way. */
bool fabstat_nvme_has_ways(const struct fabstat_device *dev, const struct request *rq)
{
	return dev->is_nvme && rq->cmd_flags & REQ_DRV;
}

/*
 * Returns true if the driver took @rq, of a multipath disk, back from its controller. Its status
 * says so no more, but it is marked as of such a disk, and as cancelled; what has no other way is
 * sent again, and stays marked as that. Not known before 5.15, where these bytes may be others.
 */
bool fabstat_nvme_took_away(const struct fabstat_device *dev, struct request *rq)
{
	const struct nvme_request_head *head = blk_mq_rq_to_pdu(rq);

	return !FABSTAT_OLD_NVME && fabstat_nvme_has_ways(dev, rq) &&
	       rq->q->tag_set->cmd_size >= sizeof(*head) && head->flags & NVME_CANCELLED;
}

/*
 * Returns true if @rq ends as the driver could not send it. NVMe/FC says so of answers that it
 * cannot use, too.
 */
bool fabstat_nvme_never_sent(const struct fabstat_device *dev, struct request *rq)
{
	return dev->is_nvme && status_of(rq) == NVME_SC_HOST_PATH_ERROR;
}

/* Notes why @rq, which had reached its controller, is sent again; its slot may be missing. */
void fabstat_nvme_note(const struct fabstat_place *place, struct request *rq)
{
	enum fabstat_event event = FABSTAT_EVENTS;

	if (place->dev->is_nvme)
		event = fabstat_nvme_event(status_of(rq));
	if (event == FABSTAT_EVENTS)
		return;
	fabstat_count(place->cpu, event);
	if (place->slot)
		place->slot->refusal = event + 1;
}
