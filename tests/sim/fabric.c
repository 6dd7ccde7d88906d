/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric.h"

#include <stdlib.h>
#include <string.h>

#include "chance.h"

enum {
	SOCKET_BYTES = 131072, /* a host may be ahead of its link by */
	OF_ALL = 100000,
};

/* One direction of a link: what it has taken is on its way until free_at_ps. */
struct lane {
	uint64_t free_at_ps, last_at_ps; /* last_at_ps: when the last packet is at the other end */
};

static struct host {
	struct fabric_link link;
	struct lane up, down;
} hosts[FABRIC_HOSTS];

struct fabric fabric;

static struct vb_heap events = VB_HEAP_INIT;
static struct fabric_packet *unused;
static void (*take)(const struct fabric_packet *packet);
static uint64_t random_state, now_ps;

void fabric_begin(uint64_t seed, unsigned count, const struct fabric_link *link,
		  void (*arrive)(const struct fabric_packet *packet))
{
	fabric_end();
	memset(hosts, 0, sizeof(hosts));
	for (unsigned i = 0; i < count; i++)
		hosts[i].link = *link;
	now_ps = UINT64_C(1000000000);
	fabric = (struct fabric){ .now = now_ps / 1000 };
	random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	take = arrive;
}

void fabric_set_link(unsigned host, const struct fabric_link *link) { hosts[host].link = *link; }

uint64_t fabric_random(uint64_t below) { return chance_below(&random_state, below); }

/* ---- events ---- */

void fabric_set(struct fabric_event *event, uint64_t at_ns)
{
	vb_heap_remove(&events, &event->node);
	vb_heap_insert(&events, &event->node, vb_max_u64(at_ns * 1000, now_ps));
}

bool fabric_step(uint64_t until_ns)
{
	struct vb_heap_node *first = vb_heap_first(&events);
	if (!first || first->key > until_ns * 1000)
		return false;
	struct fabric_event *event = vb_container_of(first, struct fabric_event, node);
	now_ps = first->key;
	fabric.now = now_ps / 1000;
	vb_heap_remove(&events, first);
	event->happen(event);
	return true;
}

/* ---- packets ---- */

static void at_switch(struct fabric_event *event), at_host(struct fabric_event *event);

static struct fabric_packet *packet_new(void)
{
	struct fabric_packet *p = unused;
	if (p)
		unused = p->next_free;
	else if (!(p = malloc(sizeof(*p))))
		abort();
	memset(&p->event.node, 0, sizeof(p->event.node));
	return p;
}

static void packet_free(struct fabric_packet *p)
{
	p->next_free = unused;
	unused = p;
}

void fabric_end(void)
{
	struct vb_heap_node *first;
	while ((first = vb_heap_first(&events))) {
		struct fabric_event *event = vb_container_of(first, struct fabric_event, node);
		vb_heap_remove(&events, first);
		if (event->happen == at_switch || event->happen == at_host)
			packet_free(vb_container_of(event, struct fabric_packet, event));
	}
}

static bool is_lost(const struct host *h)
{
	return h->link.loss && fabric_random(OF_ALL) < h->link.loss;
}

/* Bytes that the lane has taken and not sent. */
static uint64_t backlog(const struct host *h, const struct lane *lane)
{
	return lane->free_at_ps > now_ps ? (lane->free_at_ps - now_ps) / h->link.per_byte_ps : 0;
}

/* The packet is at the other end when the lane has sent it. */
static void carry(const struct host *h, struct lane *lane, struct fabric_packet *p,
		  void (*arrive)(struct fabric_event *event))
{
	const struct fabric_link *link = &h->link;
	uint64_t takes_ps = (p->bytes + FABRIC_OVERHEAD) * link->per_byte_ps;
	lane->free_at_ps = vb_max_u64(lane->free_at_ps, now_ps) + takes_ps;
	uint64_t at_ps = lane->free_at_ps + link->delay_ns * 1000 + fabric_random(link->jitter_ns * 1000 + 1);
	lane->last_at_ps = vb_max_u64(at_ps, lane->last_at_ps + 1);
	p->event.happen = arrive;
	vb_heap_insert(&events, &p->event.node, lane->last_at_ps);
}

static bool is_to_be_marked(const struct fabric_link *link, uint64_t bytes)
{
	if (!link->mark_all || bytes <= link->mark_from)
		return false;
	return bytes >= link->mark_all ||
	       fabric_random(link->mark_all - link->mark_from) < bytes - link->mark_from;
}

static void lose(struct fabric_packet *p)
{
	fabric.lost++;
	packet_free(p);
}

static void at_host(struct fabric_event *event)
{
	struct fabric_packet *p = vb_container_of(event, struct fabric_packet, event);
	take(p);
	packet_free(p);
}

static void at_switch(struct fabric_event *event)
{
	struct fabric_packet *p = vb_container_of(event, struct fabric_packet, event);
	struct host *h = &hosts[p->to];
	uint64_t bytes = backlog(h, &h->down);
	if (bytes + p->bytes > h->link.queue || is_lost(h) || is_lost(&hosts[p->from])) {
		lose(p);
		return;
	}
	p->is_marked = is_to_be_marked(&h->link, bytes);
	carry(h, &h->down, p, at_host);
}

bool fabric_has_room(unsigned host, struct fabric_event *room)
{
	struct host *h = &hosts[host];
	uint64_t bytes = backlog(h, &h->up);
	if (bytes < SOCKET_BYTES)
		return true;
	fabric_set(room, fabric.now + (bytes - SOCKET_BYTES / 2) * h->link.per_byte_ps / 1000 + 1);
	return false;
}

void fabric_send(unsigned from, unsigned to, void *connection, bool is_answer,
		 const struct vb_packet_out *out)
{
	struct host *h = &hosts[from];
	struct fabric_packet *p = packet_new();
	fabric.packets++;
	p->connection = connection;
	p->from = from;
	p->to = to;
	p->bytes = out->header_bytes + out->payload_bytes + out->pad_bytes;
	p->is_answer = is_answer;
	memcpy(p->header, out->header, sizeof(p->header));
	carry(h, &h->up, p, at_switch);
}
