/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The accesses of touch.c for arm64, which includes this. Nothing is kept on the stack, so vb_touch_fails can
 * return for all of them.
 */

/* Copies x2 bytes from x1 to x0. */
#define COPY_FRONT                          \
	"10:	cmp	x2, #64\n"             \
	"	b.lo	1f\n"                  \
	"	ldp	q0, q1, [x1], #32\n"    \
	"	ldp	q2, q3, [x1], #32\n"    \
	"	stp	q0, q1, [x0], #32\n"    \
	"	stp	q2, q3, [x0], #32\n"    \
	"	sub	x2, x2, #64\n"          \
	"	b	10b\n"                   \
	"1:	cmp	x2, #16\n"             \
	"	b.lo	2f\n"                  \
	"	ldr	q0, [x1], #16\n"        \
	"	str	q0, [x0], #16\n"        \
	"	sub	x2, x2, #16\n"          \
	"	b	1b\n"                    \
	"2:	tbz	x2, #3, 3f\n"          \
	"	ldr	x3, [x1], #8\n"         \
	"	str	x3, [x0], #8\n"         \
	"3:	tbz	x2, #2, 4f\n"          \
	"	ldr	w3, [x1], #4\n"         \
	"	str	w3, [x0], #4\n"         \
	"4:	ands	x2, x2, #3\n"         \
	"	b.eq	5f\n"                  \
	"0:	ldrb	w3, [x1], #1\n"       \
	"	strb	w3, [x0], #1\n"        \
	"	subs	x2, x2, #1\n"          \
	"	b.ne	0b\n"                  \
	"5:\n"

/*
 * The sequence from 12 to 13 (host/loop/rseq.h), whose first instructions look at the word at x12. It is
 * named at x4, and restarted from 11 on. x5 is lost.
 */
#define BEGIN_SEQUENCE                                    \
	".pushsection .data.rel.ro, \"aw\"\n"              \
	"	.balign	32\n"                              \
	"14:	.word	0, 0\n"                           \
	"	.quad	12f, 13f - 12f, 11f\n"             \
	".popsection\n"                                    \
	"	b	11f\n"                             \
	"	.inst	" VB_RSEQ_SIGNATURE_TEXT "\n"       \
	"11:	adrp	x5, 14b\n"                       \
	"	add	x5, x5, :lo12:14b\n"               \
	"	str	x5, [x4]\n"                        \
	"12:	ldr	w5, [x12]\n"                     \
	"	cbnz	w5, vb_touch_is_told\n"

/* Copies: to: x0, from: x1, bytes: x2. */
__asm__(".text\n"
	".p2align 4\n"
	"	.cfi_startproc\n"
	"vb_touch_bytes:\n"
	"	subs	x2, x2, #8\n"
	"	b.eq	29f\n"
	"	b.lo	26f\n"
	COPY_FRONT
	"	dmb	ish\n"
	"29:	ldr	x3, [x1]\n"
	"	str	x3, [x0]\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"26:	add	x2, x2, #8\n"
	"	cmp	x2, #4\n"
	"	b.ne	27f\n"
	"	ldr	w3, [x1]\n"
	"	str	w3, [x0]\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"27:	subs	x2, x2, #1\n"
	"	b.eq	28f\n"
	"	ldrb	w3, [x1], #1\n"
	"	strb	w3, [x0], #1\n"
	"	b	27b\n"
	"28:	dmb	ish\n"
	"	ldrb	w3, [x1]\n"
	"	strb	w3, [x0]\n"
	"	mov	w0, #0\n"
	"	ret\n"

	/* The same with stop: x3, sequence: x4. The last store of each length ends a sequence, so an
	 * interruption repeats no store once the last bytes are visible. */
	".p2align 4\n"
	"vb_touch_bytes_unless:\n"
	"	mov	x12, x3\n"
	"	subs	x2, x2, #8\n"
	"	b.eq	29f\n"
	"	b.lo	26f\n"
	"	mov	x9, x0\n"
	"	mov	x10, x1\n"
	"	mov	x11, x2\n"
	BEGIN_SEQUENCE
	"	mov	x0, x9\n"
	"	mov	x1, x10\n"
	"	mov	x2, x11\n"
	COPY_FRONT
	"13:	dmb	ish\n"
	"29:	ldr	x6, [x1]\n"
	BEGIN_SEQUENCE
	"	str	x6, [x0]\n"
	"13:	mov	w0, #0\n"
	"	ret\n"
	"26:	add	x2, x2, #8\n"
	"	cmp	x2, #4\n"
	"	b.ne	27f\n"
	"	ldr	w6, [x1]\n"
	BEGIN_SEQUENCE
	"	str	w6, [x0]\n"
	"13:	mov	w0, #0\n"
	"	ret\n"
	"27:	cmp	x2, #1\n"
	"	b.ne	28f\n"
	"	dmb	ish\n"
	"28:	ldrb	w6, [x1]\n"
	BEGIN_SEQUENCE
	"	strb	w6, [x0]\n"
	"13:	add	x0, x0, #1\n"
	"	add	x1, x1, #1\n"
	"	subs	x2, x2, #1\n"
	"	b.ne	27b\n"
	"	mov	w0, #0\n"
	"	ret\n"

	/* Atomics: word: x0, value: x1, compare: x2, found: x3; then sequence: x4, stop: x5. */
	"vb_touch_swap_if:\n"
	"	ldaxr	x4, [x0]\n"
	"	cmp	x4, x2\n"
	"	b.ne	21f\n"
	"	stlxr	w5, x1, [x0]\n"
	"	cbnz	w5, vb_touch_swap_if\n"
	"	b	21f\n"
	"vb_touch_add:\n"
	"	ldaxr	x4, [x0]\n"
	"	add	x5, x4, x1\n"
	"	stlxr	w6, x5, [x0]\n"
	"	cbnz	w6, vb_touch_add\n"
	"	b	21f\n"
	"vb_touch_exchange:\n"
	"	ldaxr	x4, [x0]\n"
	"	stlxr	w5, x1, [x0]\n"
	"	cbnz	w5, vb_touch_exchange\n"
	"21:	dmb	ish\n"
	"	str	x4, [x3]\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"vb_touch_swap_if_unless:\n"
	"	mov	x12, x5\n"
	BEGIN_SEQUENCE
	"	ldaxr	x6, [x0]\n"
	"	cmp	x6, x2\n"
	"	b.ne	22f\n"
	"	stlxr	w7, x1, [x0]\n"
	"13:	cbnz	w7, 11b\n"
	"	b	22f\n"
	"vb_touch_add_unless:\n"
	"	mov	x12, x5\n"
	BEGIN_SEQUENCE
	"	ldaxr	x6, [x0]\n"
	"	add	x7, x6, x1\n"
	"	stlxr	w8, x7, [x0]\n"
	"13:	cbnz	w8, 11b\n"
	"22:	dmb	ish\n"
	"	str	x6, [x3]\n"
	"	mov	w0, #0\n"
	"	ret\n"

	"vb_touch_is_told:\n"
	"	mov	w0, #-125\n"
	"	ret\n"
	"vb_touch_fails:\n"
	"	mov	w0, #-14\n"
	"	ret\n"
	"	.cfi_endproc\n");

#undef COPY_FRONT
#undef BEGIN_SEQUENCE

static uintptr_t place_of(const ucontext_t *c) { return (uintptr_t)c->uc_mcontext.pc; }
static void go_on_at(ucontext_t *c, uintptr_t place) { c->uc_mcontext.pc = place; }
