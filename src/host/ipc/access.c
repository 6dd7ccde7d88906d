/* SPDX-License-Identifier: BSD-2-Clause */
/* Who is at the other end of a link, and may he share memory with this process (rights.h)? */
#include "host/ipc/rights.h"

#include <errno.h>

#include "base/cancel.h"
#include "base/log.h"
#include "host/private.h"

static int open_pidfd(int link)
{
	vb_host_lock();
	int pidfd = vb_rights_pidfd(link);
	if (pidfd >= 0)
		pidfd = vb_fd_own(pidfd);
	vb_host_unlock();
	return pidfd;
}

static int check_access(int link, const struct vb_peer_cred *peer)
{
	static _Atomic pid_t reported; /* the last process reported: many queue pairs cause one report */
	int lack = 0, pidfd = open_pidfd(link);
	const char *why = vb_rights_why_not(peer, pidfd, &lack);
	if (pidfd >= 0)
		vb_fd_close(pidfd);
	if (lack)
		return lack;
	if (why && atomic_exchange(&reported, peer->pid) != peer->pid)
		vb_explain_limit("link", "no memory is shared with process %d: %s", (int)peer->pid, why);
	return why ? -EPERM : 0;
}

int vb_link_check_peer(int link, struct vb_peer_cred *cred)
{
	VB_UNCANCELLED;
	struct ucred peer;
	socklen_t bytes = sizeof peer;
	if (getsockopt(link, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		return -errno;
	*cred = (struct vb_peer_cred){ .pid = peer.pid, .uid = peer.uid };
	return check_access(link, cred);
}
