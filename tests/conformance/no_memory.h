/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory runs out. A program that includes this has its own allocator, which fails once when it is told to.
 * Each call that allocates is made again and again, and each time another of its allocations fails, the first
 * to the last.
 */
#ifndef TEST_NO_MEMORY_H
#define TEST_NO_MEMORY_H

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../sanitized.h"

/* ---- an allocator that fails once ---- */

static __thread int left = -1; /* allocations of this thread until the one that fails; below 0: none fails */

static bool fails_now(void) { return left >= 0 && left-- == 0; }

#define NO_ALLOCATOR "the sanitizer's allocator cannot be replaced"

#if SANITIZED
enum { HAVE_ALLOCATOR = false };
#else
enum { HAVE_ALLOCATOR = true };

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

static void *none(void)
{
	errno = ENOMEM;
	return NULL;
}

__attribute__((visibility("default"))) void *malloc(size_t n)
{
	return fails_now() ? none() : __libc_malloc(n);
}
__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	return fails_now() ? none() : __libc_calloc(n, size);
}
__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
	return fails_now() ? none() : __libc_realloc(p, n);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t n)
{
	return fails_now() ? none() : __libc_memalign(alignment, n);
}

__attribute__((visibility("default"))) int posix_memalign(void **p, size_t alignment, size_t n)
{
	*p = fails_now() ? NULL : __libc_memalign(alignment, n);
	return *p ? 0 : ENOMEM;
}
#endif

/* The call's nth allocation from now on fails; was there one? */
static void fail_allocation(int n) { left = n; }

static bool have_failed(void)
{
	bool failed = left < 0;
	left = -1;
	return failed;
}

/*
 * Makes a call with each of its allocations failing in turn, until it makes none that has not failed already.
 * An allocation that it can do without may fail unnoticed; some must be noticed. made: how a success is told,
 * whose result undo releases.
 */
#define runs_out(err, call, made, undo)                                                                      \
	do {                                                                                                 \
		int refused_ = 0;                                                                            \
		for (int n_ = 0;; n_++) {                                                                    \
			errno = 0;                                                                           \
			fail_allocation(n_);                                                                 \
			bool made_ = (call) made;                                                            \
			int errno_ = errno;                                                                  \
			bool failed_ = have_failed();                                                        \
			if (made_)                                                                           \
				undo;                                                                        \
			else if (!failed_ || errno_ != (err))                                                \
				fail_msg("%s, allocation %d: errno %s", #call, n_, strerror(errno_));        \
			else                                                                                 \
				refused_++;                                                                  \
			if (!failed_)                                                                        \
				break;                                                                       \
		}                                                                                            \
		if (!refused_)                                                                               \
			fail_msg("%s: it allocates nothing", #call);                                         \
	} while (0)

#define null_when_out(err, call, undo) runs_out(err, call, != NULL, undo)
/* The call returns an errno value. */
#define errno_when_out(err, call, undo) runs_out(err, errno = (call), == 0, undo)

#endif
