/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The accesses of touch.c for x86-64, which includes this. Stores stay in order. Nothing is kept on the
 * stack, so vb_touch_fails can return for all of them.
 */

#include <cpuid.h>

/* Link-time optimisation does not see that the assembler below reads it. */
__attribute__((used)) bool vb_touch_moves_bytes;

__attribute__((constructor)) static void choose_moves(void)
{
	enum { FEATURES = 7, FAST_STRINGS = 1 << 9 };
	unsigned a, b, c, d, features;
	vb_touch_moves_bytes = __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx &&
			       __get_cpuid_count(FEATURES, 0, &a, &features, &c, &d) &&
			       features & FAST_STRINGS;
}

/* Copies rdx bytes from rsi to rdi. String moves start slowly, and are the fastest for many bytes. */
#define COPY_FRONT                          \
	"	cmpq	$1024, %rdx\n"        \
	"	jb	8f\n"                  \
	"	movq	%rdx, %rcx\n"         \
	"	cmpb	$0, vb_touch_moves_bytes(%rip)\n" \
	"	je	9f\n"                  \
	"	rep	movsb\n"               \
	"	jmp	5f\n"                  \
	"9:	shrq	$3, %rcx\n"          \
	"	rep	movsq\n"               \
	"	andl	$7, %edx\n"           \
	"	jmp	3f\n"                  \
	"8:	cmpq	$64, %rdx\n"          \
	"	jb	1f\n"                  \
	"	movdqu	(%rsi), %xmm0\n"    \
	"	movdqu	16(%rsi), %xmm1\n"  \
	"	movdqu	32(%rsi), %xmm2\n"  \
	"	movdqu	48(%rsi), %xmm3\n"  \
	"	movdqu	%xmm0, (%rdi)\n"    \
	"	movdqu	%xmm1, 16(%rdi)\n"  \
	"	movdqu	%xmm2, 32(%rdi)\n"  \
	"	movdqu	%xmm3, 48(%rdi)\n"  \
	"	addq	$64, %rsi\n"          \
	"	addq	$64, %rdi\n"          \
	"	subq	$64, %rdx\n"          \
	"	jmp	8b\n"                  \
	"1:	cmpq	$16, %rdx\n"          \
	"	jb	2f\n"                  \
	"	movdqu	(%rsi), %xmm0\n"    \
	"	movdqu	%xmm0, (%rdi)\n"    \
	"	addq	$16, %rsi\n"          \
	"	addq	$16, %rdi\n"          \
	"	subq	$16, %rdx\n"          \
	"	jmp	1b\n"                  \
	"2:	testb	$8, %dl\n"           \
	"	jz	3f\n"                   \
	"	movq	(%rsi), %rax\n"       \
	"	movq	%rax, (%rdi)\n"       \
	"	addq	$8, %rsi\n"           \
	"	addq	$8, %rdi\n"           \
	"3:	testb	$4, %dl\n"           \
	"	jz	4f\n"                   \
	"	movl	(%rsi), %eax\n"       \
	"	movl	%eax, (%rdi)\n"       \
	"	addq	$4, %rsi\n"           \
	"	addq	$4, %rdi\n"           \
	"4:	andl	$3, %edx\n"          \
	"	jz	5f\n"                   \
	"0:	movb	(%rsi), %al\n"       \
	"	movb	%al, (%rdi)\n"        \
	"	incq	%rsi\n"               \
	"	incq	%rdi\n"               \
	"	decl	%edx\n"               \
	"	jnz	0b\n"                   \
	"5:\n"

/*
 * The sequence from 12 to 13 (host/loop/rseq.h), whose first instruction looks at the word at r11. It is
 * named at r8, and restarted from 11 on. rax is lost.
 */
#define BEGIN_SEQUENCE                                    \
	".pushsection .data.rel.ro, \"aw\"\n"              \
	"	.balign	32\n"                              \
	"10:	.long	0, 0\n"                           \
	"	.quad	12f, 13f - 12f, 11f\n"             \
	".popsection\n"                                    \
	"	jmp	11f\n"                            \
	"	.byte	0x0f, 0xb9, 0x3d\n" /* ud1: to disassemblers the signature is its operand */ \
	"	.long	" VB_RSEQ_SIGNATURE_TEXT "\n"       \
	"11:	leaq	10b(%rip), %rax\n"                \
	"	movq	%rax, (%r8)\n"                    \
	"12:	cmpl	$0, (%r11)\n"                    \
	"	jne	vb_touch_is_told\n"

