// SPDX-License-Identifier: GPL-2.0
/*
 * Devices are created by the first request of a queue and retired when the queue dies.
 *
 * No notifier tells of queues that come or go, so the first request brings a device in, and
 * main.c has the table scanned once a second for queues that are being torn down. A device is
 * retired when its queue was dying at two scans in a row and nothing is in flight on it; one
 * that hangs stays in the table, and on the stuck list.
 *
 * Locks: fabstat_lock (mutex) > table_lock (raw spinlock, from probes). Probes read the table
 * without a lock, protected by their disabled preemption.
 */
#include <linux/lockdep.h>
#include <linux/rculist.h>
#include <linux/spinlock.h>

#include "clock.h"
#include "counters.h"
#include "device.h"
#include "memory.h"

/* The devices that were removed last stay readable, so that their final counts are not lost. */
#define MAX_GONE	16

struct fabstat_globals fabstat_globals;
struct fabstat_device __rcu *fabstat_devices[FABSTAT_MAX_QUEUES];
struct fabstat_device fabstat_no_device;
LIST_HEAD(fabstat_gone);
DEFINE_MUTEX(fabstat_lock);	/* retiring, reading, switching on and off */

static LIST_HEAD(sets);
static DEFINE_RAW_SPINLOCK(table_lock);	/* table, sets */
static unsigned int nr_gone;
static u64 nr_ever_gone;	/* fabstat_lock */

/* Returns the set of @tag_set, or NULL. RCU or table_lock. */
struct fabstat_set *fabstat_set_find(const struct blk_mq_tag_set *tag_set)
{
	struct fabstat_set *set;

	list_for_each_entry_rcu(set, &sets, node, lockdep_is_held(&table_lock))
		if (set->tag_set == tag_set)
			return set;
	return NULL;
}

/* Returns a new set for @tag_set, not yet listed; or NULL without memory. */
static struct fabstat_set *set_make(struct blk_mq_tag_set *tag_set)
{
	unsigned int nr_tables = fabstat_tables_of(tag_set);
	struct fabstat_set *set;
	unsigned int queue;

	set = fabstat_alloc(struct_size(set, table, nr_tables), FABSTAT_BOOKS);
	if (!set)
		return NULL;
	set->tag_set = tag_set;
	set->nr_tables = nr_tables;
	for (queue = 0; queue < nr_tables; queue++)
		set->table[queue] = &fabstat_no_table;
	return set;
}

/* Returns how often the error handler of the device's host was woken since it was first seen. */
s64 fabstat_eh_wakeups(const struct fabstat_device *dev)
{
	return dev->set ? atomic64_read(&dev->set->eh_wakeups) - dev->eh_before : dev->eh_wakeups;
}

/* Gives up one user of @set; returns it when it was the last, for set_free(). table_lock. */
static struct fabstat_set *set_put(struct fabstat_set *set)
{
	lockdep_assert_held(&table_lock);
	if (--set->users)
		return NULL;
	list_del_rcu(&set->node);
	return set;
}

static void set_free(struct fabstat_set *set)
{
	unsigned int queue;

	if (!set)
		return;
	for (queue = 0; queue < set->nr_tables; queue++)
		fabstat_table_free(set->table[queue]);
	fabstat_free(set);
}

/* Frees the tables of scheduler tags, which nobody uses any more; the counters stay. */
static void device_free_slots(struct fabstat_device *dev)
{
	unsigned int queue;

	for (queue = 0; dev->sched && queue < dev->nr_tables; queue++)
		fabstat_table_free(dev->sched[queue]);
	fabstat_free(dev->sched);
	dev->sched = NULL;
}

static void device_free(struct fabstat_device *dev)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		fabstat_cpu_free(dev->cpu[cpu], cpu);
	device_free_slots(dev);
	fabstat_free(dev->depth_of);
	fabstat_free(dev->depth);
	fabstat_free(dev->slowest);
	fabstat_free(dev);
}

/* Returns how many requests are in flight on @dev. */
int fabstat_device_depth(const struct fabstat_device *dev)
{
	unsigned int i;
	int depth = 0;

	for (i = 0; i < dev->nr_depths; i++)
		depth += atomic_read(&dev->depth[i].now);
	return depth;
}

/* Gives @dev its tables and depths, for up to @nr_tables hardware queues. */
static bool device_equip(struct fabstat_device *dev, struct request_queue *q,
			 unsigned int nr_tables)
{
	bool is_one = fabstat_limit_is_one(q);
	unsigned int i;

	/* One a queue even where there is one queue now: its controller may come back with more. */
	dev->nr_depths = is_one ? 1 : nr_tables;
	dev->depth = fabstat_alloc(dev->nr_depths * sizeof(*dev->depth), FABSTAT_BOOKS);
	dev->depth_of = fabstat_alloc(nr_tables * sizeof(*dev->depth_of), FABSTAT_BOOKS);
	dev->sched = fabstat_alloc(nr_tables * sizeof(*dev->sched), FABSTAT_BOOKS);
	if (!dev->depth || !dev->depth_of || !dev->sched)
		return false;
	for (i = 0; i < dev->nr_depths; i++) {
		dev->depth[i].limit_now = &dev->own_limit;
		dev->depth[i].of_queue = !is_one;
	}
	fabstat_limit_init(dev, q);
	for (i = 0; i < nr_tables; i++) {
		dev->depth_of[i] = dev->depth + min(i, dev->nr_depths - 1);
		dev->sched[i] = &fabstat_no_table;
	}
	dev->nr_tables = nr_tables;
	return true;
}

