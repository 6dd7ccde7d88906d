/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The floor under every message between two processors: two threads hand one cache line back and forth. On
 * x86 it says too how many cycles perftest counts in a microsecond. usage: cacheline CPU CPU
 */
#include <pthread.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "pair.h"

enum { BATCHES = 201, ROUNDS = 5000, COUNT_NS = 20000000, ENOUGH_NS = 1000000000 };

static const unsigned STOP = ~0u;

static _Alignas(64) struct {
	atomic_uint turn;     /* even: the first thread's; STOP: nobody's any more */
	char rest[60];
} line;

static void *second(void *cpu)
{
	use_cpu(*(int *)cpu);
	for (unsigned turn; (turn = atomic_load_explicit(&line.turn, memory_order_acquire)) != STOP;)
		if (turn & 1)
			atomic_store_explicit(&line.turn, turn + 1, memory_order_release);
	return NULL;
}

static void hand_over(void)
{
	for (unsigned i = 0; i < 2 * ROUNDS; i += 2) {
		atomic_store_explicit(&line.turn, i + 1, memory_order_release);
		while (atomic_load_explicit(&line.turn, memory_order_acquire) != i + 2)
			;
	}
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
	unsigned batches = 0;
	uint64_t begin;
	pthread_t thread;
	int cpu;

	if (argc != 3)
		die("usage: cacheline CPU CPU");
	cpu = atoi(argv[2]);
	check(pthread_create(&thread, NULL, second, &cpu) == 0, "pthread_create");
	use_cpu(atoi(argv[1]));
	/* A busy machine may let the two meet once in a time slice only. */
	for (begin = now_ns(); batches < BATCHES && now_ns() - begin < ENOUGH_NS; batches++) {
		uint64_t start = now_ns();

		hand_over();
		half_round_ns[batches] = (double)(now_ns() - start) / ROUNDS / 2;
	}
	atomic_store(&line.turn, STOP);
	pthread_join(thread, NULL);
	count_cycles();
	figure("half_round_ns", median(half_round_ns, batches));
	return 0;
}
