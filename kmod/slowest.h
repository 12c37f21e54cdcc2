/* SPDX-License-Identifier: GPL-2.0 */
/* The slowest requests of each device; see slowest.c. */
#ifndef FABSTAT_SLOWEST_H
#define FABSTAT_SLOWEST_H

#include "place.h"

struct fabstat_done;

void fabstat_slowest_begin(void);
void fabstat_slowest_note(const struct fabstat_place *place, const struct fabstat_done *done,
			  const struct fabstat_extra *extra);

#endif
