/* SPDX-License-Identifier: GPL-2.0 */
/* The probes on their tracepoints, all or none; see attach.c. */
#ifndef FABSTAT_ATTACH_H
#define FABSTAT_ATTACH_H

#include <linux/types.h>

int fabstat_attach_init(void);
void fabstat_attach_exit(void);
int fabstat_attach(void);
void fabstat_detach(void);
void fabstat_attach_late(void);
int fabstat_attach_target(bool on);
bool fabstat_attached(void);
u64 fabstat_attached_since_ns(void);
u64 fabstat_counting_since_ns(void);
u64 fabstat_target_counting_since_ns(void);
bool fabstat_attached_scsi(void);
bool fabstat_attached_target(void);
bool fabstat_target_wanted(void);
const char *fabstat_missing(unsigned int number);

#endif
