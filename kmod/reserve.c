// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that lies ready for probes on PREEMPT_RT kernels.
 *
 * Probes run with preemption off. There the slab's locks sleep, so that no probe may allocate or
 * free: it takes from shelves of ready objects, under a raw lock, and a work item fills them again.
 * A shelf that is empty refuses, as any want of memory does; what is counted then is the same.
 */
#include <linux/kernel.h>
#include <linux/llist.h>
#include <linux/log2.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "reserve.h"

/* Objects of 64 bytes up to 64 KiB: what remembers a retry, up to a tag set on a large machine. */
#define SMALLEST_SHIFT	6
#define NR_SHELVES	11

/* Of each size so many bytes, but not more objects than MOST and not fewer than LEAST. */
#define SHELF_BYTES	SZ_128K
#define MOST		256U
#define LEAST		4U

struct shelf {
	struct llist_node *first;	/* ready, zeroed but for the node */
	unsigned int nr;
};

static struct shelf shelves[NR_SHELVES];
static DEFINE_RAW_SPINLOCK(shelves_lock);
static LLIST_HEAD(given);	/* to be freed */

static size_t bytes_of(unsigned int number)
{
	return (size_t)1 << (number + SMALLEST_SHIFT);
}

static unsigned int most_of(unsigned int number)
{
	return clamp_t(unsigned int, SHELF_BYTES / bytes_of(number), LEAST, MOST);
}

/* Puts objects onto shelf @number until it is full; returns -ENOMEM if it cannot be filled. */
static int reserve_fill(unsigned int number)
{
	struct shelf *shelf = &shelves[number];
	struct llist_node *node;
	unsigned long flags;

	while (READ_ONCE(shelf->nr) < most_of(number)) {
		node = kzalloc(bytes_of(number), GFP_KERNEL | __GFP_NOWARN);
		if (!node)
			return -ENOMEM;
		raw_spin_lock_irqsave(&shelves_lock, flags);
		node->next = shelf->first;
		shelf->first = node;
		WRITE_ONCE(shelf->nr, shelf->nr + 1);
		raw_spin_unlock_irqrestore(&shelves_lock, flags);
	}
	return 0;
}

static void free_all(struct llist_node *node)
{
	struct llist_node *next;

	for (; node; node = next) {
		next = node->next;
		kfree(node);
	}
}

static void reserve_tidy(struct work_struct *work)
{
	unsigned int number;

	free_all(llist_del_all(&given));
	for (number = 0; number < NR_SHELVES; number++)
		reserve_fill(number);
}

static DECLARE_WORK(tidy_work, reserve_tidy);

/* Returns @bytes of zeroed memory, or NULL. Any context. */
void *fabstat_reserve_take(size_t bytes)
{
	unsigned int number = bytes <= bytes_of(0) ? 0 : ilog2(bytes - 1) + 1 - SMALLEST_SHIFT;
	struct llist_node *node;
	struct shelf *shelf;
	unsigned long flags;
	bool low;

	if (number >= NR_SHELVES)
		return NULL;
	shelf = &shelves[number];
	raw_spin_lock_irqsave(&shelves_lock, flags);
	node = shelf->first;
	if (node) {
		shelf->first = node->next;
		WRITE_ONCE(shelf->nr, shelf->nr - 1);
	}
	low = shelf->nr <= most_of(number) / 2;
	raw_spin_unlock_irqrestore(&shelves_lock, flags);
	if (low)
		schedule_work(&tidy_work);
	if (node)
		node->next = NULL;
	return node;
}

/* Takes back @memory, to be freed soon. Any context. */
void fabstat_reserve_give(void *memory)
{
	llist_add(memory, &given);
	schedule_work(&tidy_work);
}

/* Fills the shelves, before the first probe. Returns 0 or -ENOMEM, with none filled. */
int fabstat_reserve_init(void)
{
	unsigned int number;
	int err = 0;

	for (number = 0; number < NR_SHELVES && !err; number++)
		err = reserve_fill(number);
	if (err)
		fabstat_reserve_exit();
	return err;
}

/* Frees what is left. No probe runs any more. */
void fabstat_reserve_exit(void)
{
	unsigned int number;

	cancel_work_sync(&tidy_work);
	free_all(llist_del_all(&given));
	for (number = 0; number < NR_SHELVES; number++) {
		free_all(shelves[number].first);
		shelves[number].first = NULL;
		shelves[number].nr = 0;
	}
}
