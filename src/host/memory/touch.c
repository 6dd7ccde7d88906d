/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Only instructions of this library make these accesses. Some are in functions that keep nothing on the
 * stack: after a fault the handler continues at their last two instructions, which return -EFAULT. Others are
 * single loads and stores, for which a table has the place to continue. So nothing is recorded before an
 * access, and the handler needs no state of the thread. On other processors the handlers count as replaced.
 */
#include "host/memory/touch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/copy.h"
#include "host/private.h"

/* ---- accesses: copies in the order of vb_copy_ordered ---- */

#if defined(__x86_64__)

/*
 * Copies have to: rdi, from: rsi, bytes: rdx; stores stay in order. Atomics have word: rdi, value: rsi,
 * compare: rdx, found: rcx. String moves start slowly, and are the fastest for many bytes.
 */
__asm__(".text\n"
	".p2align 4\n"
	".hidden vb_touch_bytes\n"
	".hidden vb_touch_fails\n"
	".hidden vb_touch_swap_if, vb_touch_add, vb_touch_exchange\n"
	".globl vb_touch_swap_if, vb_touch_add, vb_touch_exchange\n"
	".globl vb_touch_bytes\n"
	".globl vb_touch_fails\n"
	".type vb_touch_bytes, @function\n"
	"vb_touch_bytes:\n"
	"	.cfi_startproc\n"
	"	subq	$8, %rdx\n"
	"	je	5f\n"
	"	jb	6f\n"
	"	cmpq	$1024, %rdx\n"
	"	jae	9f\n"
	"8:	cmpq	$64, %rdx\n"
	"	jb	1f\n"
	"	movdqu	(%rsi), %xmm0\n"
	"	movdqu	16(%rsi), %xmm1\n"
	"	movdqu	32(%rsi), %xmm2\n"
	"	movdqu	48(%rsi), %xmm3\n"
	"	movdqu	%xmm0, (%rdi)\n"
	"	movdqu	%xmm1, 16(%rdi)\n"
	"	movdqu	%xmm2, 32(%rdi)\n"
	"	movdqu	%xmm3, 48(%rdi)\n"
	"	addq	$64, %rsi\n"
	"	addq	$64, %rdi\n"
	"	subq	$64, %rdx\n"
	"	jmp	8b\n"
	"1:	cmpq	$16, %rdx\n"
	"	jb	2f\n"
	"	movdqu	(%rsi), %xmm0\n"
	"	movdqu	%xmm0, (%rdi)\n"
	"	addq	$16, %rsi\n"
	"	addq	$16, %rdi\n"
	"	subq	$16, %rdx\n"
	"	jmp	1b\n"
	"2:	testb	$8, %dl\n"
	"	jz	3f\n"
	"	movq	(%rsi), %rax\n"
	"	movq	%rax, (%rdi)\n"
	"	addq	$8, %rsi\n"
	"	addq	$8, %rdi\n"
	"3:	testb	$4, %dl\n"
	"	jz	4f\n"
	"	movl	(%rsi), %eax\n"
	"	movl	%eax, (%rdi)\n"
	"	addq	$4, %rsi\n"
	"	addq	$4, %rdi\n"
	"4:	andl	$3, %edx\n"
	"	jz	5f\n"
	"0:	movb	(%rsi), %al\n"
	"	movb	%al, (%rdi)\n"
	"	incq	%rsi\n"
	"	incq	%rdi\n"
	"	decl	%edx\n"
	"	jnz	0b\n"
	"5:	movq	(%rsi), %rax\n"
	"	movq	%rax, (%rdi)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"6:	addq	$8, %rdx\n"
	"	cmpq	$4, %rdx\n"
	"	jne	7f\n"
	"	movl	(%rsi), %eax\n"
	"	movl	%eax, (%rdi)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"7:	movb	(%rsi), %al\n"
	"	movb	%al, (%rdi)\n"
	"	incq	%rsi\n"
	"	incq	%rdi\n"
	"	decq	%rdx\n"
	"	jnz	7b\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"9:	movq	%rdx, %rcx\n"
	"	shrq	$3, %rcx\n"
	"	rep	movsq\n"
	"	andl	$7, %edx\n"
	"	jmp	3b\n"
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
	"vb_touch_fails:\n"
	"	movl	$-14, %eax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size vb_touch_bytes, . - vb_touch_bytes\n");

static uintptr_t place_of(const ucontext_t *c) { return (uintptr_t)c->uc_mcontext.gregs[REG_RIP]; }
static void go_on_at(ucontext_t *c, uintptr_t place) { c->uc_mcontext.gregs[REG_RIP] = (greg_t)place; }

#elif defined(__aarch64__)

