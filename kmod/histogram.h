/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The latency histogram: which bucket a time falls in, and a bucket's bounds.
 *
 * Pure arithmetic without kernel state; the unit tests compile this file in user space.
 *
 * Buckets are log-linear. Below 1024 ns they are 64 ns wide; from there on each power of two
 * is cut into 16 buckets of equal width:
 *
 *	index      from              up to             width
 *	0 .. 15    0 ns              1024 ns           64 ns
 *	16 .. 31   1024 ns           2048 ns           64 ns
 *	32 .. 47   2048 ns           4096 ns           128 ns
 *	...
 *	480 .. 495 2^39 ns (550 s)   2^40 ns (1100 s)  2^35 ns
 *	496        2^40 ns           everything above
 *
 * So from 1024 ns on a bucket is at most 1/16 (6.25 %) as wide as its lower bound, and its
 * middle is at most 3.125 % from any value in it.
 */
#ifndef FABSTAT_HISTOGRAM_H
#define FABSTAT_HISTOGRAM_H

#ifdef __KERNEL__
#include <linux/bitops.h>
#include <linux/types.h>
#else
#include <stdint.h>
typedef uint64_t u64;
typedef uint32_t u32;
static inline int fls64(u64 value)
{
	return value ? 64 - __builtin_clzll(value) : 0;
}
#endif

#define FABSTAT_SUB_BITS	4	/* 2^4 buckets an octave: the error above */
#define FABSTAT_UNIT_SHIFT	6	/* the narrowest bucket is 2^6 ns wide */
#define FABSTAT_LIMIT_SHIFT	40	/* times from 2^40 ns on share the last bucket */
#define FABSTAT_BUCKETS \
	(((FABSTAT_LIMIT_SHIFT - FABSTAT_UNIT_SHIFT - FABSTAT_SUB_BITS + 1) << FABSTAT_SUB_BITS) + 1)

/* Returns the index of the bucket that holds @ns, 0 .. FABSTAT_BUCKETS - 1. */
static inline u32 fabstat_bucket(u64 ns)
{
	u64 units = ns >> FABSTAT_UNIT_SHIFT;
	int octave;

	if (ns >> FABSTAT_LIMIT_SHIFT)
		return FABSTAT_BUCKETS - 1;
	/* The | keeps the octave at 0 for the linear part, without a branch. */
	octave = fls64(units | (1 << FABSTAT_SUB_BITS)) - 1 - FABSTAT_SUB_BITS;
	return (octave << FABSTAT_SUB_BITS) + (u32)(units >> octave);
}

/* Returns the smallest time, in ns, that falls in bucket @index. */
static inline u64 fabstat_bucket_from(u32 index)
{
	u32 octave = index >> FABSTAT_SUB_BITS;

	if (octave)
		octave--;
	return (u64)(index - (octave << FABSTAT_SUB_BITS)) << (octave + FABSTAT_UNIT_SHIFT);
}

#endif
