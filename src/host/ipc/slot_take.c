/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Taking slots. The kernel hands them out as names of abstract sockets. The inbox's name decides; the link
 * listener's is bound second, and a slot with only one of the two free counts as taken.
 *
 * A process that refuses links (VERBATIM_LOCAL=off) has its listeners' names, but does not listen.
 */
#include "host/net/holder.h"
#include "host/private.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/log.h"

enum { MAX_SLOTS = 256 }; /* of one process: a million QPs */

struct slot {
	uint32_t number;
	struct vb_watch inbox;
	struct vb_listener links;
};

/* Under the host lock. */
static struct slot slots[MAX_SLOTS];
static unsigned slot_count;
static atomic_bool links_are_refused; /* read without the lock */

static bool takes_links(void) { return !vb_local_is_off() && !vb_links_are_refused(); }

static void inbox_ready(struct vb_watch *w, uint32_t epoll_events)
{
	vb_inbox_receive(w->fd, NULL, NULL);
}

static void slot_close_locked(struct slot *s)
{
	vb_fd_close_locked(s->inbox.fd);
	vb_listener_close_locked(&s->links);
	s->inbox.fd = -1;
}

/* -EADDRINUSE: somebody has it. */
static int slot_open_locked(struct slot *s, uint32_t number)
{
	*s = (struct slot){
		.number = number,
		.inbox = { .fd = -1, .ready = inbox_ready, .arg = s },
	};
	vb_listener_init(&s->links, vb_link_accepted);
	struct vb_name name = vb_name_of_inbox(number), links = vb_name_of_link(number);
	int err = vb_inbox_open_locked(&name, false, &s->inbox.fd);
	if (!err)
		err = vb_listener_open_locked(&s->links, &links, takes_links());
	if (!err && takes_links())
		(void)vb_link_socket_locked(&s->links.spare);
	if (err)
		slot_close_locked(s);
	return err;
}

static void slot_unwatch(struct slot *s)
{
	vb_watch_stop(&s->inbox);
	vb_watch_stop(&s->links.watch);
}

/*
 * While the progress thread runs, not to be called under the host lock: on failure it waits for callbacks,
 * which may need that lock.
 */
static int slot_serve(struct slot *s)
{
	int err = vb_watch_start(&s->inbox, EPOLLIN);
	if (!err && takes_links())
		err = vb_watch_start(&s->links.watch, EPOLLIN);
	if (err) {
		slot_unwatch(s);
		return err;
	}
	vb_slot_add(s->number, s->inbox.fd);
	return 0;
}

__attribute__((cold)) static void explain_none_free(void)
{
	static unsigned long inodes[2 * VB_SLOT_COUNT];
	char owner[VB_OWNER_TEXT];
	unsigned taken, n = vb_holders_of_slots(VB_LINK_VERSION, inodes, VB_SLOT_COUNT, &taken);
	vb_owner_of_sockets(inodes, n, (uid_t)-1, owner);
	vb_explain(
		"host",
		"no slot is free for this process: %u of %u are taken in this network namespace, most by %s",
		taken, VB_SLOT_COUNT - 1, owner);
}

static int slot_take_locked(struct slot **slot)
{
	if (slot_count == MAX_SLOTS)
		return -EADDRNOTAVAIL;
	struct slot *s = &slots[slot_count];
	uint32_t start; /* at random, so that a dead process's slot is not reused at once */
	vb_random(&start, sizeof start);
	for (uint32_t i = 0; i < VB_SLOT_COUNT; i++) {
		uint32_t number = (start % VB_SLOT_COUNT + i) % VB_SLOT_COUNT;
		int err = number ? slot_open_locked(s, number) : -EADDRINUSE;
		if (err == -EADDRINUSE)
			continue;
		if (err)
			return err;
		slot_count++;
		*slot = s;
		return 0;
	}
	if (vb_is_explaining())
		explain_none_free();
	return -EADDRNOTAVAIL;
}

int vb_slot_take(uint32_t *slot)
{
	struct slot *s;
	vb_host_lock();
	int err = slot_count ? slot_take_locked(&s) : -ENOTCONN;
	vb_host_unlock();
	if (err)
		return err;
	err = slot_serve(s);
	if (!err) {
		*slot = s->number;
		return 0;
	}
	vb_host_lock();
	slot_close_locked(s); /* its place in the table stays unused */
	vb_host_unlock();
	return err;
}

bool vb_links_are_refused(void) { return atomic_load(&links_are_refused); }

/* The names stay taken, so that no other process can take them. */
void vb_links_refuse(void)
{
	vb_host_lock();
	if (!atomic_exchange(&links_are_refused, true))
		for (unsigned i = 0; i < slot_count; i++)
			vb_listener_shut_locked(&slots[i].links);
	vb_host_unlock();
}

/* ---- start, fork ---- */

int vb_slot_start_locked(void)
{
	struct slot *s;
	int err = slot_take_locked(&s);
	if (err)
		return err;
	err = slot_serve(s);
	if (err) {
		slot_close_locked(s);
		slot_count = 0;
	}
	return err;
}

void vb_slot_take_forget(void)
{
	slot_count = 0;
	atomic_store(&links_are_refused, false);
}