/* Copies have to: x0, from: x1, bytes: x2; atomics word: x0, value: x1, compare: x2, found: x3. */
__asm__(".text\n"
	".p2align 4\n"
	".hidden vb_touch_bytes\n"
	".hidden vb_touch_fails\n"
	".hidden vb_touch_swap_if, vb_touch_add, vb_touch_exchange\n"
	".globl vb_touch_swap_if, vb_touch_add, vb_touch_exchange\n"
	".globl vb_touch_bytes\n"
	".globl vb_touch_fails\n"
	".type vb_touch_bytes, %function\n"
	"vb_touch_bytes:\n"
	"	.cfi_startproc\n"
	"	subs	x2, x2, #8\n"
	"	b.eq	6f\n"
	"	b.lo	7f\n"
	"10:	cmp	x2, #64\n"
	"	b.lo	1f\n"
	"	ldp	q0, q1, [x1], #32\n"
	"	ldp	q2, q3, [x1], #32\n"
	"	stp	q0, q1, [x0], #32\n"
	"	stp	q2, q3, [x0], #32\n"
	"	sub	x2, x2, #64\n"
	"	b	10b\n"
	"1:	cmp	x2, #16\n"
	"	b.lo	2f\n"
	"	ldr	q0, [x1], #16\n"
	"	str	q0, [x0], #16\n"
	"	sub	x2, x2, #16\n"
	"	b	1b\n"
	"2:	tbz	x2, #3, 3f\n"
	"	ldr	x3, [x1], #8\n"
	"	str	x3, [x0], #8\n"
	"3:	tbz	x2, #2, 4f\n"
	"	ldr	w3, [x1], #4\n"
	"	str	w3, [x0], #4\n"
	"4:	ands	x2, x2, #3\n"
	"	b.eq	5f\n"
	"0:	ldrb	w3, [x1], #1\n"
	"	strb	w3, [x0], #1\n"
	"	subs	x2, x2, #1\n"
	"	b.ne	0b\n"
	"5:	dmb	ish\n"
	"6:	ldr	x3, [x1]\n"
	"	str	x3, [x0]\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"7:	add	x2, x2, #8\n"
	"	cmp	x2, #4\n"
	"	b.ne	8f\n"
	"	ldr	w3, [x1]\n"
	"	str	w3, [x0]\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"8:	subs	x2, x2, #1\n"
	"	b.eq	9f\n"
	"	ldrb	w3, [x1], #1\n"
	"	strb	w3, [x0], #1\n"
	"	b	8b\n"
	"9:	dmb	ish\n"
	"	ldrb	w3, [x1]\n"
	"	strb	w3, [x0]\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"vb_touch_swap_if:\n"
	"	ldaxr	x4, [x0]\n"
	"	cmp	x4, x2\n"
	"	b.ne	11f\n"
	"	stlxr	w5, x1, [x0]\n"
	"	cbnz	w5, vb_touch_swap_if\n"
	"	b	11f\n"
	"vb_touch_add:\n"
	"	ldaxr	x4, [x0]\n"
	"	add	x5, x4, x1\n"
	"	stlxr	w6, x5, [x0]\n"
	"	cbnz	w6, vb_touch_add\n"
	"	b	11f\n"
	"vb_touch_exchange:\n"
	"	ldaxr	x4, [x0]\n"
	"	stlxr	w5, x1, [x0]\n"
	"	cbnz	w5, vb_touch_exchange\n"
	"11:	dmb	ish\n"
	"	str	x4, [x3]\n"
	"	mov	w0, #0\n"
	"	ret\n"
	"vb_touch_fails:\n"
	"	mov	w0, #-14\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size vb_touch_bytes, . - vb_touch_bytes\n");

static uintptr_t place_of(const ucontext_t *c) { return (uintptr_t)c->uc_mcontext.pc; }
static void go_on_at(ucontext_t *c, uintptr_t place) { c->uc_mcontext.pc = place; }

#endif

#if defined(__x86_64__) || defined(__aarch64__)

typedef int atomic_access(_Atomic(uint64_t) *word, uint64_t value, uint64_t compare, uint64_t *found);
atomic_access vb_touch_swap_if, vb_touch_add, vb_touch_exchange;
void vb_touch_fails(void);
enum { IS_LOST_ANYWAY = false };
_Static_assert(EFAULT == 14, "what vb_touch_bytes returns");

/* A line of the table. Places are relative to their own addresses. */
struct line {
	int32_t place, resume;
};

extern const struct line first[] __asm__("__start_vb_touch_table")
	__attribute__((visibility("hidden"), weak));
extern const struct line last[] __asm__("__stop_vb_touch_table") __attribute__((visibility("hidden"), weak));

static uintptr_t at(const int32_t *distance) { return (uintptr_t)distance + (uintptr_t)(intptr_t)*distance; }

/* Did an access of this file, or one in the table, fault? Then continues at its error exit. */
static bool leave(ucontext_t *c)
{
	uintptr_t place = place_of(c);
	if (place >= (uintptr_t)vb_touch_bytes && place < (uintptr_t)vb_touch_fails) {
		go_on_at(c, (uintptr_t)vb_touch_fails);
		return true;
	}
	for (const struct line *l = first; l < last; l++) {
		if (at(&l->place) == place) {
			go_on_at(c, at(&l->resume));
			return true;
		}
	}
	return false;
}

