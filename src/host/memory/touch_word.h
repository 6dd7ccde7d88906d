/* SPDX-License-Identifier: BSD-2-Clause */
/* The copies of eight bytes for host/memory/touch.h: one load and one store. 0, or a negative errno. */
#ifndef VB_HOST_TOUCH_WORD_H
#define VB_HOST_TOUCH_WORD_H

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "host/loop/rseq.h"

/* Operands: 0: to, 1: from, 2: stop, 3: where the sequence's name goes. */
#if defined(__x86_64__)
#define VB_WORD_LOAD      "movq (%1), %%rax\n"
#define VB_WORD_STORE     "movq %%rax, (%0)\n"
#define VB_WORD_NAME      "leaq 2b(%%rip), %%rcx\n" "movq %%rcx, (%3)\n"
#define VB_WORD_LOOK      "cmpl $0, (%2)\n" "jne %l[told]\n"
#define VB_WORD_SIGNATURE ".byte 0x0f, 0xb9, 0x3d\n" ".long " VB_RSEQ_SIGNATURE_TEXT "\n"
#define VB_WORD_JUMP      "jmp"
#define VB_WORD_CLOBBERS  "rax", "rcx", "cc", "memory"
#elif defined(__aarch64__)
#define VB_WORD_LOAD      "ldr x16, [%1]\n"
#define VB_WORD_STORE     "str x16, [%0]\n"
#define VB_WORD_NAME      "adrp x17, 2b\n" "add x17, x17, :lo12:2b\n" "str x17, [%3]\n"
#define VB_WORD_LOOK      "ldr w17, [%2]\n" "cbnz w17, %l[told]\n"
#define VB_WORD_SIGNATURE ".inst " VB_RSEQ_SIGNATURE_TEXT "\n"
#define VB_WORD_JUMP      "b"
#define VB_WORD_CLOBBERS  "x16", "x17", "memory"
#endif

#ifdef VB_WORD_LOAD

/* A line of the table that tells the signal handler where an access that faults continues. */
#define VB_TOUCH_LINE(label)                       \
	".pushsection vb_touch_table, \"a\"\n"      \
	".balign 4\n"                              \
	".long " label " - .\n"                    \
	".long %l[faulted] - .\n"                  \
	".popsection\n"

static inline int vb_touch_word(void *to, const void *from)
{
	__asm__ goto("1: " VB_WORD_LOAD VB_TOUCH_LINE("1b")
		     "2: " VB_WORD_STORE VB_TOUCH_LINE("2b")
		     : : "r"(to), "r"(from) : VB_WORD_CLOBBERS : faulted);
	return 0;
faulted:
	return -EFAULT;
}

/*
 * The sequence lies between the labels 4 and 5. The kernel sends an interrupted thread to 6, which jumps back
 * to 3. A fault within the sequence counts as an interruption, so the signal handler finds the thread at 6.
 */
static inline int vb_touch_word_unless(void *to, const void *from, const _Atomic(uint32_t) *stop,
				       uint64_t *sequence)
{
	__asm__ goto("1: " VB_WORD_LOAD VB_TOUCH_LINE("1b")
		     ".pushsection .data.rel.ro, \"aw\"\n"
		     ".balign 32\n"
		     "2: .long 0, 0\n"
		     ".quad 4f, 5f - 4f, 6f\n"
		     ".popsection\n"
		     "3: " VB_WORD_NAME
		     "4: " VB_WORD_LOOK VB_WORD_STORE
		     "5:\n"
		     ".pushsection .text.unlikely, \"ax\"\n" VB_WORD_SIGNATURE
		     "6: " VB_WORD_JUMP " 3b\n"
		     ".popsection\n" VB_TOUCH_LINE("6b")
		     : : "r"(to), "r"(from), "r"(stop), "r"(sequence)
		     : VB_WORD_CLOBBERS : faulted, told);
	return 0;
faulted:
	return -EFAULT;
told:
	return -ECANCELED;
}

#else

static inline int vb_touch_word(void *to, const void *from)
{
	memcpy(to, from, sizeof(uint64_t));
	return 0;
}

static inline int vb_touch_word_unless(void *to, const void *from, const _Atomic(uint32_t) *stop,
				       uint64_t *sequence)
{
	return -EPERM;
}

#endif

#endif
