/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/restart.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

/* Signals of a thread's own faults do not interrupt sleeps; their handlers report crashes. */
static bool is_crash(int number)
{
	return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
	       number == SIGTRAP || number == SIGSYS || number == SIGABRT;
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

bool vb_goes_on_after_signal(void)
{
	enum effect strongest = NONE;
	int before = errno;
	sigset_t blocked;

	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	for (int number = 1; number <= SIGRTMAX && strongest != ENDS; number++) {
		enum effect effect = sigismember(&blocked, number) ? NONE : effect_of(number);

		if (effect > strongest)
			strongest = effect;
	}
	errno = before;
	return strongest == RESTARTS;
}