/* Copies: to: rdi, from: rsi, bytes: rdx. */
__asm__(".text\n"
	".p2align 4\n"
	"	.cfi_startproc\n"
	"vb_touch_bytes:\n"
	"	subq	$8, %rdx\n"
	"	je	29f\n"
	"	jb	26f\n"
	COPY_FRONT
	"29:	movq	(%rsi), %rax\n"
	"	movq	%rax, (%rdi)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"26:	addq	$8, %rdx\n"
	"	cmpq	$4, %rdx\n"
	"	jne	27f\n"
	"	movl	(%rsi), %eax\n"
	"	movl	%eax, (%rdi)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"27:	movb	(%rsi), %al\n"
	"	movb	%al, (%rdi)\n"
	"	incq	%rsi\n"
	"	incq	%rdi\n"
	"	decq	%rdx\n"
	"	jnz	27b\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"

	/* The same with stop: rcx, sequence: r8. The last store of each length ends a sequence, so an
	 * interruption repeats no store once the last bytes are visible. */
	".p2align 4\n"
	"vb_touch_bytes_unless:\n"
	"	movq	%rcx, %r11\n"
	"	subq	$8, %rdx\n"
	"	je	29f\n"
	"	jb	26f\n"
	"	movq	%rdi, %r9\n"
	"	movq	%rsi, %r10\n"
	"	movq	%rdx, %xmm4\n"
	BEGIN_SEQUENCE
	"	movq	%r9, %rdi\n"
	"	movq	%r10, %rsi\n"
	"	movq	%xmm4, %rdx\n"
	COPY_FRONT
	"13:\n"
	"29:	movq	(%rsi), %rcx\n"
	BEGIN_SEQUENCE
	"	movq	%rcx, (%rdi)\n"
	"13:	xorl	%eax, %eax\n"
	"	ret\n"
	"26:	addq	$8, %rdx\n"
	"	cmpq	$4, %rdx\n"
	"	jne	27f\n"
	"	movl	(%rsi), %ecx\n"
	BEGIN_SEQUENCE
	"	movl	%ecx, (%rdi)\n"
	"13:	xorl	%eax, %eax\n"
	"	ret\n"
	"27:	movb	(%rsi), %cl\n"
	BEGIN_SEQUENCE
	"	movb	%cl, (%rdi)\n"
	"13:	incq	%rsi\n"
	"	incq	%rdi\n"
	"	decq	%rdx\n"
	"	jnz	27b\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"

	/* Atomics: word: rdi, value: rsi, compare: rdx, found: rcx; then sequence: r8, stop: r9. */
	"vb_touch_swap_if:\n"
	"	movq	%rdx, %rax\n"
	"	lock	cmpxchgq %rsi, (%rdi)\n"
	"	movq	%rax, (%rcx)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"vb_touch_add:\n"
	"	lock	xaddq %rsi, (%rdi)\n"
	"	movq	%rsi, (%rcx)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"vb_touch_exchange:\n"
	"	xchgq	%rsi, (%rdi)\n"
	"	movq	%rsi, (%rcx)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"vb_touch_swap_if_unless:\n"
	"	movq	%r9, %r11\n"
	BEGIN_SEQUENCE
	"	movq	%rdx, %rax\n"
	"	lock	cmpxchgq %rsi, (%rdi)\n"
	"13:	movq	%rax, (%rcx)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"vb_touch_add_unless:\n"
	"	movq	%r9, %r11\n"
	BEGIN_SEQUENCE
	"	lock	xaddq %rsi, (%rdi)\n"
	"13:	movq	%rsi, (%rcx)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"

	"vb_touch_is_told:\n"
	"	movl	$-125, %eax\n"
	"	ret\n"
	"vb_touch_fails:\n"
	"	movl	$-14, %eax\n"
	"	ret\n"
	"	.cfi_endproc\n");

#undef COPY_FRONT
#undef BEGIN_SEQUENCE

static uintptr_t place_of(const ucontext_t *c) { return (uintptr_t)c->uc_mcontext.gregs[REG_RIP]; }
static void go_on_at(ucontext_t *c, uintptr_t place) { c->uc_mcontext.gregs[REG_RIP] = (greg_t)place; }
