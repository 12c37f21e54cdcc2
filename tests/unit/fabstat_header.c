// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checks the module's pure headers in user space; test_stat_header.py builds and runs it.
 *
 * Without arguments: exit 0 when every property holds, else says which and exits 1.
 * With "bounds": prints each bucket's lower bound. With "names": prints the events' names.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;

static inline unsigned long __fls(unsigned long word)
{
	return 8 * sizeof(long) - 1 - __builtin_clzl(word);
}

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))

static int failures;

#define CHECK(condition, value)								\
	do {										\
		(void)test;								\
		if (!(condition)) {							\
			printf("%s:%d: %s does not hold for %llu\n", __FILE__, __LINE__,	\
			       #condition, (unsigned long long)(value));		\
			failures++;							\
		}									\
	} while (0)

#include "checks.h"

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "bounds")) {
		for (u32 index = 0; index < FABSTAT_BUCKETS; index++)
			printf("%llu\n", (unsigned long long)fabstat_bucket_from(index));
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "names")) {
		for (unsigned int event = 0; event < FABSTAT_EVENTS; event++)
			puts(event_names[event]);
		return 0;
	}
	check_bounds(NULL);
	check_random_times(NULL);
	check_classes(NULL);
	check_commands(NULL);
	check_nvme(NULL);
	check_ceiling(NULL);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
