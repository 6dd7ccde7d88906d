/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocators make system calls before they can allocate: jemalloc reads a symbolic link and a file of /proc
 * while it holds its lock. So the libraries that override such calls must not allocate in them, not even at
 * the first. Run with those libraries preloaded; the allocator here makes these calls at its own first.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
static bool starts, has_started;
static unsigned calls, count;

static void start(void)
{
	char room[64];

	has_started = starts = true;
	calls += readlink("/proc/self/exe", room, sizeof(room)) > 0;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	calls += fd >= 0;
	calls += read(fd, room, sizeof(room)) > 0;
	calls += close(fd) == 0;
	starts = false;
}

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
	count += starts;
	if (!has_started)
		start();
	return __libc_malloc(bytes);
}

int main(void)
{
	void *volatile first = malloc(1); /* volatile, or compilers leave both calls out */
	free(first);
	bool right = getenv("LD_PRELOAD") && calls == 4 && !count;
	printf("1..1\n%sok 1 - first calls allocate nothing: %u allocations in %u calls\n", right ? "" : "not ",
	       count, calls);
	return !right;
}
