/* SPDX-License-Identifier: GPL-2.0 */
/* Memory for probes where they may not call the allocator; see reserve.c. */
#ifndef FABSTAT_RESERVE_H
#define FABSTAT_RESERVE_H

#include <linux/types.h>

#ifdef CONFIG_PREEMPT_RT
int fabstat_reserve_init(void);
void fabstat_reserve_exit(void);
void *fabstat_reserve_take(size_t bytes);
void fabstat_reserve_give(void *memory);
#else
static inline int fabstat_reserve_init(void) { return 0; }
static inline void fabstat_reserve_exit(void) { }
#endif

#endif
