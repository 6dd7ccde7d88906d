/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds out that a peer's process was killed. Such a process sends no DREQ, and its kernel knows nothing of
 * its connections. So this process probes each verbatim process that it is connected with over the network.
 * One of the established connections between the two sends the probe: the prober. It repeats the last
 * message of its handshake, as if that had been lost. The siblings, all connections with the same process,
 * are the prober in turn. So a connection that only the peer has forgotten is found, too. A living peer is
 * not disturbed:
 *
 * REP: the active side repeats its RTU. RTU: the passive side sends nothing, but it probes as well.
 *
 * For a dead process somebody else answers. Another process of its host sends REJ, no such communication id:
 * that connection is over, and its siblings are probed at once. Or the kernel of its host returns the
 * message by ICMP, as nobody has the port; it also returns packets of queue pairs.
 *
 * A returned message only raises a doubt: anybody can forge one, and another user's process may be about
 * to take the port. So the prober probes more often. Any message from that host ends the doubt, and a living
 * process sends one before long, as it probes as well. The connections with the host end when the doubt has
 * lasted for some time and one more message is returned.
 *
 * Silence proves nothing: the peer may be stopped, or the network broken. Only verbatim processes are
 * probed; kernels send DREQ for their dead processes.
 *
 * Invariants: a probed connection is established. It is in a ring with its siblings, exactly one of which is
 * the prober. The prober is in the index by host, and its timer runs. The timers of others run only while
 * they are to be probed at once, or end.
 */
#include "base/nanoseconds.h"
#include "proto/cm/cm_internal.h"
#include "proto/cm/gsi.h"

enum {
	PROBE_NS = 300 * VB_NS_PER_MS,
	/*
	 * A kernel sends some ICMP messages at once to a host, and then one a second. Probes must not use
	 * them up.
	 */
	DOUBT_PROBE_NS = 250 * VB_NS_PER_MS,
	DOUBT_ENDS_NS = 2 * VB_NS_PER_S,
	/*
	 * A living process has sent a few probes within this time, even if it hardly gets a processor. If a
	 * process of another user can take the port, it has done so: it tries every 250 ms. Less than a
	 * second, so that the next of the ICMP messages that come once a second ends the doubt.
	 */
	SURE_NS = 3 * PROBE_NS,
};

static bool is_prober(const struct vb_cm_conn *c) { return c->by_host.pprev != NULL; }

static bool is_probed(const struct vb_cm_conn *c)
{
	return c->state == VB_CM_ESTABLISHED && (is_prober(c) || !vb_list_is_empty(&c->siblings));
}

static bool is_of_same_process(const struct vb_cm_conn *a, const struct vb_cm_conn *b)
{
	return vb_cm_id_slot(a->remote_comm_id) == vb_cm_id_slot(b->remote_comm_id);
}

static struct vb_cm_conn *prober_of(const struct vb_cm_table *t, const struct vb_cm_conn *c)
{
	struct vb_cm_conn *a = NULL;

	while ((a = vb_cm_conns_next_prober(t, c->peer_gid, a)) && !is_of_same_process(a, c))
		;
	return a;
}

static bool is_in_doubt(const struct vb_cm_keepalive *k, uint64_t now_ns)
{
	return k->is_in_doubt && now_ns - k->returned_ns < DOUBT_ENDS_NS;
}

uint64_t vb_cm_keepalive_pause_ns(const struct vb_cm_conn *c, uint64_t now_ns)
{
	if (!is_prober(c))
		return VB_CM_NEVER;
	return is_in_doubt(&c->keepalive, now_ns) ? DOUBT_PROBE_NS : PROBE_NS;
}

/* No later than this. */
static void schedule(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t at_ns)
{
	if (vb_heap_contains(&t->timers, &c->timer) && c->timer.key <= at_ns)
		return;
	vb_heap_remove(&t->timers, &c->timer);
	vb_heap_insert(&t->timers, &c->timer, at_ns);
}

