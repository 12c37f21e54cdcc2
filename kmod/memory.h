/* SPDX-License-Identifier: GPL-2.0 */
/* The module's memory, under one ceiling; see memory.c. */
#ifndef FABSTAT_MEMORY_H
#define FABSTAT_MEMORY_H

#include <linux/atomic.h>
#include <linux/types.h>

enum fabstat_need {
	FABSTAT_BOOKS,		/* devices, counters, slots */
	FABSTAT_HISTOGRAM,	/* dispensable: refused first when memory is short */
};

/*
 * Puts @memory of fabstat_alloc() at @place, where @empty stands, unless another CPU or an
 * interrupt has been there meanwhile: then it is freed. Returns what stands there.
 */
#define fabstat_publish(place, empty, memory) ({				\
	typeof(place) where = (place);						\
	typeof(*where) none = (empty);						\
	typeof(*where) mine = (memory);						\
	typeof(*where) winner = cmpxchg(where, none, mine);			\
										\
	if (winner != none)							\
		fabstat_free(mine);						\
	winner == none ? mine : winner;						\
})

void *fabstat_alloc(size_t bytes, enum fabstat_need need);
void fabstat_free(void *memory);
void fabstat_uncharge(const void *memory);
bool fabstat_memory_has_room(size_t bytes, enum fabstat_need need);
u64 fabstat_memory_used(void);
u64 fabstat_memory_limit(void);
u64 fabstat_memory_refused(void);
bool fabstat_memory_eased(void);

#endif
