/* SPDX-License-Identifier: BSD-2-Clause */
/* How much of its limits a process spends on its peers. */
#ifndef VB_HOST_SHARE_H
#define VB_HOST_SHARE_H

enum { VB_LINK_FDS = 3 }; /* descriptors that a link to a process keeps */

/*
 * Descriptors for peers, by RLIMIT_NOFILE: a sixteenth of the first 64 and half of all beyond. The rest is
 * left to the program.
 */
unsigned vb_fd_share(void);

#endif
