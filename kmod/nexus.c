// SPDX-License-Identifier: GPL-2.0
/*
 * The table of nexuses, and how a command's is found.
 *
 * A session may end, and its memory be given to another initiator's, without a word to anybody.
 * So nothing of it is kept but numbers and copies of names, taken while one of its commands is
 * alive. What a command is found by is the number of its ACL, which LIO gives once; only when it is
 * not known yet are names compared: an initiator without an ACL of its own gets a new one at every
 * login.
 *
 * Probes read without a lock, protected by their disabled preemption; nexus_lock (raw) is taken to
 * add.
 */
#include <linux/atomic.h>
#include <linux/hash.h>
#include <linux/jiffies.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <target/target_core_base.h>
#include <target/target_core_fabric.h>

#include "clock.h"
#include "counters.h"
#include "memory.h"
#include "nexus.h"

#define KEY_BITS	10

static struct hlist_head keys[1 << KEY_BITS];
static struct fabstat_nexus *nexuses[FABSTAT_MAX_NEXUSES];	/* in the order of their coming */
static unsigned int nr_nexuses;
static DEFINE_RAW_SPINLOCK(nexus_lock);		/* keys, nexuses, nr_nexuses */
static atomic64_t untracked;			/* commands that no nexus could be made for */
static unsigned int unloads;			/* of LIO, which numbers its ACLs anew then */
static unsigned long refused_until;		/* jiffies; 0: nothing was refused */

/* Whether @cmd says whose it is. */
static __always_inline bool has_id(const struct se_cmd *cmd)
{
	return cmd->se_sess && cmd->se_sess->se_node_acl;
}

static __always_inline struct hlist_head *head_of(const struct fabstat_nexus_id *id)
{
	return keys + hash_64(id->acl + (id->lun << 20) + id->isid, KEY_BITS);
}

static __always_inline struct fabstat_nexus_id id_of(const struct se_cmd *cmd)
{
	const struct se_session *sess = cmd->se_sess;

	return (struct fabstat_nexus_id){
		.acl = (u64)READ_ONCE(unloads) << 32 | sess->se_node_acl->acl_index,
		.isid = sess->sess_bin_isid,
		.lun = cmd->orig_fe_lun,
	};
}

/* Returns the nexus with @id, or NULL. Preemption is off. */
static __always_inline struct fabstat_nexus *nexus_find(const struct fabstat_nexus_id *id)
{
	const struct fabstat_nexus_key *key;

	hlist_for_each_entry_rcu(key, head_of(id), node, rcu_read_lock_sched_held())
		if (key->id.acl == id->acl && key->id.lun == id->lun && key->id.isid == id->isid)
			return key->nexus;
	return NULL;
}

/* The command keeps its session alive, and with it the ACL, the portal group and the target. */
static void copy_names(struct fabstat_nexus_names *names, const struct se_cmd *cmd)
{
	const struct se_session *sess = cmd->se_sess;
	const struct se_portal_group *tpg = sess->se_tpg;
	const char *target = NULL, *group = NULL, *fabric = NULL;

	if (tpg) {
		group = config_item_name((struct config_item *)&tpg->tpg_group.cg_item);
		fabric = tpg->se_tpg_tfo ? tpg->se_tpg_tfo->fabric_name : NULL;
	}
	if (tpg && tpg->se_tpg_wwn)
		target = config_item_name(&tpg->se_tpg_wwn->wwn_group.cg_item);
	names->isid = sess->sess_bin_isid;
	names->lun = cmd->orig_fe_lun;
	strscpy(names->fabric, fabric ?: "-", sizeof(names->fabric));
	strscpy(names->initiator, sess->se_node_acl->initiatorname, sizeof(names->initiator));
	strscpy(names->target, target ?: "-", sizeof(names->target));
	strscpy(names->tpg, group ?: "-", sizeof(names->tpg));
}

/* Returns the nexus called @names, or NULL. nexus_lock. */
static struct fabstat_nexus *nexus_named(const struct fabstat_nexus_names *names)
{
	unsigned int i;