/* Puts @dev, with @set, into the table, and takes a reference on its queue. table_lock. */
static bool device_link(struct fabstat_device *dev, struct fabstat_set *set)
{
	lockdep_assert_held(&table_lock);
	if (!blk_get_queue(dev->queue))
		return false;
	dev->set = set;
	/* A set that was made when its controller had fewer queues has fewer tables. */
	dev->nr_tables = min(dev->nr_tables, set->nr_tables);
	dev->eh_before = atomic64_read(&set->eh_wakeups);
	if (!set->users++)
		list_add_rcu(&set->node, &sets);
	dev->serial = atomic64_inc_return(&fabstat_globals.devices_seen);
	/* Probes that find it see it whole. */
	rcu_assign_pointer(fabstat_devices[dev->id], dev);
	return true;
}

/*
 * Returns the device of @rq, new or made by another CPU meanwhile; NULL, counted, without
 * memory or when the queue is being removed. Called from probes.
 */
struct fabstat_device *fabstat_device_create(struct request *rq)
{
	struct request_queue *q = rq->q;
	struct fabstat_device *dev, *found = NULL;
	struct fabstat_set *set, *known;
	unsigned long flags;

	if (q->id < 0 || q->id >= FABSTAT_MAX_QUEUES || !fabstat_room_for_device(q))
		goto untracked;
	/* All memory is taken before the lock, under which an allocator must not be called. */
	dev = fabstat_alloc(struct_size(dev, cpu, nr_cpu_ids), FABSTAT_BOOKS);
	set = set_make(q->tag_set);
	if (!dev || !set || !device_equip(dev, q, set->nr_tables))
		goto free;
	dev->queue = q;
	dev->id = q->id;
	raw_spin_lock_init(&dev->forgotten.lock);
	dev->seen_ns = fabstat_time_ns(fabstat_ticks());
	strscpy(dev->identity.disk, "-", sizeof(dev->identity.disk));
	strscpy(dev->identity.hctl, "-", sizeof(dev->identity.hctl));
	strscpy(dev->identity.driver, "-", sizeof(dev->identity.driver));
	strscpy(dev->identity.parent, "-", sizeof(dev->identity.parent));

	raw_spin_lock_irqsave(&table_lock, flags);
	found = fabstat_device(q->id);
	known = fabstat_set_find(q->tag_set);
	if (!found && device_link(dev, known ?: set)) {
		found = dev;
		if (!known)
			set = NULL;
	}
	raw_spin_unlock_irqrestore(&table_lock, flags);
free:
	if (set)
		set_free(set);
	if (dev && found != dev)
		device_free(dev);
	if (found)
		return found;
untracked:
	fabstat_count_untracked();
	return NULL;
}

/* Takes @dev off the table: no new request finds it. Returns its set if that is unused now. */
static struct fabstat_set *device_unlink(struct fabstat_device *dev)
{
	struct fabstat_set *unused;
	unsigned long flags;

	raw_spin_lock_irqsave(&table_lock, flags);
	rcu_assign_pointer(fabstat_devices[dev->id], &fabstat_no_device);
	dev->eh_wakeups = fabstat_eh_wakeups(dev);
	unused = set_put(dev->set);
	raw_spin_unlock_irqrestore(&table_lock, flags);
	return unused;
}

/* Adds @dev, which no probe can find any more, to those that are gone; drops the oldest. */
static void device_retire(struct fabstat_device *dev)
{
	dev->gone_ns = fabstat_time_ns(fabstat_ticks());
	device_free_slots(dev);
	blk_put_queue(dev->queue);
	dev->queue = NULL;
	dev->sdev = NULL;
	dev->set = NULL;
	dev->gone_number = nr_ever_gone++;
	list_add_tail(&dev->gone_node, &fabstat_gone);
	if (nr_gone < MAX_GONE) {
		nr_gone++;
		return;
	}
	dev = list_first_entry(&fabstat_gone, struct fabstat_device, gone_node);
	list_del(&dev->gone_node);
	device_free(dev);
}

