/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The latency histogram: which bucket a time falls in, and a bucket's bounds.
 *
 * Pure arithmetic without kernel state; the unit tests compile this file in user space, where they
 * provide u32, u64 and __fls().
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
#endif

#define FABSTAT_SUB_BITS	4	/* 2^4 buckets an octave: the error above */
#define FABSTAT_UNIT_SHIFT	6	/* the narrowest bucket is 2^6 ns wide */
#define FABSTAT_LIMIT_SHIFT	40	/* times from 2^40 ns on share the last bucket */
#define FABSTAT_OCTAVES		(FABSTAT_LIMIT_SHIFT - FABSTAT_UNIT_SHIFT - FABSTAT_SUB_BITS)
#define FABSTAT_BUCKETS		(((FABSTAT_OCTAVES + 1) << FABSTAT_SUB_BITS) + 1)

/* Returns the position of the highest bit of @value, which is not 0. */
static inline u32 fabstat_log2(u64 value)
{
#if __SIZEOF_LONG__ == 8
	return __fls(value);
#else
	return value >> 32 ? 32 + __fls(value >> 32) : __fls((u32)value);
#endif
}

/* Returns the index of the bucket that holds @ns, which is less than 2^FABSTAT_LIMIT_SHIFT. */
static inline u32 fabstat_bucket_in_range(u64 ns)
{
	/* The first octave above the linear part, so that this needs no branch. */
	u64 least = 1 << (FABSTAT_UNIT_SHIFT + FABSTAT_SUB_BITS);
	/* By so much SUB_BITS bits are left below the highest one. */
	u32 shift = fabstat_log2(ns | least) - FABSTAT_SUB_BITS;

	/* The mask is what the CPU does anyway, and spares UBSAN a check. */
	return ((shift - FABSTAT_UNIT_SHIFT) << FABSTAT_SUB_BITS) + (u32)(ns >> (shift & 63));
}

/* Returns the index of the bucket that holds @ns, 0 .. FABSTAT_BUCKETS - 1. */
static inline u32 fabstat_bucket(u64 ns)
{
	if (ns >> FABSTAT_LIMIT_SHIFT)
		return FABSTAT_BUCKETS - 1;
	return fabstat_bucket_in_range(ns);
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
