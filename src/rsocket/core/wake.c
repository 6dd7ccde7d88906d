/* SPDX-License-Identifier: BSD-2-Clause */
#include "rsocket/core/wake.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "rsocket/core/pending.h"

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static __thread struct {
	int fd;
	unsigned generation;
	bool is_open;
} own;

static void close_own(void *unused)
{
	if (own.is_open)
		close(own.fd);
	own.is_open = false;
}

static void make_key(void)
{
	pthread_key_create(&key, close_own);
}

/* A child shares the parent's eventfd: each would read what is meant for the other. */
static void drop_inherited(void)
{
	if (own.is_open && own.generation != vb_host_generation())
		close_own(NULL);
}

int vb_rs_thread_fd(void)
{
	VB_UNCANCELLED;
	drop_inherited();
	if (own.is_open)
		return own.fd;
	int fd = vb_fd_raise(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (fd < 0)
		return -errno;
	own.fd = fd;
	own.generation = vb_host_generation();
	own.is_open = true;
	pthread_once(&key_once, make_key);
	pthread_setspecific(key, &own); /* any value but NULL makes the destructor run */
	return fd;
}

void vb_rs_thread_fd_clear(int fd)
{
	VB_UNCANCELLED;
	eventfd_t count;

	eventfd_read(fd, &count);
}

void vb_rs_wake_locked(struct vb_rs *s)
{
	struct vb_rs_sleeper *sleeper;
	struct vb_rs_membership *m;

	if (vb_list_is_empty(&s->sleepers) && vb_list_is_empty(&s->memberships))
		return;
	VB_UNCANCELLED;
	vb_list_for_each(sleeper, &s->sleepers, node)
		eventfd_write(sleeper->fd, 1);
	vb_list_for_each(m, &s->memberships, of_socket)
		vb_rs_pending_add(m);
}
