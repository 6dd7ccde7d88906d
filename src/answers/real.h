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
 * The next definition of a name, libc's mostly. Before glibc 2.36, dlsym(3) gives the oldest version of a
 * name, which programs do not get: realpath's refuses to allocate. So the names that have a newer version are
 * asked for by it. Only for those: a lookup that fails allocates memory, and an allocator may be the caller
 * (jemalloc reads a symbolic link while it holds its lock).
 */
static inline void *vb_real(const char *name)
{
#ifdef __x86_64__
	static const char *const newer[][2] = {
		{ "glob", "GLIBC_2.27" },
		{ "glob64", "GLIBC_2.27" },
		{ "realpath", "GLIBC_2.3" },
	};
	for (size_t i = 0; i < VB_ARRAY_LEN(newer); i++)
		if (!strcmp(name, newer[i][0]))
			return dlvsym(RTLD_NEXT, name, newer[i][1]);
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
