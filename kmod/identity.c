// SPDX-License-Identifier: GPL-2.0
/*
 * Who a device is: names that userspace can follow into sysfs.
 *
 * Strings are copied while a request is being issued or completed, when the disk and the SCSI
 * device are certain to exist; their pointers are not followed for names at any other time.
 */
#include <linux/ctype.h>
#include <linux/module.h>
#include <linux/string.h>
#include <scsi/scsi_device.h>
#include <scsi/scsi_host.h>

#include "clock.h"
#include "compat.h"
#include "device.h"

/* The midlayer's queue operations, learned from the first SCSI disk; not an exported symbol. */
static const struct blk_mq_ops *scsi_ops;

/* scsi_mod is being unloaded: something else may be loaded at that address. */
void fabstat_identify_forget_scsi(void)
{
	WRITE_ONCE(scsi_ops, NULL);
}

static void identify_scsi(struct fabstat_device *dev, struct scsi_device *sdev)
{
	const struct scsi_host_template *template = sdev->host->hostt;
	struct fabstat_identity *id = &dev->identity;
	const char *driver = template->proc_name ?: template->name;

	snprintf(id->hctl, sizeof(id->hctl), "%u:%u:%u:%llu", sdev->host->host_no, sdev->channel,
		 sdev->id, sdev->lun);
	strscpy(id->driver, driver ?: "-", sizeof(id->driver));
	strscpy(id->parent, dev_name(scsi_target(sdev)->dev.parent), sizeof(id->parent));
	WRITE_ONCE(dev->sdev, sdev);
	fabstat_limit_of_scsi(dev, sdev);
}

/*
 * A queue may get another disk: SCSI's does when a driver is unbound and bound again. Its next
 * request tells who it is then. fabstat_lock.
 */
void fabstat_identify_anew(struct fabstat_device *dev)
{
	u64 diskseq = fabstat_queue_diskseq(dev->queue);

	/* By its number: the memory of one that is gone may be the next one's. */
	if (!dev->identity.known || !diskseq || diskseq == dev->identity.diskseq)
		return;
	dev->identity.known = false;
	WRITE_ONCE(dev->nr_ready, 0);
}

/*
 * Fills in what @rq tells about @dev. Called for each request until the disk is registered. Two
 * CPUs that do so at once write the same; a reader may see some names before the others.
 */
void fabstat_identify(struct fabstat_device *dev, struct request *rq)
{
	struct fabstat_identity *id = &dev->identity;
	struct gendisk *disk = fabstat_disk(rq);
	struct device *parent;

	if (id->known)
		return;
	/* A queue without a disk (tape, enclosure) or whose disk is still being probed. */
	if (!dev->sdev && rq->q->mq_ops == READ_ONCE(scsi_ops) && rq->q->queuedata)
		identify_scsi(dev, rq->q->queuedata);
	if (!disk || !device_is_registered(disk_to_dev(disk)))
		return;

	parent = disk_to_dev(disk)->parent;
	id->devt = disk_devt(disk);
	id->diskseq = fabstat_diskseq(disk);
	strscpy(id->disk, disk->disk_name, sizeof(id->disk));
	if (parent && parent->bus && !strcmp(parent->bus->name, "scsi")) {
		WRITE_ONCE(scsi_ops, rq->q->mq_ops);
		identify_scsi(dev, to_scsi_device(parent));
	} else {
		if (disk->fops->owner)
			strscpy(id->driver, module_name(disk->fops->owner), sizeof(id->driver));
		if (parent)
			strscpy(id->parent, dev_name(parent), sizeof(id->parent));
	}
	/* A namespace (nvme0n1), or the hidden disk of a path to one (nvme0c1n1). */
	dev->is_nvme = str_has_prefix(id->disk, "nvme") && isdigit(id->disk[4]);
	id->known = true;
	/* From here on requests take the fast path, which does not call this. */
	smp_store_release(&dev->nr_ready, dev->nr_tables);
}
