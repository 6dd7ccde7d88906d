/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory that the program has taken away without a word: unmapped, made inaccessible, of a file
 * that was cut short. A NIC would have it pinned; here a peer's request for it must fail, and not end the
 * process that the peer asks.
 *
 * So these accesses fail with -EFAULT where plain ones would raise SIGSEGV or SIGBUS. Where memory is there,
 * that costs nothing: the signals' handler is this file's. It looks which instruction faulted. A fault of
 * other code it passes on: to the handler that was there before, as the kernel would have called it, or to
 * the default.
 *
 * A program that sets a handler of its own later has the signals then. It is looked for when queue pairs are
 * connected; from then on copies fail at once, and the kernel is to be asked to make them, which knows what
 * is there (vb_copy_to_peer). A thread that has blocked the signals cannot be helped: the kernel ends the
 * process.
 */
#ifndef VB_HOST_TOUCH_H
#define VB_HOST_TOUCH_H

#include <errno.h>
#include <stdatomic.h>

#include "base/copy.h"

/* Takes the signals, the first time. */
void vb_touch_prepare(void);
/* Looks whether the program has taken them back. */
void vb_touch_look(void);
/* Has it? Then vb_touch_copy always fails. */
extern atomic_bool vb_touch_lost;
static inline bool vb_touch_is_lost(void)
{
	return vb_unlikely(atomic_load_explicit(&vb_touch_lost, memory_order_relaxed));
}

/* What vb_touch_copy does unless it is lost. */
int vb_touch_bytes(void *to, const void *from, size_t bytes);

/*
 * Copies eight bytes by one load and one store. False: one of them faulted. The table tells the handler where
 * each goes on.
 */
#define VB_TOUCH_LINE(label)                       \
	".pushsection vb_touch_table, \"a\"\n"      \
	".balign 4\n"                              \
	".long " label " - .\n"                    \
	".long %l[faulted] - .\n"                  \
	".popsection\n"

static inline bool vb_touch_word(void *to, const void *from)
{
#if defined(__x86_64__)
	__asm__ goto("1: movq (%1), %%rax\n" VB_TOUCH_LINE("1b") "2: movq %%rax, (%0)\n" VB_TOUCH_LINE("2b")
		     : : "r"(to), "r"(from) : "rax", "memory" : faulted);
	return true;
faulted:
	return false;
#elif defined(__aarch64__)
	__asm__ goto("1: ldr x16, [%1]\n" VB_TOUCH_LINE("1b") "2: str x16, [%0]\n" VB_TOUCH_LINE("2b")
		     : : "r"(to), "r"(from) : "x16", "memory" : faulted);
	return true;
faulted:
	return false;
#else
	return vb_touch_bytes(to, from, sizeof(uint64_t)) == 0;
#endif
}

/* As vb_copy_in_turn (base/copy.h). bytes is not 0. -EFAULT: an unknown part was copied. */
static inline VB_MUST_USE int vb_touch_copy(void *to, const void *from, size_t bytes)
{
	int err;
	if (vb_touch_is_lost())
		return -EFAULT;
	vb_copy_begin();
	if (vb_likely(bytes == sizeof(uint64_t)))
		err = vb_likely(vb_touch_word(to, from)) ? 0 : -EFAULT;
	else
		err = vb_touch_bytes(to, from, bytes);
	vb_copy_end();
	return err;
}

enum vb_touch_op { VB_TOUCH_STORE, VB_TOUCH_ADD, VB_TOUCH_COMPARE_SWAP };

/* An atomic operation of this process's, and what it found. -EFAULT. */
int vb_touch_atomically(_Atomic(uint64_t) *word, enum vb_touch_op op, uint64_t value, uint64_t compare,
			uint64_t *found) VB_MUST_USE;

#endif
