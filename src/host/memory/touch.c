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
#include "host/loop/rseq.h"

/* ---- accesses: copies in the order of vb_copy_ordered ---- */

#ifdef VB_RSEQ_SIGNATURE
__asm__(".irp name, bytes, bytes_unless, swap_if, add, exchange, swap_if_unless, add_unless, fails\n"
	".globl vb_touch_\\name\n"
	".hidden vb_touch_\\name\n"
	".type vb_touch_\\name STT_FUNC\n"
	".endr\n");

#if defined(__x86_64__)
#include "host/memory/touch_x86_64.h"
#else
#include "host/memory/touch_aarch64.h"
#endif

typedef int atomic_access(_Atomic(uint64_t) *word, uint64_t value, uint64_t compare, uint64_t *found);
atomic_access vb_touch_swap_if, vb_touch_add, vb_touch_exchange;
typedef int atomic_access_unless(_Atomic(uint64_t) *word, uint64_t value, uint64_t compare, uint64_t *found,
				 uint64_t *sequence, const _Atomic(uint32_t) *stop);
atomic_access_unless vb_touch_swap_if_unless, vb_touch_add_unless;
void vb_touch_fails(void);
enum { IS_LOST_ANYWAY = false };
_Static_assert(EFAULT == 14 && ECANCELED == 125, "what the copies return");

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

int vb_touch_bytes_unless(void *to, const void *from, size_t bytes, const _Atomic(uint32_t) *stop,
			  uint64_t *sequence)
{
	return -EPERM;
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

static int vb_touch_swap_if_unless(_Atomic(uint64_t) *word, uint64_t value, uint64_t compare, uint64_t *found,
				   uint64_t *sequence, const _Atomic(uint32_t) *stop)
{
	return -EPERM;
}

static int vb_touch_add_unless(_Atomic(uint64_t) *word, uint64_t value, uint64_t compare, uint64_t *found,
			       uint64_t *sequence, const _Atomic(uint32_t) *stop)
{
	return -EPERM;
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

int vb_touch_atomically_unless(const _Atomic(uint32_t) *stop, _Atomic(uint64_t) *word, enum vb_touch_op op,
			       uint64_t value, uint64_t compare, uint64_t *found)
{
	uint64_t *sequence = vb_rseq();
	if (vb_unlikely(!sequence) || op == VB_TOUCH_STORE)
		return -EPERM;
	vb_fence_before_atomic();
	if (op == VB_TOUCH_ADD)
		return vb_touch_add_unless(word, value, compare, found, sequence, stop);
	return vb_touch_swap_if_unless(word, value, compare, found, sequence, stop);
}