#else

enum { IS_LOST_ANYWAY = true };

int vb_touch_bytes(void *to, const void *from, size_t bytes)
{
	vb_copy_ordered(to, from, bytes);
	return 0;
}

static int vb_touch_swap_if(_Atomic(uint64_t) *word, uint64_t value, uint64_t compare, uint64_t *found)
{
	*found = compare;
	atomic_compare_exchange_strong(word, found, value);
	return 0;
}

static int vb_touch_add(_Atomic(uint64_t) *word, uint64_t value, uint64_t compare, uint64_t *found)
{
	*found = atomic_fetch_add(word, value);
	return 0;
}

static int vb_touch_exchange(_Atomic(uint64_t) *word, uint64_t value, uint64_t compare, uint64_t *found)
{
	*found = atomic_exchange(word, value);
	return 0;
}

static bool leave(ucontext_t *c) { return false; }

#endif

/* ---- the signals ---- */

atomic_bool vb_touch_lost;

static const int signals[] = { SIGSEGV, SIGBUS };
static struct sigaction before[VB_ARRAY_LEN(signals)]; /* as it was found */

static struct sigaction *before_of(int sig) { return &before[sig == signals[0] ? 0 : 1]; }

static bool is_handler(const struct sigaction *a)
{
	return (a->sa_flags & SA_SIGINFO) || (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN);
}

/*
 * There was no handler before. Restores the default and returns: the fault is raised again. A signal that
 * somebody sent is sent again.
 */
static void do_default(int sig, const siginfo_t *info)
{
	const struct sigaction plain = { .sa_handler = SIG_DFL };
	if (info->si_code <= 0 && before_of(sig)->sa_handler == SIG_IGN)
		return;
	sigaction(sig, &plain, NULL);
	if (info->si_code <= 0)
		raise(sig);
}

/*
 * Blocks the signals that the kernel would have blocked. A handler that does not return (longjmp) restores
 * its own mask.
 */
static void call(const struct sigaction *old, int sig, siginfo_t *info, void *context)
{
	sigset_t blocked = old->sa_mask, now;
	if (!(old->sa_flags & SA_NODEFER))
		sigaddset(&blocked, sig);
	pthread_sigmask(SIG_BLOCK, &blocked, &now);
	if (old->sa_flags & SA_SIGINFO)
		old->sa_sigaction(sig, info, context);
	else
		old->sa_handler(sig);
	pthread_sigmask(SIG_SETMASK, &now, NULL);
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
	struct sigaction old = *before_of(sig);
	if (!is_handler(&old)) {
		do_default(sig, info);
		return;
	}
	if (old.sa_flags & (int)SA_RESETHAND)
		*before_of(sig) = (struct sigaction){ .sa_handler = SIG_DFL };
	call(&old, sig, info, context);
}

/* A code above 0: the kernel reports a fault of this thread. */
static void faulted(int sig, siginfo_t *info, void *context)
{
	int saved_errno = errno;
	if (info->si_code > 0 && leave(context))
		return;
	pass_on(sig, info, context);
	errno = saved_errno;
}

/* On the stack of the previous handler. If there was none: on the thread's signal stack, if it has one. */
static void take(int sig)
{
	struct sigaction *old = before_of(sig);
	sigaction(sig, NULL, old);
	int as_before = is_handler(old) ? old->sa_flags & (SA_ONSTACK | SA_RESTART) : SA_ONSTACK;
	struct sigaction ours = { .sa_sigaction = faulted, .sa_flags = SA_SIGINFO | SA_NODEFER | as_before };
	sigemptyset(&ours.sa_mask);
	sigaction(sig, &ours, NULL);
}

static void take_all(void)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(signals); i++)
		take(signals[i]);
}

void vb_touch_prepare(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, take_all);
	vb_touch_look();
}

void vb_touch_look(void)
{
	bool lost = IS_LOST_ANYWAY;
	for (size_t i = 0; i < VB_ARRAY_LEN(signals); i++) {
		struct sigaction now;
		lost |= !sigaction(signals[i], NULL, &now) && now.sa_sigaction != faulted;
	}
	atomic_store_explicit(&vb_touch_lost, lost, memory_order_relaxed);
}

/* ---- atomics ---- */

int vb_touch_atomically(_Atomic(uint64_t) *word, enum vb_touch_op op, uint64_t value, uint64_t compare,
			uint64_t *found)
{
	if (vb_touch_is_lost() && vb_mem_check(word, sizeof(*word), true))
		return -EFAULT;
	vb_fence_before_atomic();
	switch (op) {
	case VB_TOUCH_STORE:
		return vb_touch_exchange(word, value, compare, found);
	case VB_TOUCH_ADD:
		return vb_touch_add(word, value, compare, found);
	case VB_TOUCH_COMPARE_SWAP:
		break;
	}
	return vb_touch_swap_if(word, value, compare, found);
}
