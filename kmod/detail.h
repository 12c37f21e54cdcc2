/* SPDX-License-Identifier: GPL-2.0 */
/* What is recorded of each request while the parameter "detail" is on; see detail.c. */
#ifndef FABSTAT_DETAIL_H
#define FABSTAT_DETAIL_H

#include <linux/jump_label.h>

#include "classify.h"
#include "place.h"

DECLARE_STATIC_KEY_FALSE(fabstat_detail);

/* Of a completed request; times in ticks but for ns. */
struct fabstat_done {
	struct request *rq;
	u64 issued, now;
	u64 ns;			/* last issue to completion */
	u8 op;
	u8 error;		/* 0, or one of enum fabstat_event */
};

void fabstat_detail_issue(const struct fabstat_place *place, struct request *rq, u64 now);
void fabstat_detail_complete(const struct fabstat_place *place, const struct fabstat_done *done);

#endif
