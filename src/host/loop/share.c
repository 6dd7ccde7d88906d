/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/loop/share.h"

#include <sys/resource.h>

#include "base/base.h"

enum { PROGRAMS_OWN = 64, LITTLE_SHARE = 16, MOST = 1 << 20 };

/* A program with few descriptors needs them itself, and the wire needs none for a peer. */
unsigned vb_fd_share(void)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files))
		return 0;
	uint64_t most = vb_min_u64(files.rlim_cur, MOST), own = vb_min_u64(most, PROGRAMS_OWN);
	return (unsigned)(own / LITTLE_SHARE + (most - own) / 2);
}
