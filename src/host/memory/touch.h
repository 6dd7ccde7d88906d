/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Access to registered memory that the program may have unmapped, protected or truncated without
 * deregistering it. A NIC would have pinned it. Here a peer's request for it must fail, but not end this
 * process.
 *
 * So these accesses fail with -EFAULT where plain ones would raise SIGSEGV or SIGBUS. Accesses that succeed
 * cost nothing extra: this file handles the signals, and looks which instruction faulted. It passes a fault
 * of other code on: to the handler that was there before, as the kernel would have called it, or to the
 * default.
 *
 * A program that later sets a handler of its own replaces this one. Connecting a queue pair notices that.
 * From then on copies here fail at once, and callers let the kernel copy, which checks addresses
 * (vb_copy_to_peer). In a thread that has blocked the signals a fault ends the process: the kernel does that.
 */
#ifndef VB_HOST_TOUCH_H
#define VB_HOST_TOUCH_H

#include <errno.h>
#include <stdatomic.h>

#include "base/copy.h"
#include "host/loop/rseq.h"
#include "host/memory/touch_word.h"

/* Sets the signal handlers, the first time. */
void vb_touch_prepare(void);
/* Looks whether the program has replaced them. */
void vb_touch_look(void);
/* The program has replaced the handlers: vb_touch_copy always fails. */
extern atomic_bool vb_touch_lost;
static inline bool vb_touch_is_lost(void)
{
	return vb_unlikely(atomic_load_explicit(&vb_touch_lost, memory_order_relaxed));
}

#ifdef __x86_64__
/*
 * Do long copies use string moves of bytes, or of quadwords? On Intel's processors moves of quadwords take
 * three times as long where the two places are aligned differently. On AMD's, moves of bytes are slow at some
 * distances.
 */
extern bool vb_touch_moves_bytes __attribute__((visibility("hidden")));
#endif

/* Of other lengths than eight bytes. For vb_touch_copy. */
int vb_touch_bytes(void *to, const void *from, size_t bytes);

/* As vb_copy_between_fences (base/copy.h). bytes is not 0. -EFAULT: an unknown part was copied. */
static inline VB_MUST_USE int vb_touch_copy(void *to, const void *from, size_t bytes)
{
	int err;
	if (vb_touch_is_lost())
		return -EFAULT;
	vb_copy_begin();
	if (vb_likely(bytes == sizeof(uint64_t)))
		err = vb_touch_word(to, from);
	else
		err = vb_touch_bytes(to, from, bytes);
	vb_copy_end();
	return err;
}

/* Of other lengths than eight bytes. For vb_touch_copy_unless. */
int vb_touch_bytes_unless(void *to, const void *from, size_t bytes, const _Atomic(uint32_t) *stop,
			  uint64_t *sequence);

/*
 * vb_touch_copy from or to memory of another process that is mapped here, unless that process has set *stop.
 * A thread that stops anywhere in the copy, for any time, looks again before it goes on: what is copied after
 * *stop was set is copied by a thread that has not been interrupted since. -ECANCELED: an unknown part was
 * copied, without the last bytes. -EPERM: the thread can have no restartable sequences. Without a stop (NULL)
 * it is vb_touch_copy.
 */
static inline VB_MUST_USE int vb_touch_copy_unless(const _Atomic(uint32_t) *stop, void *to, const void *from,
						   size_t bytes)
{
	if (!stop)
		return vb_touch_copy(to, from, bytes);
	uint64_t *sequence = vb_rseq();
	if (vb_touch_is_lost())
		return -EFAULT;
	if (vb_unlikely(!sequence))
		return -EPERM;
	vb_copy_begin();
	int err = vb_likely(bytes == sizeof(uint64_t)) ?
			  vb_touch_word_unless(to, from, stop, sequence) :
			  vb_touch_bytes_unless(to, from, bytes, stop, sequence);
	vb_copy_end();
	return err;
}

enum vb_touch_op { VB_TOUCH_STORE, VB_TOUCH_ADD, VB_TOUCH_COMPARE_SWAP };

/* An atomic operation on memory of this process, and the value before it. -EFAULT. */
int vb_touch_atomically(_Atomic(uint64_t) *word, enum vb_touch_op op, uint64_t value, uint64_t compare,
			uint64_t *found) VB_MUST_USE;
/*
 * The same in another process's memory that is mapped here, as vb_touch_copy_unless. Not VB_TOUCH_STORE.
 */
int vb_touch_atomically_unless(const _Atomic(uint32_t) *stop, _Atomic(uint64_t) *word, enum vb_touch_op op,
			       uint64_t value, uint64_t compare, uint64_t *found) VB_MUST_USE;

#endif
