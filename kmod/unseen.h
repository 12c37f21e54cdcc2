/* SPDX-License-Identifier: GPL-2.0 */
/* Requests that no probe saw being issued; see unseen.c. */
#ifndef FABSTAT_UNSEEN_H
#define FABSTAT_UNSEEN_H

#include <linux/types.h>

struct gendisk;
struct request;

typedef void (*fabstat_unseen_t)(struct request *rq, struct gendisk *disk, void *data);

int fabstat_unseen_init(void);
void fabstat_unseen_walk(fabstat_unseen_t visit, void *data);

#endif
