/* SPDX-License-Identifier: BSD-2-Clause */
/* Small helpers without any knowledge of RDMA. */
#ifndef VB_BASE_H
#define VB_BASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define vb_container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define VB_ARRAY_LEN(a)                    (sizeof(a) / sizeof((a)[0]))
#define VB_CONCAT(a, b)                    VB_CONCAT_(a, b)
#define VB_CONCAT_(a, b)                   a##b
#define vb_likely(x)                       __builtin_expect(!!(x), 1)
#define vb_unlikely(x)                     __builtin_expect(!!(x), 0)
#define VB_MUST_USE                        __attribute__((warn_unused_result))
#define VB_CACHE_LINE                      64
#define VB_ALIGNED_LINE                    __attribute__((aligned(VB_CACHE_LINE)))
/* Exported from libibverbs to librdmacm, at the private version node. */
#define VB_EXPORT                          __attribute__((visibility("default")))

/*
 * Exports a declared function or object under a name at a version node. Link-time optimisation understands
 * only the attribute.
 */
#if defined(__has_attribute) && __has_attribute(symver)
#define VB_SYMVER(function, name, node) \
	extern __typeof__(function) function __attribute__((symver(name "@" node)))
#else
#define VB_SYMVER(function, name, node) __asm__(".symver " #function ", " name "@" node)
#endif

static inline uint32_t vb_min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint64_t vb_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t vb_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The smallest power of two that is at least v (v 0: 1; v up to 2^31). */
static inline uint32_t vb_pow2_at_least(uint32_t v)
{
	return v <= 1 ? 1 : 1u << (32 - __builtin_clz(v - 1));
}

/* Is [offset, offset + length) in [0, size)? Any values: nothing wraps. */
static inline bool vb_is_within(uint64_t offset, uint64_t length, uint64_t size)
{
	return offset <= size && length <= size - offset;
}
static inline uint64_t vb_align_up(uint64_t v, uint64_t align) { return (v + align - 1) & ~(align - 1); }

/*
 * Orders an atomic operation after all earlier stores, also if it fails to exchange. On x86 atomic operations
 * are full fences themselves; in C11 and on ARM they are not.
 */
static inline void vb_fence_before_atomic(void)
{
#if !defined(__x86_64__)
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Behind an atomic addition: no later load is older than it. */
static inline void vb_fence_behind_addition(void)
{
#if !defined(__x86_64__)
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/*
 * Prefetches a cache line that will soon be read, or written (then it is taken from other processors). Any
 * address is allowed, but unmapped ones, NULL included, cost time.
 */
static inline void vb_fetch(const void *at) { __builtin_prefetch(at); }
static inline void vb_fetch_to_write(const void *at)
{
#if defined(__x86_64__)
	/* compilers emit a prefetch for reading, as old processors have no other */
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

#endif
