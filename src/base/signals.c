/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/signals.h"

#include <errno.h>
#include <pthread.h>

#include "base/numbers.h"

/*
 * Signals of a thread's own faults, and last that of abort(3). They do not interrupt sleeps; their handlers
 * report crashes.
 */
static const int crashes[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
enum { FAULTS = VB_ARRAY_LEN(crashes) - 1 };

static bool is_crash(int number)
{
	for (unsigned i = 0; i < VB_ARRAY_LEN(crashes); i++)
		if (crashes[i] == number)
			return true;
	return false;
}

enum effect { NONE, RESTARTS, ENDS };

static enum effect effect_of(int number)
{
	struct sigaction action;

	if (is_crash(number) || sigaction(number, NULL, &action)) /* the C library keeps some to itself */
		return NONE;
	if (!(action.sa_flags & SA_SIGINFO) && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN))
		return NONE;
	return action.sa_flags & SA_RESTART ? RESTARTS : ENDS;
}

/* Of the signals in one set and not in the other. */
static enum effect strongest_effect(const sigset_t *in, const sigset_t *not_in)
{
	enum effect strongest = NONE;
	int before = errno;

	for (int number = 1; number <= SIGRTMAX && strongest != ENDS; number++) {
		bool counts = sigismember(in, number) && !sigismember(not_in, number);
		enum effect effect = counts ? effect_of(number) : NONE;

		if (effect > strongest)
			strongest = effect;
	}
	errno = before;
	return strongest;
}

bool vb_goes_on_after_signal(const sigset_t *mask)
{
	sigset_t all, own;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, NULL, &own);
	return strongest_effect(&all, mask ? mask : &own) == RESTARTS;
}

void vb_signals_but_faults(sigset_t *set)
{
	sigfillset(set);
	for (unsigned i = 0; i < FAULTS; i++)
		sigdelset(set, crashes[i]);
}

void vb_signals_hold(sigset_t *before)
{
	sigset_t held;

	vb_signals_but_faults(&held);
	sigdelset(&held, SIGABRT);
	pthread_sigmask(SIG_BLOCK, &held, before);
}

bool vb_signals_interrupt(const sigset_t *before)
{
	sigset_t waiting;

	sigpending(&waiting);
	return !sigisemptyset(&waiting) && strongest_effect(&waiting, before) == ENDS;
}

void vb_signals_release(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }
