/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The descriptors that the host owns. A forked child closes them at once: a copy of a slot's inbox in a child
 * would keep the slot taken after the parent's death, and a copy of a link would hide that death from the
 * peer.
 */
#include "host/private.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/waits.h"

enum { MAX_FDS = 1 << 20, WORD_BITS = 64 }; /* descriptors beyond stay open in children */

static _Atomic uint64_t owned[MAX_FDS / WORD_BITS];
static _Atomic uint32_t words_used;
static atomic_int least_number = VB_FD_LEAST;

static void mark(int fd)
{
	if (fd < 0 || fd >= MAX_FDS)
		return;
	uint32_t word = (uint32_t)fd / WORD_BITS, used = atomic_load(&words_used);
	while (used <= word && !atomic_compare_exchange_weak(&words_used, &used, word + 1))
		;
	atomic_fetch_or(&owned[word], 1ull << fd % WORD_BITS);
}

void vb_fd_close_locked(int fd)
{
	if (fd < 0)
		return;
	if (fd < MAX_FDS)
		atomic_fetch_and(&owned[fd / WORD_BITS], ~(1ull << fd % WORD_BITS));
	close(fd);
}

/* A fork between unmarking and closing would leave an open descriptor in the child. */
void vb_fd_close(int fd)
{
	vb_host_lock();
	vb_fd_close_locked(fd);
	vb_host_unlock();
}

int vb_fd_lift(int fd, int least)
{
	VB_UNCANCELLED;
	int lifted = fd < 0 || fd >= least ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, least);
	if (lifted < 0)
		return fd;
	close(fd);
	return lifted;
}

void vb_fd_keep_above(int least) { atomic_store(&least_number, least); }

int vb_fd_raise(int fd) { return vb_fd_lift(fd, atomic_load(&least_number)); }

int vb_fd_own(int fd)
{
	fd = vb_fd_raise(fd);
	mark(fd);
	return fd;
}

int vb_epoll_open(void) { return vb_fd_raise(vb_epoll_create(EPOLL_CLOEXEC)); }

void vb_fd_forget(void)
{
	for (uint32_t word = 0; word < atomic_load(&words_used); word++) {
		uint64_t bits = atomic_exchange(&owned[word], 0);
		for (; bits; bits &= bits - 1)
			close((int)(word * WORD_BITS) + __builtin_ctzll(bits));
	}
	atomic_store(&words_used, 0);
}