	for (i = 0; i < nr_nexuses; i++)
		if (!memcmp(&nexuses[i]->names, names, sizeof(*names)))
			return nexuses[i];
	return NULL;
}

/*
 * Has the nexus called as @nexus, or @nexus itself if there is none, found by @key from now on.
 * Returns it; NULL if the table is full. Sets @old to the key that it was found by, if any.
 * nexus_lock.
 */
static struct fabstat_nexus *nexus_link(struct fabstat_nexus *nexus, struct fabstat_nexus_key *key,
					struct fabstat_nexus_key **old)
{
	struct fabstat_nexus *known = nexus_named(&nexus->names);

	if (!known && nr_nexuses == FABSTAT_MAX_NEXUSES)
		return NULL;
	if (!known) {
		known = nexus;
		nexus->number = nr_nexuses + 1;
		nexuses[nr_nexuses] = nexus;
		/* Readers that see the number see the nexus whole. */
		smp_store_release(&nr_nexuses, nr_nexuses + 1);
	}
	*old = known->key;
	if (*old)
		hlist_del_rcu(&(*old)->node);
	known->key = key;
	key->nexus = known;
	hlist_add_head_rcu(&key->node, head_of(&key->id));
	return known;
}

/*
 * Returns the nexus of @cmd: new, known by another number, or made by another CPU meanwhile; NULL
 * without memory or room. Called from probes.
 */
static struct fabstat_nexus *nexus_make(const struct se_cmd *cmd)
{
	struct fabstat_nexus *nexus, *found = NULL;
	struct fabstat_nexus_key *key, *old = NULL;
	unsigned long flags;

	/* All memory is taken before the lock, under which an allocator must not be called. */
	nexus = fabstat_alloc(struct_size(nexus, cpu, nr_cpu_ids), FABSTAT_BOOKS);
	key = fabstat_alloc(sizeof(*key), FABSTAT_BOOKS);
	if (!nexus || !key)
		goto free;
	nexus->seen_ns = fabstat_time_ns(fabstat_ticks());
	copy_names(&nexus->names, cmd);
	key->id = id_of(cmd);

	raw_spin_lock_irqsave(&nexus_lock, flags);
	found = nexus_find(&key->id);
	if (!found) {
		found = nexus_link(nexus, key, &old);
		if (found)
			key = NULL;
		if (found == nexus)
			nexus = NULL;
	}
	raw_spin_unlock_irqrestore(&nexus_lock, flags);
	if (old) {
		fabstat_uncharge(old);
		kfree_rcu(old, rcu);
	}
free:
	fabstat_free(key);
	fabstat_free(nexus);
	return found;
}

/* The first command of a nexus, or one of those that there is no room for, or nobody's. */
static noinline struct fabstat_nexus *nexus_make_or_count(const struct se_cmd *cmd)
{
	unsigned long until = READ_ONCE(refused_until);
	struct fabstat_nexus *nexus = NULL;

	/* Once a second is often enough to ask again, and costs the others nothing. */
	if (has_id(cmd) && (!until || time_after(jiffies, until))) {
		nexus = nexus_make(cmd);
		WRITE_ONCE(refused_until, nexus ? 0 : (jiffies + HZ) | 1);
	}
	if (!nexus)
		atomic64_inc(&untracked);
	return nexus;
}

/* Returns the nexus of @cmd; NULL if it is not known. Preemption is off. */
struct fabstat_nexus *fabstat_nexus_find(const struct se_cmd *cmd)
{
	struct fabstat_nexus_id id;

	if (unlikely(!has_id(cmd)))
		return NULL;
	id = id_of(cmd);
	return nexus_find(&id);
}

/* Returns the nexus of @cmd, made if need be; NULL, counted, if it cannot. Preemption is off. */
struct fabstat_nexus *fabstat_nexus_of(const struct se_cmd *cmd)
{
	struct fabstat_nexus *nexus = fabstat_nexus_find(cmd);

