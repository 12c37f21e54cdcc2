/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The target's books: what is known of each I_T_L nexus, an initiator's session with one LUN.
 *
 * A nexus stays in the table for as long as the module is loaded: an initiator that logs in again
 * goes on where it was.
 */
#ifndef FABSTAT_NEXUS_H
#define FABSTAT_NEXUS_H

#include <asm/local64.h>
#include <linux/rculist.h>
#include <linux/smp.h>
#include <linux/types.h>

#include "classify.h"

struct fabstat_histogram;
struct se_cmd;

#define FABSTAT_MAX_NEXUSES	4096

/* What a command passes between its coming and its answer. */
enum fabstat_part {
	FABSTAT_READY,		/* all of its data is there, the backstore has it */
	FABSTAT_DONE,		/* the backstore has answered */
	FABSTAT_PARTS,
};

/* One nexus on one CPU. Only that CPU writes it, with single instructions. */
struct fabstat_nexus_cpu {
	local64_t started[FABSTAT_OPS];
	local64_t completed[FABSTAT_OPS];
	local64_t forgotten[FABSTAT_OPS];	/* started, and nobody saw the end */
	local64_t bytes[FABSTAT_OPS];		/* completed with status GOOD */
	local64_t target_ns[FABSTAT_OPS];	/* sum of start to completion */
	local64_t passed[FABSTAT_PARTS][FABSTAT_OPS];
	local64_t passed_ns[FABSTAT_PARTS][FABSTAT_OPS];	/* sum of start to there */
	local64_t answers[FABSTAT_ANSWERS];	/* status other than GOOD */
	local64_t unmatched;
	local64_t untracked;
	struct fabstat_histogram *histogram[FABSTAT_OPS];
};

struct fabstat_nexus_names {
	u64 isid;		/* as the target keeps it: up to eight characters; 0: none */
	u64 lun;
	char fabric[16];
	char initiator[224];
	char target[256];
	char tpg[32];
};

/*
 * What tells a command's nexus from all others while the target is loaded. Numbers of ACLs are
 * given once, and an ACL belongs to one initiator and one portal group for its whole life.
 */
struct fabstat_nexus_id {
	u64 acl;		/* se_node_acl.acl_index; above it, unloads of LIO so far */
	u64 isid;
	u64 lun;
};

struct fabstat_nexus_key;

struct fabstat_nexus {
	unsigned int number;			/* in the file, from 1 on, given once */
	u64 seen_ns;				/* CLOCK_MONOTONIC_RAW of its first command */
	struct fabstat_nexus_key *key;		/* nexus_lock */
	u64 at_target;				/* commands, at the last look; fabstat_lock */
	u64 oldest;				/* when the oldest of them came, ticks */
	u32 window;				/* commands that its session may have, by its ACL */
	struct fabstat_nexus_names names;
	struct fabstat_nexus_cpu *cpu[];
};

/* Where a nexus is found; a new one takes its place when its initiator gets another ACL. */
struct fabstat_nexus_key {
	struct hlist_node node;			/* RCU */
	struct rcu_head rcu;
	struct fabstat_nexus_id id;
	struct fabstat_nexus *nexus;
};

struct fabstat_nexus *fabstat_nexus_find(const struct se_cmd *cmd);
struct fabstat_nexus *fabstat_nexus_of(const struct se_cmd *cmd);
struct fabstat_nexus_cpu *fabstat_nexus_cpu(struct fabstat_nexus *nexus);
void fabstat_nexus_record(struct fabstat_nexus_cpu *cpu, unsigned int op, u64 ns);
struct fabstat_nexus *fabstat_nexus(unsigned int number);
u64 fabstat_nexus_untracked(void);
void fabstat_nexuses_invalidate(void);
void fabstat_nexuses_retry(void);
void fabstat_nexuses_equip(void);
void fabstat_nexuses_exit(void);

/* Returns this CPU's counters of @nexus, or NULL. Preemption is off. */
static __always_inline struct fabstat_nexus_cpu *
fabstat_nexus_cpu_find(const struct fabstat_nexus *nexus)
{
	return READ_ONCE(*(nexus->cpu + (unsigned int)raw_smp_processor_id()));
}

#endif
