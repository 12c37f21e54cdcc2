/* SPDX-License-Identifier: GPL-2.0 */
/* The histograms of a device as records; see show_histograms.c. */
#ifndef FABSTAT_SHOW_HISTOGRAMS_H
#define FABSTAT_SHOW_HISTOGRAMS_H

#include <linux/types.h>

struct fabstat_device;
struct fabstat_records;

void fabstat_show_histograms(struct fabstat_records *out, const struct fabstat_device *dev,
			     unsigned int op, u64 wait_ns);
u64 fabstat_missing_samples(const struct fabstat_device *dev, const u64 completed[]);

#endif
