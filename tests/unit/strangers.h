/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests with processes of other users, and of other user namespaces. */
#ifndef VB_TEST_STRANGERS_H
#define VB_TEST_STRANGERS_H

#include "child.h"

#include <sched.h>
#include <sys/prctl.h>

enum { SOME_USER = 65532, OTHER_USER = 65533, NO_OTHER_USER = 77 };

/* In a child: another user's process, which the kernel would show to that user as one of his own. */
static inline void become(uid_t user)
{
	if (setresgid(user, user, user) || setresuid(user, user, user))
		_exit(NO_OTHER_USER);
	prctl(PR_SET_DUMPABLE, 1);
}

/* In a child: as a set-user-ID program, which has one user's rights and could be the other again. */
static inline void become_effectively(uid_t user, uid_t other)
{
	if (setresuid(other, user, other))
		_exit(NO_OTHER_USER);
	prctl(PR_SET_DUMPABLE, 1);
}

/* In a child without threads: to a user namespace in which no user has a number, so that all look alike. */
static inline void enter_nameless_namespace(void)
{
	if (unshare(CLONE_NEWUSER))
		_exit(NO_OTHER_USER);
}

/* What a child said first; true: it could not be what it should. */
static inline bool is_impossible(struct child *c, uint64_t *said)
{
	*said = hear(c->sock);
	if (*said != UINT64_MAX)
		return false;
	int status = child_end(c);
	return WIFEXITED(status) && WEXITSTATUS(status) == NO_OTHER_USER;
}

#endif
