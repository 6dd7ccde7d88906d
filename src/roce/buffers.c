/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce/buffers.h"

#include <stdlib.h>

#include "base/lock.h"
#include "host/host.h"
#include "proto/rc/rc_responder.h"

enum { MAX_BUFFERS = 16384 }; /* 64 MiB, if a network is that bad */

union buffer {
	union buffer *next; /* while it is free */
	char bytes[VB_RC_BUFFER_BYTES];
};

static struct vb_lock lock = VB_LOCK_INIT;
static union buffer *unused;
static unsigned made;

/* It has been counted. */
static union buffer *make(void)
{
	union buffer *b = malloc(sizeof(*b));
	if (b)
		return b;
	vb_lock(&lock);
	made--;
	vb_unlock(&lock);
	return NULL;
}

void *vb_buffer_take(void)
{
	vb_lock(&lock);
	union buffer *b = unused;
	bool may_make = !b && made < MAX_BUFFERS;
	if (b)
		unused = b->next;
	made += may_make;
	vb_unlock(&lock);
	return may_make ? make() : b;
}

void vb_buffer_give(void *buffer)
{
	union buffer *b = buffer;
	vb_lock(&lock);
	b->next = unused;
	unused = b;
	vb_unlock(&lock);
}

/* A thread of the parent may have held the lock, with the list in any state. */
static void forget(void)
{
	vb_lock_init(&lock);
	unused = NULL;
	made = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}
