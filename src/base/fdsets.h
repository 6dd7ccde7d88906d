/* SPDX-License-Identifier: BSD-2-Clause */
/* Converts the sets of select(2) to the list of poll(2), and back. */
#ifndef VB_BASE_FDSETS_H
#define VB_BASE_FDSETS_H

#include <poll.h>
#include <sys/select.h>

/* Sets may be NULL; nfds <= FD_SETSIZE; fds has room for nfds. Returns how many it filled. */
nfds_t vb_polls_from_sets(int nfds, const fd_set *readfds, const fd_set *writefds, const fd_set *exceptfds,
			  struct pollfd *fds);
/*
 * Leaves in the sets what is ready, as select(2) would. Returns how many bits are set; or -EBADF, and leaves
 * the sets alone.
 */
int vb_polls_to_sets(const struct pollfd *fds, nfds_t n, fd_set *readfds, fd_set *writefds,
		     fd_set *exceptfds);

#endif
