/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Restartable sequences (rseq(2)): a few instructions of a thread that the kernel sends elsewhere, if the
 * thread was interrupted within them. What such a sequence looks at first is still true at its last
 * instruction, however long the thread did not run in between.
 *
 * A sequence is described by four numbers in memory, aligned to 32 bytes: 0 (two words of 32 bits), where it
 * begins, how many bytes long it is, and where the thread goes after an interruption. There
 * VB_RSEQ_SIGNATURE_TEXT must stand in the four bytes before. The thread stores the description's address at
 * *vb_rseq() by the last instruction in front of the sequence: at any interruption the kernel clears what it
 * finds there, and between the two the thread would then go on into a sequence without a name. The address
 * may stay there: outside of the sequence it means nothing, and the library is never unloaded.
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
