/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slots: numbers that the kernel hands out as names of abstract sockets. The inbox's name decides; the link
 * listener's is bound second, and a slot with only one of the two free counts as taken.
 *
 * Slots are only added; the table is written under the host lock, `mine` is read by anybody.
 */
#include "host/udp/holder.h"
#include "host/private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"

enum { MAX_SLOTS = 256 }; /* of one process: a million QPs */

struct slot {
	uint32_t number;
	struct vb_watch inbox;
	struct vb_door links;
};

static struct slot slots[MAX_SLOTS];
static unsigned slot_count;
static atomic_bool links_are_refused; /* written under the host lock */
static _Atomic uint64_t mine[VB_SLOT_COUNT / 64];
static atomic_int inboxes[VB_SLOT_COUNT]; /* of slots that are this process's, descriptors and 1; else 0 */
static _Atomic uint32_t first_slot;
static _Atomic uid_t shown_user; /* what the listeners say */

/* ---- names ---- */

static struct vb_name slot_name(const char *kind, uint32_t slot)
{
	struct vb_name n = { .un.sun_family = AF_UNIX };
	int len = snprintf(n.un.sun_path + 1, sizeof n.un.sun_path - 1, "verbatim/%s/%u", kind, slot);
	n.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
	return n;
}

struct vb_name vb_name_of_inbox(uint32_t slot) { return slot_name("slot", slot); }

struct vb_name vb_name_of_link(uint32_t slot)
{
	char kind[16];
	snprintf(kind, sizeof kind, "link/%u", (unsigned)VB_LINK_VERSION);
	return slot_name(kind, slot);
}

struct vb_name vb_name_of_inspections(uint32_t slot) { return slot_name("visit", slot); }

uint32_t vb_name_parse_inbox(const struct sockaddr_un *un, socklen_t bytes)
{
	static const char prefix[] = "\0verbatim/slot/";
	const size_t head = offsetof(struct sockaddr_un, sun_path) + sizeof prefix - 1;
	if (bytes <= head || bytes > head + 4 || un->sun_family != AF_UNIX ||
	    memcmp(un->sun_path, prefix, sizeof prefix - 1) != 0)
		return 0;
	uint32_t slot = 0;
	for (const char *p = un->sun_path + sizeof prefix - 1; p < (const char *)un + bytes; p++) {
		if (*p < '0' || *p > '9' || (*p == '0' && slot == 0))
			return 0;
		slot = slot * 10 + (uint32_t)(*p - '0');
	}
	return slot < VB_SLOT_COUNT ? slot : 0;
}

/* ---- taking ---- */

static bool takes_links(void) { return !vb_local_is_off() && !vb_links_are_refused(); }

static void inbox_ready(struct vb_watch *w, uint32_t epoll_events)
{
	vb_inbox_receive(w->fd, NULL, NULL);
}

static void slot_close_locked(struct slot *s)
{
	vb_fd_close_locked(s->inbox.fd);
	vb_door_close_locked(&s->links);
	s->inbox.fd = -1;
}

/* -EADDRINUSE: somebody has it. */
static int slot_open_locked(struct slot *s, uint32_t number)
{
	*s = (struct slot){
		.number = number,
		.inbox = { .fd = -1, .ready = inbox_ready, .arg = s },
	};
	vb_door_init(&s->links, vb_link_accepted);
	struct vb_name name = vb_name_of_inbox(number), links = vb_name_of_link(number);
	int err = vb_inbox_open_locked(&name, false, &s->inbox.fd);
	if (!err)
		err = vb_door_open_locked(&s->links, &links, takes_links());
	if (!err && takes_links())
		(void)vb_link_socket_locked(&s->links.spare);
	if (err)
		slot_close_locked(s);
	return err;
}

static void slot_leave(struct slot *s)
{
	vb_watch_stop(&s->inbox);
	vb_watch_stop(&s->links.watch);
}

/*
 * Once the progress thread runs, not under the host lock: on failure it waits for callbacks, which may need
 * that lock.
 */
static int slot_serve(struct slot *s)
{
	int err = vb_watch_start(&s->inbox, EPOLLIN);
	if (!err && takes_links())
		err = vb_watch_start(&s->links.watch, EPOLLIN);
	if (err) {
		slot_leave(s);
		return err;
	}
	atomic_store(&inboxes[s->number], s->inbox.fd + 1);
	atomic_fetch_or(&mine[s->number / 64], 1ull << s->number % 64);
	return 0;
}

/* Whoever has them may mean it. */
__attribute__((cold)) static void explain_none_free(void)
{
	static unsigned long inodes[VB_SLOT_COUNT];
	char owner[VB_OWNER_TEXT];
	unsigned n = vb_holders_of_slots(inodes, VB_SLOT_COUNT);
	vb_owner_of_sockets(inodes, n, (uid_t)-1, owner);
	vb_explain(
		"host",
		"no slot is free for this process: %u of %u are taken in this network namespace, most by %s",
		n, VB_SLOT_COUNT - 1, owner);
}

static int slot_take_locked(struct slot **slot)
{
	if (slot_count == MAX_SLOTS)
		return -EADDRNOTAVAIL;
	struct slot *s = &slots[slot_count];
	uint32_t start; /* anywhere, so that a dead process's slot is not the next one's at once */
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
	if (vb_debug_enabled)
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

void vb_link_show_user(void)
{
	uid_t user = geteuid();
	if (atomic_load_explicit(&shown_user, memory_order_relaxed) == user)
		return;
	vb_host_lock();
	atomic_store(&shown_user, user);
	for (unsigned i = 0; i < slot_count && takes_links(); i++)
		vb_door_listen_again(&slots[i].links);
	vb_inspections_show_user_locked();
	vb_host_unlock();
}

bool vb_links_are_refused(void) { return atomic_load(&links_are_refused); }

/* The names stay taken, as no other process shall have them. */
void vb_links_refuse(void)
{
	vb_host_lock();
	if (!atomic_exchange(&links_are_refused, true))
		for (unsigned i = 0; i < slot_count; i++)
			shutdown(slots[i].links.watch.fd, SHUT_RDWR);
	vb_host_unlock();
}

uint32_t vb_slot_first(void) { return atomic_load_explicit(&first_slot, memory_order_relaxed); }

int vb_slot_inbox(uint32_t slot)
{
	return slot < VB_SLOT_COUNT ? atomic_load_explicit(&inboxes[slot], memory_order_relaxed) - 1 : -1;
}

bool vb_slot_is_mine(uint32_t slot)
{
	return slot < VB_SLOT_COUNT &&
	       (atomic_load_explicit(&mine[slot / 64], memory_order_relaxed) >> slot % 64 & 1);
}

/* ---- start, fork ---- */

int vb_slot_start_locked(void)
{
	struct slot *s;
	atomic_store(&shown_user, geteuid());
	int err = slot_take_locked(&s);
	if (err)
		return err;
	err = slot_serve(s);
	if (err) {
		slot_close_locked(s);
		vb_slot_forget();
		return err;
	}
	atomic_store(&first_slot, s->number);
	vb_inspections_start_locked(s->number);
	return 0;
}

void vb_slot_forget(void)
{
	vb_inspections_forget();
	while (slot_count)
		atomic_store(&inboxes[slots[--slot_count].number], 0);
	atomic_store(&links_are_refused, false);
	atomic_store(&first_slot, 0);
	for (size_t i = 0; i < VB_ARRAY_LEN(mine); i++)
		atomic_store(&mine[i], 0);
}