	return nexus ?: nexus_make_or_count(cmd);
}

/* Returns this CPU's counters of @nexus; NULL, counted, without memory. Preemption is off. */
struct fabstat_nexus_cpu *fabstat_nexus_cpu(struct fabstat_nexus *nexus)
{
	struct fabstat_nexus_cpu **place = nexus->cpu + (unsigned int)raw_smp_processor_id();
	struct fabstat_nexus_cpu *cpu = READ_ONCE(*place);

	if (cpu)
		return cpu;
	cpu = fabstat_alloc(sizeof(*cpu), FABSTAT_BOOKS);
	if (cpu)
		return fabstat_publish(place, NULL, cpu);
	atomic64_inc(&untracked);
	return NULL;
}

/* Enters @ns in @cpu's histogram for @op. Called from probes. */
void fabstat_nexus_record(struct fabstat_nexus_cpu *cpu, unsigned int op, u64 ns)
{
	struct fabstat_histogram *histogram = READ_ONCE(cpu->histogram[op]);

	if (!histogram)
		histogram = fabstat_histogram_make(&cpu->histogram[op]);
	local64_inc(&histogram->bucket[fabstat_bucket(ns)]);
}

/* Returns the nexus that came as number @number, from 0 on; NULL behind the last. Any context. */
struct fabstat_nexus *fabstat_nexus(unsigned int number)
{
	/* Pairs with nexus_link(). */
	return number < smp_load_acquire(&nr_nexuses) ? nexuses[number] : NULL;
}

/* Returns how many commands no nexus could be made for. */
u64 fabstat_nexus_untracked(void)
{
	return atomic64_read(&untracked);
}

/* The target is being unloaded: what it numbers it will number anew. */
void fabstat_nexuses_invalidate(void)
{
	WRITE_ONCE(unloads, unloads + 1);
}

/* Lets every nexus ask again for the histograms that were refused. fabstat_lock. */
void fabstat_nexuses_retry(void)
{
	struct fabstat_nexus *nexus;
	unsigned int i, op, cpu;

	for (i = 0; (nexus = fabstat_nexus(i)); i++)
		for_each_possible_cpu(cpu)
			for (op = 0; nexus->cpu[cpu] && op < FABSTAT_OPS; op++)
				fabstat_histogram_retry(&nexus->cpu[cpu]->histogram[op], cpu);
}

/*
 * Gives every nexus counters of every CPU, on which a backstore may answer though no command comes
 * there. fabstat_lock.
 */
void fabstat_nexuses_equip(void)
{
	struct fabstat_nexus_cpu *counters;
	struct fabstat_nexus *nexus;
	unsigned int i, cpu;

	for (i = 0; (nexus = fabstat_nexus(i)); i++) {
		for_each_online_cpu(cpu) {
			if (READ_ONCE(nexus->cpu[cpu]))
				continue;
			counters = fabstat_alloc(sizeof(*counters), FABSTAT_BOOKS);
			if (!counters)
				return;
			fabstat_publish(&nexus->cpu[cpu], NULL, counters);
		}
	}
}

static void nexus_free(struct fabstat_nexus *nexus)
{
	unsigned int cpu, op;

	for_each_possible_cpu(cpu) {
		for (op = 0; nexus->cpu[cpu] && op < FABSTAT_OPS; op++)
			if (!fabstat_histogram_spills(nexus->cpu[cpu]->histogram[op], cpu))
				fabstat_free(nexus->cpu[cpu]->histogram[op]);
		fabstat_free(nexus->cpu[cpu]);
	}
	fabstat_free(nexus->key);
	fabstat_free(nexus);
}

/* Frees all nexuses. No probe runs any more and no reader is left. */
void fabstat_nexuses_exit(void)
{
	unsigned int i;

	for (i = 0; i < nr_nexuses; i++)
		nexus_free(nexuses[i]);
	nr_nexuses = 0;
}