/* Retires the devices whose queues are gone. fabstat_lock. */
void fabstat_devices_scan(void)
{
	struct fabstat_device *dev, *next;
	struct fabstat_set *set, *next_set;
	LIST_HEAD(unlinked);
	LIST_HEAD(unused);
	unsigned int id;

	lockdep_assert_held(&fabstat_lock);
	for (id = 0; id < FABSTAT_MAX_QUEUES; id++) {
		dev = fabstat_device(id);
		if (!dev)
			continue;
		fabstat_identify_anew(dev);
		fabstat_limit_look(dev);
		if (!blk_queue_dying(dev->queue))
			continue;
		if (dev->dying && fabstat_device_depth(dev) <= 0) {
			set = device_unlink(dev);
			if (set)
				list_add(&set->unused_node, &unused);
			list_add_tail(&dev->gone_node, &unlinked);
		}
		dev->dying = true;
	}
	if (list_empty(&unlinked))
		return;
	/* Probes that found one of these devices run without preemption: RCU readers. */
	synchronize_rcu();
	list_for_each_entry_safe(set, next_set, &unused, unused_node)
		set_free(set);
	list_for_each_entry_safe(dev, next, &unlinked, gone_node)
		device_retire(dev);
}

/* Lets every device ask again for the memory that it was refused. fabstat_lock. */
void fabstat_devices_retry(void)
{
	struct fabstat_device *dev;
	unsigned int id, cpu, queue;

	lockdep_assert_held(&fabstat_lock);
	for (id = 0; id < FABSTAT_MAX_QUEUES; id++) {
		dev = fabstat_device(id);
		if (!dev)
			continue;
		for_each_possible_cpu(cpu)
			if (READ_ONCE(dev->cpu[cpu]))
				fabstat_cpu_retry(dev->cpu[cpu], cpu);
		for (queue = 0; queue < dev->nr_tables; queue++)
			fabstat_table_retry(READ_ONCE(dev->sched[queue]));
		for (queue = 0; queue < dev->set->nr_tables; queue++)
			fabstat_table_retry(READ_ONCE(dev->set->table[queue]));
		/* Its slowest requests may be kept, if they could not. */
		cmpxchg(&dev->slow_floor_ns, U64_MAX, 0);
	}
}

/* Calls @visit on every slot there is, once. May sleep. fabstat_lock. */
void fabstat_devices_walk(fabstat_visit_t visit, void *data)
{
	static u64 walk;	/* fabstat_lock */
	struct fabstat_device *dev;
	unsigned int id, queue;

	lockdep_assert_held(&fabstat_lock);
	walk++;
	for (id = 0; id < FABSTAT_MAX_QUEUES; id++) {
		dev = fabstat_device(id);
		if (!dev)
			continue;
		for (queue = 0; queue < dev->nr_tables; queue++)
			fabstat_table_walk(dev->sched[queue], queue, visit, data);
		if (dev->set->walk == walk)
			continue;
		dev->set->walk = walk;
		for (queue = 0; queue < dev->set->nr_tables; queue++)
			fabstat_table_walk(dev->set->table[queue], queue, visit, data);
	}
}

/* Prepares the table; before the first probe. */
void fabstat_devices_init(void)
{
	unsigned int id;

	fabstat_globals.loaded_ns = fabstat_time_ns(fabstat_ticks());
	for (id = 0; id < FABSTAT_MAX_QUEUES; id++)
		RCU_INIT_POINTER(fabstat_devices[id], &fabstat_no_device);
}

/* Closes the books of @dev that are kept in ticks. */
static void device_close_ticks(struct fabstat_device *dev)
{
	unsigned int cpu;
	u64 ticks = 0;

	for_each_possible_cpu(cpu) {
		if (!dev->cpu[cpu])
			continue;
		ticks += local64_read(&dev->cpu[cpu]->depth_ticks);
		local64_set(&dev->cpu[cpu]->depth_ticks, 0);
	}
	dev->depth_base_ns += fabstat_ticks_to_ns(ticks + dev->forgotten.ticks);
	dev->forgotten.ticks = 0;
}

/*
 * Closes all books that are kept in ticks, before the tick changes. Nothing is in flight, and no
 * probe is attached. fabstat_lock.
 */
void fabstat_devices_close_ticks(void)
{
	struct fabstat_device *dev;
	unsigned int id;

	lockdep_assert_held(&fabstat_lock);
	for (id = 0; id < FABSTAT_MAX_QUEUES; id++) {
		dev = fabstat_device(id);
		if (dev)
			device_close_ticks(dev);
	}
	list_for_each_entry(dev, &fabstat_gone, gone_node)
		device_close_ticks(dev);
}

/* Frees all devices. No probe runs any more and no reader is left. */
void fabstat_devices_exit(void)
{
	struct fabstat_device *dev, *next;
	unsigned int id;

	mutex_lock(&fabstat_lock);
	for (id = 0; id < FABSTAT_MAX_QUEUES; id++) {
		dev = fabstat_device(id);
		if (!dev)
			continue;
		set_free(device_unlink(dev));
		blk_put_queue(dev->queue);
		device_free(dev);
	}
	list_for_each_entry_safe(dev, next, &fabstat_gone, gone_node)
		device_free(dev);
	mutex_unlock(&fabstat_lock);
}
