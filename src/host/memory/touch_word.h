/* SPDX-License-Identifier: BSD-2-Clause */
/* The copies of eight bytes for host/memory/touch.h: one load and one store. 0, or a negative errno. */
#ifndef VB_HOST_TOUCH_WORD_H
#define VB_HOST_TOUCH_WORD_H

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "host/loop/rseq.h"

/* The table tells the handler where an access that faults continues. */
#define VB_TOUCH_LINE(label)                       \
	".pushsection vb_touch_table, \"a\"\n"      \
	".balign 4\n"                              \
	".long " label " - .\n"                    \
	".long %l[faulted] - .\n"                  \
	".popsection\n"

/*
 * The sequence from 4 to 5 begins anew at 3, where a thread comes from 6. A fault in a sequence interrupts
 * it, too, so the handler finds the thread at 6.
 */
#define VB_TOUCH_SEQUENCE                          \
	".pushsection .data.rel.ro, \"aw\"\n"      \
	".balign 32\n"                             \
	"2: .long 0, 0\n"                          \
	".quad 4f, 5f - 4f, 6f\n"                  \
	".popsection\n"                            \
	VB_TOUCH_LINE("6f")

#if defined(__x86_64__)

static inline int vb_touch_word(void *to, const void *from)
{
	__asm__ goto("1: movq (%1), %%rax\n" VB_TOUCH_LINE("1b")
		     "2: movq %%rax, (%0)\n" VB_TOUCH_LINE("2b")
		     : : "r"(to), "r"(from) : "rax", "memory" : faulted);
	return 0;
faulted:
	return -EFAULT;
}

static inline int vb_touch_word_unless(void *to, const void *from, const _Atomic(uint32_t) *stop,
				       uint64_t *sequence)
{
	__asm__ goto("1: movq (%1), %%rax\n" VB_TOUCH_LINE("1b") VB_TOUCH_SEQUENCE
		     "3: leaq 2b(%%rip), %%rcx\n"
		     "movq %%rcx, (%3)\n"
		     "4: cmpl $0, (%2)\n"
		     "jne %l[told]\n"
		     "movq %%rax, (%0)\n"
		     "5:\n"
		     ".pushsection .text.unlikely, \"ax\"\n"
		     ".byte 0x0f, 0xb9, 0x3d\n"
		     ".long " VB_RSEQ_SIGNATURE_TEXT "\n"
		     "6: jmp 3b\n"
		     ".popsection\n"
		     : : "r"(to), "r"(from), "r"(stop), "r"(sequence)
		     : "rax", "rcx", "cc", "memory" : faulted, told);
	return 0;
faulted:
	return -EFAULT;
told:
	return -ECANCELED;
}

#elif defined(__aarch64__)

static inline int vb_touch_word(void *to, const void *from)
{
	__asm__ goto("1: ldr x16, [%1]\n" VB_TOUCH_LINE("1b")
		     "2: str x16, [%0]\n" VB_TOUCH_LINE("2b")
		     : : "r"(to), "r"(from) : "x16", "memory" : faulted);
	return 0;
faulted:
	return -EFAULT;
}

static inline int vb_touch_word_unless(void *to, const void *from, const _Atomic(uint32_t) *stop,
				       uint64_t *sequence)
{
	__asm__ goto("1: ldr x16, [%1]\n" VB_TOUCH_LINE("1b") VB_TOUCH_SEQUENCE
		     "3: adrp x17, 2b\n"
		     "add x17, x17, :lo12:2b\n"
		     "str x17, [%3]\n"
		     "4: ldr w17, [%2]\n"
		     "cbnz w17, %l[told]\n"
		     "str x16, [%0]\n"
		     "5:\n"
		     ".pushsection .text.unlikely, \"ax\"\n"
		     ".inst " VB_RSEQ_SIGNATURE_TEXT "\n"
		     "6: b 3b\n"
		     ".popsection\n"
		     : : "r"(to), "r"(from), "r"(stop), "r"(sequence)
		     : "x16", "x17", "memory" : faulted, told);
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
