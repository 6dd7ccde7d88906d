/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Restartable sequences (rseq(2)): a few instructions that run without an interruption, or not to their end.
 * If a thread is interrupted within them, the kernel sends it elsewhere. So what a sequence checks first
 * still holds at its last instruction.
 *
 * Four numbers in memory, aligned to 32 bytes, describe a sequence: 0 (two words of 32 bits), the address of
 * its first instruction, its length in bytes, and the address to which the kernel sends an interrupted
 * thread. The four bytes before that address must be VB_RSEQ_SIGNATURE_TEXT.
 *
 * A thread names its sequence by storing the description's address at *vb_rseq(). The store must be the last
 * instruction before the sequence. The kernel clears the name at each interruption, so a thread that is
 * interrupted between the store and the sequence would enter it without a name. The name may stay there
 * afterwards: it means nothing outside of the sequence, and the library is never unloaded.
 */
#ifndef VB_HOST_RSEQ_H
#define VB_HOST_RSEQ_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

#if defined(__x86_64__)
#define VB_RSEQ_SIGNATURE 0x53053053
static inline void *vb_thread_pointer(void)
{
	void *at;
	__asm__("mov %%fs:0, %0" : "=r"(at));
	return at;
}
#elif defined(__aarch64__)
#define VB_RSEQ_SIGNATURE 0xd428bc00
static inline void *vb_thread_pointer(void) { return __builtin_thread_pointer(); }
#endif
#define VB_RSEQ_TEXT_OF(number) #number
#define VB_RSEQ_TEXT(number)    VB_RSEQ_TEXT_OF(number)
#define VB_RSEQ_SIGNATURE_TEXT  VB_RSEQ_TEXT(VB_RSEQ_SIGNATURE)

/* The kernel's struct rseq as of Linux 4.18, in plain types. */
struct vb_rseq_area {
	uint32_t cpu_id_start;
	int32_t cpu_id; /* negative: not registered */
	uint64_t sequence;
	uint32_t flags;
	uint32_t reserved[3];
};

/*
 * From 2.35 on glibc registers an area for each thread, at this distance from the thread pointer. 0: not
 * known yet, or it does not, as users can choose.
 */
extern _Atomic(ptrdiff_t) vb_rseq_offset;
/* For vb_rseq. */
uint64_t *vb_rseq_find(void);

/*
 * Where the calling thread names its sequence. NULL: it can have none. It takes Linux 4.18 on x86-64 or
 * arm64, and that nobody else uses the thread's restartable sequences against glibc's rules.
 */
static inline uint64_t *vb_rseq(void)
{
#ifdef VB_RSEQ_SIGNATURE
	ptrdiff_t offset = atomic_load_explicit(&vb_rseq_offset, memory_order_relaxed);
	struct vb_rseq_area *a = (void *)((char *)vb_thread_pointer() + offset);
	if (vb_likely(offset) && vb_likely(a->cpu_id >= 0))
		return &a->sequence;
#endif
	return vb_rseq_find();
}

#endif
