/* SPDX-License-Identifier: BSD-2-Clause */
/* For functions that override libc's. */
#ifndef VB_ANSWERS_REAL_H
#define VB_ANSWERS_REAL_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/base.h"

/* The next definition of a name, libc's mostly. */
#define REAL(name)                                                               \
	({                                                                       \
		static _Atomic(__typeof__(&name)) real_;                         \
		__typeof__(&name) f_ = atomic_load_explicit(&real_, memory_order_relaxed); \
		if (vb_unlikely(!f_)) {                                          \
			f_ = (__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name); \
			atomic_store_explicit(&real_, f_, memory_order_relaxed); \
		}                                                                \
		f_;                                                              \
	})

#endif
