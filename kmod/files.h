/* SPDX-License-Identifier: GPL-2.0 */
/* The files in debugfs. */
#ifndef FABSTAT_FILES_H
#define FABSTAT_FILES_H

#include <linux/fs.h>

/* What of a name is written as \ooo: it would end a word, or a record. */
#define FABSTAT_ESCAPED	" \t\n\\"

/* show.c */
extern const struct file_operations fabstat_stats_fops;
extern const struct file_operations fabstat_typed_fops;

/* show_target.c */
extern const struct file_operations fabstat_target_fops;

/* slowest.c */
extern const struct file_operations fabstat_slowest_fops;

/* stuck.c */
extern const struct file_operations fabstat_stuck_fops;
extern unsigned int fabstat_stuck_ms;

#endif
