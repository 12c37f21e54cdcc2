/* SPDX-License-Identifier: GPL-2.0 */
/* The target's half: commands that this host serves; see target.c. */
#ifndef FABSTAT_TARGET_H
#define FABSTAT_TARGET_H

#include <linux/types.h>

/* The most commands that are told apart at a time. */
#define FABSTAT_TARGET_COMMANDS	16384

u64 fabstat_target_crowded(void);
void fabstat_target_look(void);
void fabstat_target_forget_all(void);
void fabstat_target_scan(void);
void fabstat_target_gone(void);
void fabstat_target_exit(void);

#endif
