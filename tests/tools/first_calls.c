/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded libraries must not allocate memory in the libc calls that they override, not even in the first
 * one. An allocator makes such calls while it holds its own lock: jemalloc reads a symbolic link and a file
 * of /proc when it starts. This program's allocator does the same at its first allocation, and counts the
 * allocations that the calls ask for.
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
	printf("1..1\n%sok 1 - first calls allocate nothing: %u allocations in %u calls\n",
	       right ? "" : "not ", count, calls);
	return !right;
}
