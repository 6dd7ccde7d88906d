/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/ipc/rights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/waits.h"
#include "host/private.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* ---- this process ---- */

static bool has_one_user(uid_t user)
{
	uid_t real, effective, saved;
	return getresuid(&real, &effective, &saved) == 0 && real == user && effective == user &&
	       saved == user;
}

static const char *why_not_this(uid_t user)
{
	if (!has_one_user(user))
		return "this process's real, effective and saved user differ";
	if (prctl(PR_GET_DUMPABLE) != 1)
		return "this process hides its memory (PR_SET_DUMPABLE): its user has changed, or its program has rights of its own";
	return NULL;
}

/* ---- the other ---- */

static bool namespace_of(const char *process, struct stat *st)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%s/ns/user", process);
	return stat(path, st) == 0;
}

/* *lack: what this process lacks for the check. Then nothing is known of the other. */
static bool is_by_all_numbers(const char *process, uid_t user, int *lack)
{
	char path[64], text[64];
	unsigned real, effective, saved;
	snprintf(path, sizeof path, "/proc/%s/status", process);
	int err = vb_file_field(path, "Uid:", text, sizeof text);
	if (vb_is_short(err))
		*lack = err;
	return !err && sscanf(text, "%u %u %u", &real, &effective, &saved) == 3 && real == user &&
	       effective == user && saved == user;
}

/* Reads where nothing is mapped: the kernel says EFAULT to those whom it would let read. */
static bool may_read_memory(pid_t pid)
{
	char byte;
	struct iovec here = { &byte, 1 }, nowhere = { NULL, 1 };
	return process_vm_readv(pid, &here, 1, &nowhere, 1, 0) < 0 && errno == EFAULT;
}

static const char *why_not_that(pid_t pid, uid_t user, int *lack)
{
	struct stat own, other;
	char process[16];
	if (pid <= 0)
		return "it is in a process namespace that this process does not see";
	snprintf(process, sizeof process, "%d", (int)pid);
	if (!namespace_of("self", &own))
		return may_read_memory(pid) ? NULL : "the kernel does not let this process read its memory";
	if (!namespace_of(process, &other))
		return "the kernel does not let this process look at it (other rights, or it hides its memory)";
	if (own.st_dev != other.st_dev || own.st_ino != other.st_ino)
		return "it is in another user namespace";
	return is_by_all_numbers(process, user, lack) ?
		       NULL :
		       "its real, effective and saved user are not all this one's";
}

/* ---- both ---- */

int vb_rights_pidfd(int socket)
{
	int pidfd = -1;
	socklen_t bytes = sizeof pidfd;
	return getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) < 0 ? -errno : pidfd;
}

static bool is_alive(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	return vb_poll(&p, 1, 0) == 0;
}

const char *vb_rights_why_not(const struct vb_peer_cred *peer, int pidfd, int *lack)
{
	static const char gone[] = "it has gone, and another process may have its number";
	uid_t user = geteuid();
	if (peer->uid != user)
		return "it is another user's";
	const char *why = why_not_this(user);
	if (why)
		return why;
	if (vb_is_short(pidfd))
		*lack = pidfd;
	else if (pidfd < 0 && pidfd != -ENOPROTOOPT)
		return gone;
	why = why_not_that(peer->pid, user, lack);
	return !why && pidfd >= 0 && !is_alive(pidfd) ? gone : why;
}

bool vb_process_may_share(pid_t pid)
{
	int lack;
	return !why_not_that(pid, geteuid(), &lack);
}