void vb_cm_keepalive_begin(struct vb_cm_table *t, struct vb_cm_conn *c)
{
	vb_list_init(&c->siblings);
	c->keepalive = (struct vb_cm_keepalive){ 0 };
	if (!c->probes_peer || vb_cm_gid_is_zero(c->peer_gid) ||
	    !vb_cm_is_of_process(c->remote_comm_id, c->remote_qpn))
		return;
	struct vb_cm_conn *prober = prober_of(t, c);
	if (prober)
		vb_list_add_tail(&prober->siblings, &c->siblings);
	else
		vb_cm_conns_index_host(t, c);
}

static void pass_on(struct vb_cm_table *t, struct vb_cm_conn *c, struct vb_cm_conn *next, uint64_t now_ns)
{
	next->keepalive = c->keepalive;
	vb_cm_conns_unindex_host(c);
	vb_cm_conns_index_host(t, next);
	schedule(t, next, now_ns + vb_cm_keepalive_pause_ns(next, now_ns));
}

static struct vb_cm_conn *next_sibling(const struct vb_cm_conn *c)
{
	return vb_container_of(c->siblings.next, struct vb_cm_conn, siblings);
}

void vb_cm_keepalive_probed(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns)
{
	if (is_prober(c) && next_sibling(c) != c)
		pass_on(t, c, next_sibling(c), now_ns);
}

void vb_cm_keepalive_end(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns)
{
	vb_cm_keepalive_probed(t, c, now_ns);
	vb_cm_conns_unindex_host(c);
	vb_list_del(&c->siblings);
}

void vb_cm_keepalive_heard(const struct vb_cm_table *t, const struct vb_cm_conn *c)
{
	struct vb_cm_conn *a = NULL;

	while (is_probed(c) && (a = vb_cm_conns_next_prober(t, c->peer_gid, a)))
		a->keepalive.is_in_doubt = false;
}

/* At most once in PROBE_NS, or a peer could cause a probe of all siblings for each that it denies. */
void vb_cm_keepalive_unknown(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns)
{
	struct vb_cm_conn *prober = is_probed(c) ? prober_of(t, c) : NULL, *k;
	uint64_t last_ns = prober ? prober->keepalive.all_probed_ns : 0;

	if (!prober || (last_ns && now_ns - last_ns < PROBE_NS))
		return;
	prober->keepalive.all_probed_ns = now_ns;
	vb_list_for_each(k, &c->siblings, siblings)
		schedule(t, k, now_ns);
}

static void end_all(struct vb_cm_table *t, const uint8_t gid[16], uint64_t now_ns)
{
	struct vb_cm_conn *c;

	vb_list_for_each(c, &t->all, all) {
		if (c->state != VB_CM_ESTABLISHED || !c->probes_peer ||
		    memcmp(c->peer_gid, gid, sizeof(c->peer_gid)))
			continue;
		c->is_gone = true;
		schedule(t, c, now_ns);
	}
}

/* True: the doubt is a certainty. */
static bool note_return(struct vb_cm_keepalive *k, uint64_t now_ns)
{
	if (!is_in_doubt(k, now_ns))
		k->doubted_ns = now_ns;
	k->is_in_doubt = true;
	k->returned_ns = now_ns;
	return now_ns - k->doubted_ns >= SURE_NS;
}

void vb_cm_keepalive_returned(struct vb_cm_table *t, struct vb_cm_conn *c, uint64_t now_ns)
{
	struct vb_cm_conn *a = NULL;
	bool is_sure = false;

	if (!is_probed(c))
		return;
	while ((a = vb_cm_conns_next_prober(t, c->peer_gid, a)))
		is_sure |= note_return(&a->keepalive, now_ns);
	schedule(t, prober_of(t, c), now_ns + DOUBT_PROBE_NS);
	if (is_sure)
		end_all(t, c->peer_gid, now_ns);
}
