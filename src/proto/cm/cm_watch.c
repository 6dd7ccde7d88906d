/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds out that a peer's process was killed. Such a process sends no DREQ, and its kernel knows nothing of
 * its connections. So this process asks each peer process of ours on the network, now and then, whether it
 * is still there. One of the established connections between the two asks, the asker: it repeats the last
 * message of its handshake, as if that had been lost. Connections take turns at asking, so that one which
 * the peer alone has forgotten is found, too. A living peer is not disturbed:
 *
 *	REP	the active side repeats its RTU
 *	RTU	the passive side is silent; but it asks as well
 *
 * For a dead process somebody else answers:
 *
 *	another process of its host	REJ, no such communication id. That connection is over; its kin, the
 *					other connections with the dead process, are asked at once
 *	the kernel of its host		ICMP returns the message, as nobody has the port, and also what queue
 *					pairs send again because they had no answer
 *
 * A returned message is a doubt and no more: anybody can forge one, and another user's process may be about
 * to take the port. So the host is asked more often. Any message from that host ends the doubt, and a living
 * process sends one before long, as it asks as well. The connections with the host end when the doubt has
 * lasted for some time and one more message is returned.
 *
 * Silence proves nothing: the peer may be stopped, or the network broken. Other peers than processes of ours
 * are not asked: kernels, above all, send DREQ for their dead processes.
 *
 * Invariants: a watched connection is established. It is in a ring with its kin, exactly one of which is the
 * asker; the asker is in the index by host, and its timer runs. The timers of others run only while they
 * shall be asked at once, or end.
 */
#include "proto/cm/cm_internal.h"
#include "proto/cm/gsi.h"

enum {
	ASK_NS = 400000000,
	/*
	 * A kernel sends some ICMP messages at once to a host, and then one a second: they are not to be used
	 * up soon.
	 */
	DOUBT_ASK_NS = 250000000,
	DOUBT_ENDS_NS = 2000000000,
	/*
	 * A living process has asked a few times within this, even if it hardly gets a processor. A process
	 * of another user has got the port: it tries every 250 ms.
	 */
	SURE_NS = 4 * ASK_NS,
};

static bool is_asker(const struct vb_cm_conn *c) { return c->by_host.pprev != NULL; }

static bool is_watched(const struct vb_cm_conn *c)
{
	return c->state == VB_CM_ESTABLISHED && (is_asker(c) || !vb_list_is_empty(&c->kin));
}

static bool is_kin(const struct vb_cm_conn *a, const struct vb_cm_conn *b)
{
	return vb_cm_id_slot(a->remote_comm_id) == vb_cm_id_slot(b->remote_comm_id);
}

static struct vb_cm_conn *asker_of(const struct vb_cm_table *t, const struct vb_cm_conn *c)
{
	struct vb_cm_conn *a = NULL;

	while ((a = vb_cm_conns_next_asker(t, c->peer_gid, a)) && !is_kin(a, c))
		;
	return a;
}

static bool is_in_doubt(const struct vb_cm_watch *w, uint64_t now_ns)
{
	return w->is_in_doubt && now_ns - w->returned_ns < DOUBT_ENDS_NS;
}

uint64_t vb_cm_watch_pause_ns(const struct vb_cm_conn *c, uint64_t now_ns)
{
	if (!is_asker(c))
		return VB_CM_NEVER;
	return is_in_doubt(&c->watch, now_ns) ? DOUBT_ASK_NS : ASK_NS;
}

/* No later than this. */
static void schedule(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t at_ns)
{
	if (vb_heap_contains(&t->timers, &c->timer) && c->timer.key <= at_ns)
		return;
	vb_heap_remove(&t->timers, &c->timer);
	vb_heap_insert(&t->timers, &c->timer, at_ns);
}

void vb_cm_watch_begin(struct vb_cm_table *t, struct vb_cm_conn *c)
{
	vb_list_init(&c->kin);
	c->watch = (struct vb_cm_watch){ 0 };
	if (!c->watches || vb_cm_gid_is_zero(c->peer_gid) ||
	    !vb_cm_is_of_process(c->remote_comm_id, c->remote_qpn))
		return;
	struct vb_cm_conn *asker = asker_of(t, c);
	if (asker)
		vb_list_add_tail(&asker->kin, &c->kin);
	else
		vb_cm_conns_index_host(t, c);
}

static void hand_on(struct vb_cm_table *t, struct vb_cm_conn *c, struct vb_cm_conn *next, uint64_t now_ns)
{
	next->watch = c->watch;
	vb_cm_conns_unindex_host(c);
	vb_cm_conns_index_host(t, next);
	schedule(t, next, now_ns + vb_cm_watch_pause_ns(next, now_ns));
}

static struct vb_cm_conn *next_of_kin(const struct vb_cm_conn *c)
{
	return vb_container_of(c->kin.next, struct vb_cm_conn, kin);
}

void vb_cm_watch_asked(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns)
{
	if (is_asker(c) && next_of_kin(c) != c)
		hand_on(t, c, next_of_kin(c), now_ns);
}

void vb_cm_watch_end(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns)
{
	vb_cm_watch_asked(t, c, now_ns);
	vb_cm_conns_unindex_host(c);
	vb_list_del(&c->kin);
}

void vb_cm_watch_heard(const struct vb_cm_table *t, const struct vb_cm_conn *c)
{
	struct vb_cm_conn *a = NULL;

	while (is_watched(c) && (a = vb_cm_conns_next_asker(t, c->peer_gid, a)))
		a->watch.is_in_doubt = false;
}

/* Not for each connection that is over: a peer could have all the others asked for each. */
void vb_cm_watch_forgotten(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns)
{
	struct vb_cm_conn *asker = is_watched(c) ? asker_of(t, c) : NULL, *k;

	if (!asker || (asker->watch.all_asked_ns && now_ns - asker->watch.all_asked_ns < ASK_NS))
		return;
	asker->watch.all_asked_ns = now_ns;
	vb_list_for_each(k, &c->kin, kin)
		schedule(t, k, now_ns);
}

static void end_all(struct vb_cm_table *t, const uint8_t gid[16], uint64_t now_ns)
{
	struct vb_cm_conn *c;

	vb_list_for_each(c, &t->all, all) {
		if (c->state != VB_CM_ESTABLISHED || !c->watches ||
		    memcmp(c->peer_gid, gid, sizeof(c->peer_gid)))
			continue;
		c->is_gone = true;
		schedule(t, c, now_ns);
	}
}

/* True: the doubt is none any more. */
static bool note_return(struct vb_cm_watch *w, uint64_t now_ns)
{
	if (!is_in_doubt(w, now_ns))
		w->doubted_ns = now_ns;
	w->is_in_doubt = true;
	w->returned_ns = now_ns;
	return now_ns - w->doubted_ns >= SURE_NS;
}

void vb_cm_watch_returned(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns)
{
	struct vb_cm_conn *a = NULL;
	bool is_sure = false;

	if (!is_watched(c))
		return;
	while ((a = vb_cm_conns_next_asker(t, c->peer_gid, a)))
		is_sure |= note_return(&a->watch, now_ns);
	schedule(t, asker_of(t, c), now_ns + DOUBT_ASK_NS);
	if (is_sure)
		end_all(t, c->peer_gid, now_ns);
}
