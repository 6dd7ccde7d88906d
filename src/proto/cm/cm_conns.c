/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connections of a process: four hash indexes, timers, and the destroyed ones in the order of their age.
 */
#include "proto/cm/cm_internal.h"

#include <stdlib.h>

struct vb_cm_table *vb_cm_table_create(const struct vb_cm_config *config, uint64_t hash_seed)
{
	struct vb_cm_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->config = *config;
	t->hash_seed = hash_seed;
	t->timers = (struct vb_heap)VB_HEAP_INIT;
	vb_list_init(&t->all);
	vb_list_init(&t->destroyed);
	return t;
}

void vb_cm_table_destroy(struct vb_cm_table *t)
{
	free(t);
}

const struct vb_cm_counters *vb_cm_table_counters(const struct vb_cm_table *t)
{
	return &t->counters;
}

void vb_cm_table_count(const struct vb_cm_table *t, unsigned *total, unsigned *destroyed)
{
	*total = t->num_all;
	*destroyed = t->num_destroyed;
}

struct vb_cm_conn *vb_cm_table_next(const struct vb_cm_table *t, const struct vb_cm_conn *previous)
{
	const struct vb_list *next = previous ? previous->all.next : t->all.next;

	return next == &t->all ? NULL : vb_container_of(next, struct vb_cm_conn, all);
}

struct vb_cm_conn *vb_cm_table_find(const struct vb_cm_table *t, uint32_t local_comm_id)
{
	struct vb_cm_conn *c = vb_cm_conns_by_id(t, local_comm_id);

	return c && !c->destroyed ? c : NULL;
}

bool vb_cm_table_has(const struct vb_cm_table *t, uint32_t local_comm_id)
{
	return vb_cm_conns_by_id(t, local_comm_id) != NULL;
}

uint64_t vb_cm_deadline(const struct vb_cm_table *t)
{
	const struct vb_heap_node *first = vb_heap_first(&t->timers);

	return first ? first->key : VB_CM_NEVER;
}

bool vb_cm_gid_is_zero(const uint8_t gid[16])
{
	static const uint8_t zero[16];

	return !memcmp(gid, zero, sizeof(zero));
}

/* Multiply and fold. Peers choose their comm ids and QPNs, and do not know the seed. */
static unsigned chain_of(const struct vb_cm_table *t, uint64_t key, const uint8_t *gid)
{
	uint64_t h = t->hash_seed ^ key * UINT64_C(0x9e3779b97f4a7c15), half;

	for (unsigned i = 0; gid && i < 16; i += 8) {
		memcpy(&half, gid + i, 8);
		h = (h ^ h >> 29 ^ half) * UINT64_C(0xbf58476d1ce4e5b9);
	}
	h = (h ^ h >> 32) * UINT64_C(0x94d049bb133111eb);
	return (unsigned)(h >> 40) & (VB_CM_HASH_CHAINS - 1);
}

static void chain_add(struct vb_cm_hash_node **chain, struct vb_cm_hash_node *n)
{
	n->next = *chain;
	n->pprev = chain;
	if (n->next)
		n->next->pprev = &n->next;
	*chain = n;
}

static void chain_remove(struct vb_cm_hash_node *n)
{
	if (!n->pprev)
		return;
	*n->pprev = n->next;
	if (n->next)
		n->next->pprev = n->pprev;
	n->pprev = NULL;
}

static uint64_t remote_key(bool sidr, uint32_t remote_comm_id)
{
	return (uint64_t)sidr << 32 | remote_comm_id;
}

void vb_cm_conns_add(struct vb_cm_table *t, struct vb_cm_conn *c)
{
	chain_add(&t->by_id[chain_of(t, c->local_comm_id, NULL)], &c->by_id);
	vb_list_add_tail(&t->all, &c->all);
	vb_list_init(&c->destroyed_list);
	t->num_all++;
}

void vb_cm_conns_release(struct vb_cm_table *t, struct vb_cm_conn *c, struct vb_cm_out *out)
{
	struct vb_cm_event *ev = &out->events[out->num_events++];

	chain_remove(&c->by_id);
	chain_remove(&c->by_remote);
	chain_remove(&c->by_qpn);
	vb_heap_remove(&t->timers, &c->timer);
	vb_list_del(&c->all);
	vb_list_del(&c->destroyed_list);
	t->num_all--;
	t->num_destroyed--;
	c->state = VB_CM_CLOSED;
	memset(ev, 0, sizeof(*ev));
	ev->type = VB_CM_EV_RELEASE;
	ev->conn = c;
}

