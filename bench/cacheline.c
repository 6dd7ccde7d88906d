/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The floor under every message between two processors: two threads hand one cache line back and forth. On x86 it says too how many
 * cycles perftest counts in a microsecond.
 * usage: cacheline CPU CPU
 */
#include <pthread.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "pair.h"

enum { BATCHES = 21, ROUNDS = 100000, COUNT_NS = 20000000 };

static _Alignas(64) struct {
	atomic_uint turn;     /* even: the first thread's */
	char rest[60];
} line;

static void hand_over(unsigned parity)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned mine = 2 * i + parity;

		while (atomic_load_explicit(&line.turn, memory_order_acquire) != mine)
			;
		atomic_store_explicit(&line.turn, parity && i == ROUNDS - 1 ? 0 : mine + 1, memory_order_release);
	}
}

static void *second(void *cpu)
{
	use_cpu(*(int *)cpu);
	for (unsigned batch = 0; batch < BATCHES; batch++)
		hand_over(1);
	return NULL;
}

/* Of the time-stamp counter. */
static void count_cycles(void)
{
#if defined(__x86_64__)
	uint64_t start = now_ns(), cycles = __rdtsc();

	while (now_ns() - start < COUNT_NS)
		;
	cycles = __rdtsc() - cycles;
	figure("cycles_per_us", (double)cycles / ((double)(now_ns() - start) / 1e3));
#endif
}

int main(int argc, char **argv)
{
	double half_round_ns[BATCHES];
	pthread_t thread;
	int cpu;

	if (argc != 3)
		die("usage: cacheline CPU CPU");
	cpu = atoi(argv[2]);
	check(pthread_create(&thread, NULL, second, &cpu) == 0, "pthread_create");
	use_cpu(atoi(argv[1]));
	for (unsigned batch = 0; batch < BATCHES; batch++) {
		uint64_t start = now_ns();

		hand_over(0);
		half_round_ns[batch] = (double)(now_ns() - start) / ROUNDS / 2;
	}
	pthread_join(thread, NULL);
	count_cycles();
	figure("half_round_ns", median(half_round_ns, BATCHES));
	return 0;
}
