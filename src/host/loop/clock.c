/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/host.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"

uint64_t vb_now_ns(void) { return vb_clock_ns(CLOCK_MONOTONIC); }

/* Steele, Lea and Flood's SplitMix64 step. */
static uint64_t mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

void vb_random(void *buf, size_t bytes)
{
	VB_UNCANCELLED;
	uint8_t *p = buf;
	while (bytes) {
		ssize_t n = getrandom(p, bytes, GRND_NONBLOCK);
		if (n <= 0)
			break;
		p += n;
		bytes -= (size_t)n;
	}
	/* Early in a machine's boot the kernel has none yet. Then processes must only differ. */
	uint64_t state = vb_now_ns() ^ (uint64_t)getpid() << 40 ^ (uintptr_t)buf;
	while (bytes) {
		uint64_t word = mix(&state);
		size_t n = bytes < sizeof word ? bytes : sizeof word;
		memcpy(p, &word, n);
		p += n;
		bytes -= n;
	}
}

void vb_sleep_ns(uint64_t ns)
{
	VB_UNCANCELLED;
	struct timespec time = vb_timespec_of_ns(ns);
	nanosleep(&time, NULL);
}