void vb_cm_conns_mark_destroyed(struct vb_cm_table *t, struct vb_cm_conn *c)
{
	c->destroyed = true;
	vb_list_add_tail(&t->destroyed, &c->destroyed_list);
	t->num_destroyed++;
}

void vb_cm_conns_evict(struct vb_cm_table *t, struct vb_cm_out *out)
{
	if (t->num_destroyed <= t->config.max_lingering)
		return;
	t->counters.evicted++;
	vb_cm_conns_release(t, vb_container_of(t->destroyed.next, struct vb_cm_conn, destroyed_list), out);
}

void vb_cm_conns_index_remote(struct vb_cm_table *t, struct vb_cm_conn *c)
{
	chain_add(&t->by_remote[chain_of(t, remote_key(c->sidr, c->remote_comm_id), c->peer_gid)],
		  &c->by_remote);
}

void vb_cm_conns_index_qpn(struct vb_cm_table *t, struct vb_cm_conn *c)
{
	if (c->remote_qpn && !vb_cm_gid_is_zero(c->peer_gid))
		chain_add(&t->by_qpn[chain_of(t, c->remote_qpn, c->peer_gid)], &c->by_qpn);
}

void vb_cm_conns_index_host(struct vb_cm_table *t, struct vb_cm_conn *c)
{
	chain_add(&t->by_host[chain_of(t, 0, c->peer_gid)], &c->by_host);
}

void vb_cm_conns_unindex_host(struct vb_cm_conn *c)
{
	chain_remove(&c->by_host);
}

void vb_cm_conns_unindex_remote(struct vb_cm_conn *c)
{
	chain_remove(&c->by_remote);
}

void vb_cm_conns_unindex_qpn(struct vb_cm_conn *c)
{
	chain_remove(&c->by_qpn);
}

struct vb_cm_conn *vb_cm_conns_by_id(const struct vb_cm_table *t, uint32_t local_comm_id)
{
	for (struct vb_cm_hash_node *n = t->by_id[chain_of(t, local_comm_id, NULL)]; n; n = n->next) {
		struct vb_cm_conn *c = vb_container_of(n, struct vb_cm_conn, by_id);

		if (c->local_comm_id == local_comm_id)
			return c;
	}
	return NULL;
}

struct vb_cm_conn *vb_cm_conns_by_remote(const struct vb_cm_table *t, bool sidr, const uint8_t gid[16],
					 uint32_t remote_comm_id)
{
	unsigned chain = chain_of(t, remote_key(sidr, remote_comm_id), gid);

	for (struct vb_cm_hash_node *n = t->by_remote[chain]; n; n = n->next) {
		struct vb_cm_conn *c = vb_container_of(n, struct vb_cm_conn, by_remote);

		if (c->sidr == sidr && c->remote_comm_id == remote_comm_id && !memcmp(c->peer_gid, gid, 16))
			return c;
	}
	return NULL;
}

struct vb_cm_conn *vb_cm_conns_by_qpn(const struct vb_cm_table *t, const uint8_t gid[16], uint32_t qpn)
{
	if (!qpn || vb_cm_gid_is_zero(gid))
		return NULL;
	for (struct vb_cm_hash_node *n = t->by_qpn[chain_of(t, qpn, gid)]; n; n = n->next) {
		struct vb_cm_conn *c = vb_container_of(n, struct vb_cm_conn, by_qpn);

		if (c->remote_qpn == qpn && !memcmp(c->peer_gid, gid, 16))
			return c;
	}
	return NULL;
}

struct vb_cm_conn *vb_cm_conns_next_prober(const struct vb_cm_table *t, const uint8_t gid[16],
					  const struct vb_cm_conn *previous)
{
	for (struct vb_cm_hash_node *n = previous ? previous->by_host.next : t->by_host[chain_of(t, 0, gid)];
	     n; n = n->next) {
		struct vb_cm_conn *c = vb_container_of(n, struct vb_cm_conn, by_host);

		if (!memcmp(c->peer_gid, gid, sizeof(c->peer_gid)))
			return c;
	}
	return NULL;
}
