// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What one word for the depth costs a request, beside one word a queue: a model in user space of kmod/depth.h.
 *
 * usage: depth_layout THREADS REQUESTS ROUNDS
 *
 * Each of THREADS threads stays on a CPU of its own and issues and completes REQUESTS requests, WINDOW of them in
 * flight: an atomic add that returns the depth, compared with the highest and the limit, and later an atomic
 * subtraction and a look whether the limit was reached. With "shared" all threads do that to one word, as the CPUs of
 * a device do that has one limit; with "own" each has a word in a cache line of its own, as hardware queues with
 * limits of their own have. With "none" nothing is counted: the loop itself.
 *
 * Prints for each round and layout: layout, and the cycles of the time-stamp counter a request, the mean over threads.
 * The layouts take turns, so that what else the machine does falls on all of them. A round whose threads did not all
 * run at once, because another program had one of the CPUs, is taken again. Exits 1 where that was so too often.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <x86intrin.h>

#define MOST_THREADS	1024
#define LINE		64
/* Requests of a thread that are in flight at a time. */
#define WINDOW		8
/* So often a round is tried. */
#define MOST_TRIES	1000

enum layout { NONE, OWN, SHARED, LAYOUTS };

static const char * const names[LAYOUTS] = { "none", "own", "shared" };

/* As struct fabstat_depth: all that a request touches lies in one line. */
struct depth {
	_Alignas(LINE) atomic_int now;
	_Atomic uint32_t highest;
	_Atomic uint32_t limit;
	_Atomic uint64_t limit_since;
};

static struct depth depths[MOST_THREADS];
static int cpus[MOST_THREADS];
static uint64_t begun[MOST_THREADS], ended[MOST_THREADS];
static int threads;
static long requests;
static enum layout layout;
static atomic_int arrived;
static atomic_bool disturbed;

static inline void enter(struct depth *depth)
{
	uint32_t limit = atomic_load_explicit(&depth->limit, memory_order_relaxed);
	uint32_t now = atomic_fetch_add(&depth->now, 1) + 1;

	if (now > atomic_load_explicit(&depth->highest, memory_order_relaxed))
		atomic_store_explicit(&depth->highest, now, memory_order_relaxed);
	if (now >= limit)
		atomic_store_explicit(&depth->limit_since, 1, memory_order_relaxed);
}

static inline void leave(struct depth *depth)
{
	atomic_fetch_sub(&depth->now, 1);
	if (atomic_load_explicit(&depth->limit_since, memory_order_relaxed))
		atomic_store_explicit(&depth->limit_since, 0, memory_order_relaxed);
}

/* Issues WINDOW requests, then completes them. @depth is NULL where nothing is counted. */
static void window(struct depth *depth)
{
	int i;

	for (i = 0; i < WINDOW; i++) {
		if (depth)
			enter(depth);
		__asm__ volatile("" ::: "memory");
	}
	for (i = 0; i < WINDOW; i++) {
		if (depth)
			leave(depth);
		__asm__ volatile("" ::: "memory");
	}
}

/* Returns how often another program has had the CPU of this thread. */
static long interruptions(void)
{
	struct rusage used;

	getrusage(RUSAGE_THREAD, &used);
	return used.ru_nivcsw;
}

static void *run(void *argument)
{
	long number = (long)argument, done, before;
	struct depth *depth = NULL;
	cpu_set_t mine;

	CPU_ZERO(&mine);
	CPU_SET(cpus[number], &mine);
	if (pthread_setaffinity_np(pthread_self(), sizeof(mine), &mine)) {
		fprintf(stderr, "CPU %d is not to be had\n", cpus[number]);
		exit(1);
	}
	if (layout != NONE)
		depth = &depths[layout == SHARED ? 0 : number];
	/* Who sleeps at a barrier is not back as soon as it opens. */
	atomic_fetch_add(&arrived, 1);
	while (atomic_load(&arrived) < threads)
		_mm_pause();
	before = interruptions();
	begun[number] = __rdtsc();
	for (done = 0; done < requests; done += WINDOW)
		window(depth);
	ended[number] = __rdtsc();
	if (interruptions() != before)
		atomic_store(&disturbed, true);
	return NULL;
}

/* Returns whether all threads did nearly all of their work at the same time. */
static bool together(void)
{
	uint64_t first = UINT64_MAX, last_begun = 0, first_ended = UINT64_MAX, last = 0;
	int i;

	for (i = 0; i < threads; i++) {
		first = begun[i] < first ? begun[i] : first;
		last_begun = begun[i] > last_begun ? begun[i] : last_begun;
		first_ended = ended[i] < first_ended ? ended[i] : first_ended;
		last = ended[i] > last ? ended[i] : last;
	}
	return !atomic_load(&disturbed) && first_ended > last_begun &&
	       (first_ended - last_begun) * 10 >= (last - first) * 8;
}

/* Returns the cycles of a request with @which, the mean over threads; below 0 if these did not all run at once. */
static double measure_once(enum layout which)
{
	pthread_t found[MOST_THREADS];
	double sum = 0;
	long i;

	layout = which;
	atomic_store(&arrived, 0);
	atomic_store(&disturbed, false);
	for (i = 0; i < threads; i++) {
		/* Nobody reaches the limit: that is rare, and costs the same either way. */
		depths[i] = (struct depth){ .highest = UINT32_MAX, .limit = UINT32_MAX };
		if (pthread_create(&found[i], NULL, run, (void *)i)) {
			fprintf(stderr, "thread %ld cannot be made\n", i);
			exit(1);
		}
	}
	for (i = 0; i < threads; i++) {
		pthread_join(found[i], NULL);
		sum += (double)(ended[i] - begun[i]) / requests;
	}
	return together() ? sum / threads : -1;
}

static double measure(enum layout which)
{
	double found = -1;
	int tries;

	for (tries = 0; found < 0 && tries < MOST_TRIES; tries++)
		found = measure_once(which);
	if (found < 0) {
		fprintf(stderr, "in %d tries the threads never ran all at once\n", MOST_TRIES);
		exit(1);
	}
	return found;
}

/* Notes the CPUs that this process may use; returns how many. */
static int usable(void)
{
	cpu_set_t mine;
	int cpu, count = 0;

	if (sched_getaffinity(0, sizeof(mine), &mine))
		return 0;
	for (cpu = 0; cpu < CPU_SETSIZE && count < MOST_THREADS; cpu++)
		if (CPU_ISSET(cpu, &mine))
			cpus[count++] = cpu;
	return count;
}

int main(int argc, char **argv)
{
	int round, rounds;
	enum layout which;

	if (argc != 4)
		return 2;
	threads = atoi(argv[1]);
	requests = atol(argv[2]);
	rounds = atoi(argv[3]);
	if (threads < 1 || threads > usable() || requests < WINDOW || requests % WINDOW || rounds < 1)
		return 2;
	for (round = 0; round < rounds; round++)
		for (which = NONE; which < LAYOUTS; which++)
			printf("%s %.2f\n", names[which], measure(which));
	return 0;
}
