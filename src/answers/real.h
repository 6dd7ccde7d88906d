/* SPDX-License-Identifier: BSD-2-Clause */
/* For functions that override libc's. */
#ifndef VB_ANSWERS_REAL_H
#define VB_ANSWERS_REAL_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"

/*
 * Returns the next definition of a name, which is mostly libc's. Programs get a name's default version, but
 * dlsym(3) returns the oldest one before glibc 2.36: that realpath(3) refuses to allocate. So the table gives
 * the default version of each name that has several on x86-64.
 *
 * No lookup here may fail. A failed lookup allocates memory, and the caller may be an allocator that holds
 * its own lock, as jemalloc does when it reads its configuration at start-up.
 */
static inline void *vb_real(const char *name)
{
#ifdef __x86_64__
	static const char *const versions[][2] = {
		{ "glob", "GLIBC_2.27" },
		{ "glob64", "GLIBC_2.27" },
		{ "realpath", "GLIBC_2.3" },
	};
	for (size_t i = 0; i < VB_ARRAY_LEN(versions); i++)
		if (!strcmp(name, versions[i][0]))
			return dlvsym(RTLD_NEXT, name, versions[i][1]);
#endif
	return dlsym(RTLD_NEXT, name);
}

#define REAL(name)                                                               \
	({                                                                       \
		static _Atomic(__typeof__(&name)) real_;                         \
		__typeof__(&name) f_ = atomic_load_explicit(&real_, memory_order_relaxed); \
		if (vb_unlikely(!f_)) {                                          \
			f_ = (__typeof__(&name))(uintptr_t)vb_real(#name);       \
			atomic_store_explicit(&real_, f_, memory_order_relaxed); \
		}                                                                \
		f_;                                                              \
	})

#endif
