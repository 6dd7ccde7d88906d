/* SPDX-License-Identifier: BSD-2-Clause */
#include "rsocket/core/pending.h"

#include <sys/eventfd.h>
#include <unistd.h>

void vb_rs_pending_init(struct vb_rs_pending *p)
{
	pthread_mutex_init(&p->lock, NULL);
	vb_list_init(&p->members);
	p->eventfd = -1;
}

void vb_rs_pending_destroy(struct vb_rs_pending *p)
{
	if (p->eventfd >= 0)
		close(p->eventfd);
	pthread_mutex_destroy(&p->lock);
}

static void signal_locked(struct vb_rs_pending *p)
{
	if (!p->is_signaled && p->eventfd >= 0)
		eventfd_write(p->eventfd, 1);
	p->is_signaled = true;
}

void vb_rs_pending_add(struct vb_rs_membership *m)
{
	struct vb_rs_pending *p = m->pending;

	pthread_mutex_lock(&p->lock);
	if (vb_list_is_empty(&m->in_pending)) {
		vb_list_add_tail(&p->members, &m->in_pending);
		signal_locked(p);
	}
	pthread_mutex_unlock(&p->lock);
}

void vb_rs_pending_remove(struct vb_rs_membership *m)
{
	pthread_mutex_lock(&m->pending->lock);
	vb_list_del(&m->in_pending);
	pthread_mutex_unlock(&m->pending->lock);
}

struct vb_rs_membership *vb_rs_pending_pop(struct vb_rs_pending *p)
{
	pthread_mutex_lock(&p->lock);
	struct vb_list *node = vb_list_pop(&p->members);
	pthread_mutex_unlock(&p->lock);
	return node ? vb_container_of(node, struct vb_rs_membership, in_pending) : NULL;
}

unsigned vb_rs_pending_count(struct vb_rs_pending *p)
{
	const struct vb_list *node;
	unsigned n = 0;

	pthread_mutex_lock(&p->lock);
	for (node = p->members.next; node != &p->members; node = node->next)
		n++;
	pthread_mutex_unlock(&p->lock);
	return n;
}

bool vb_rs_pending_has_any(struct vb_rs_pending *p)
{
	pthread_mutex_lock(&p->lock);
	bool has = !vb_list_is_empty(&p->members);
	pthread_mutex_unlock(&p->lock);
	return has;
}

void vb_rs_pending_settle(struct vb_rs_pending *p)
{
	eventfd_t count;

	pthread_mutex_lock(&p->lock);
	if (p->is_signaled && vb_list_is_empty(&p->members)) {
		eventfd_read(p->eventfd, &count);
		p->is_signaled = false;
	}
	pthread_mutex_unlock(&p->lock);
}
