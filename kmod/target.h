/* SPDX-License-Identifier: GPL-2.0 */
/* The target's half: commands that this host serves; see target.c. */
#ifndef FABSTAT_TARGET_H
#define FABSTAT_TARGET_H

#include <linux/types.h>

#include "nexus.h"

/* The most commands that are told apart at a time. */
#define FABSTAT_TARGET_COMMANDS	16384

struct se_cmd;

void fabstat_target_passes(const struct se_cmd *cmd, unsigned int part);

u64 fabstat_target_crowded(void);
u64 fabstat_target_missed(void);
void fabstat_target_look(void);
void fabstat_target_forget_all(void);
void fabstat_target_scan(void);
void fabstat_target_gone(void);
void fabstat_target_exit(void);

/* target_parts.c */
int fabstat_target_parts_want(bool on);
bool fabstat_target_parts_wanted(void);
bool fabstat_target_parts_seen(void);
void fabstat_target_parts_follow(void);

#endif
