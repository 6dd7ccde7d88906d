/* SPDX-License-Identifier: BSD-2-Clause */
/* For functions that override libc's. */
#ifndef VB_ANSWERS_REAL_H
#define VB_ANSWERS_REAL_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/base.h"

/*
 * The next definition of a name, libc's mostly. dlsym(3) gives the oldest version of a name before glibc
 * 2.36, which programs do not get: realpath's refuses to allocate. On x86-64, glob and realpath have newer
 * ones.
 */
static inline void *vb_real(const char *name)
{
	void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.27");
	if (!found)
		found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3");
	return found ? found : dlsym(RTLD_NEXT, name);
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
