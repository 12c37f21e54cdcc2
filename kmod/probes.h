/* SPDX-License-Identifier: GPL-2.0 */
/* The probes, for attach.c to hang on their tracepoints. */
#ifndef FABSTAT_PROBES_H
#define FABSTAT_PROBES_H

#include "classify.h"
#include "compat.h"

struct Scsi_Host;
struct fabstat_device;
struct fabstat_place;
struct request;
struct scsi_cmnd;
struct scsi_device;
struct se_cmd;

/* block.c */
void fabstat_probe_issue(void *data, struct request *rq);
void fabstat_probe_complete(void *data, struct request *rq, fabstat_status_t status,
			    unsigned int nr_bytes);

/* complete.c */
void fabstat_complete_slowly(void *data, struct request *rq, fabstat_status_t status,
			     unsigned int nr_bytes);

/* requeue.c */
void fabstat_probe_requeue(void *data, struct request *rq);

/* dm.c */
int fabstat_dm_init(void);
void fabstat_dm_exit(void);
bool fabstat_is_clone(const struct request *rq);
void fabstat_probe_remap(void *data, struct request *rq, dev_t from, sector_t sector);

/* nvme.c */
enum fabstat_event fabstat_nvme_error(const struct fabstat_device *dev, struct request *rq,
				      enum fabstat_event error);
bool fabstat_nvme_has_ways(const struct fabstat_device *dev, const struct request *rq);
bool fabstat_nvme_took_away(const struct fabstat_device *dev, struct request *rq);
bool fabstat_nvme_never_sent(const struct fabstat_device *dev, struct request *rq);
void fabstat_nvme_note(const struct fabstat_place *place, struct request *rq);

/* scsi.c */
bool fabstat_ends_untold(const struct request *rq);
enum fabstat_event fabstat_scsi_hold(struct scsi_device *sdev);
void fabstat_probe_scsi_done(void *data, struct scsi_cmnd *cmd);
void fabstat_probe_scsi_error(void *data, struct scsi_cmnd *cmd, int answer);
void fabstat_probe_scsi_timeout(void *data, struct scsi_cmnd *cmd);
void fabstat_probe_scsi_eh_wakeup(void *data, struct Scsi_Host *shost);

/* target.c */
void fabstat_probe_target_start(void *data, struct se_cmd *cmd);
void fabstat_probe_target_complete(void *data, struct se_cmd *cmd);

#endif
