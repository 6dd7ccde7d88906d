/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which processes may share memory with this one. As for ptrace(2), the same user number does not suffice.
 * Both processes must have the same real, effective and saved user, in the same user namespace, and neither
 * may hide its memory, as programs do that have or had other rights. Each process checks itself and the
 * other; a link needs both checks.
 *
 * /proc has all of it: the kernel shows /proc/PID/ns/user only to processes that may read the other's memory.
 * Without /proc, these functions try to read that memory.
 *
 * Since a connection was made, the peer's PID may have become another process's. It has not while a pidfd of
 * the connection's peer is alive.
 *
 * The verbatim command asks as well, so nothing here needs the library's state.
 */
#ifndef VB_HOST_RIGHTS_H
#define VB_HOST_RIGHTS_H

#include "host/host.h"

/* A pidfd of who is at the other end; -ENOPROTOOPT: this kernel has none; another negative errno. */
int vb_rights_pidfd(int socket);
/*
 * Why no memory is shared with a peer; NULL: it may be. pidfd: what vb_rights_pidfd said. *lack: what this
 * process lacks for the check, as a negative errno. Then nothing is known.
 */
const char *vb_rights_why_not(const struct vb_peer_cred *peer, int pidfd, int *lack);
/* As far as its PID tells. */
bool vb_process_may_share(pid_t pid);

#endif
