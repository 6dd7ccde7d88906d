/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A MAD that the receiver's queue has no room for waits in the outbox, because the machine's own repetition
 * comes a second later; repetitions do not wait behind it. So does a request that nobody listens for:
 * programs close a listener and open it anew while their peers connect again, and over a network this works
 * (perftest -R does it). It waits longer for a port that is bound, as programs tell their peers a port
 * before they listen to it (qperf does). After that it is answered by the REJ that a listening host would
 * have sent. When a MAD finds its process gone, the machine hears that the peer is dead.
 */
#include "rdmacm/agent/agent.h"

#include <stdlib.h>
#include <string.h>

#include "adapter/peer.h"
#include "base/nanoseconds.h"
#include "base/outbox.h"
#include "base/scatter.h"
#include "rdmacm/agent/message_fault.h"
#include "rdmacm/agent/packet.h"
#include "roce/port.h"
#include "ud/gsi.h"

enum {
	MAX_WAITING = 1 << 16, /* in the outbox: some 20 MB */
	/* destroyed connections, 36 MB: a repeated request must find the one that it was for */
	MAX_LINGERING = 1 << 16,
	FINISH_MS = 300,     /* the end of a process waits for peers on the network */
	REPEAT_MS = 20,
	LAST_DREPS = 4,      /* repetitions of a DREP, which has no answer */
	MRA_TIMEOUT = 22,    /* 4.096 us * 2^22, about 17 s: a program may take so long to answer */
};

static struct {
	struct vb_cm_table *table; /* NULL: not open */
	struct vb_timer timer;
	uint64_t armed_ns; /* VB_CM_NEVER: not armed */
	uint32_t num_ids;
	struct vb_scatter ids;
	struct vb_outbox outbox;
} agent;

struct vb_cm_table *vb_cma_table_locked(void) { return agent.table; }

/* ---- timer ---- */

static void set_timer_locked(void)
{
	uint64_t deadline = vb_min_u64(vb_cm_deadline(agent.table), vb_outbox_deadline(&agent.outbox));

	if (deadline >= agent.armed_ns)
		return; /* it fires earlier and is set anew then */
	agent.armed_ns = deadline;
	vb_timer_set(&agent.timer, deadline);
}

/* ---- MADs ---- */

/* 0: the message is neither a REQ nor a SIDR_REQ. */
static uint32_t requester_id(const struct vb_mad *mad)
{
	switch (vb_mad_attribute_id(mad)) {
	case VB_CM_ATTR_REQ:
		return vb_cm_req_msg_local_comm_id(vb_cm_req_of(mad));
	case VB_CM_ATTR_SIDR_REQ:
		return vb_cm_sidr_req_msg_request_id(vb_cm_sidr_req_of(mad));
	}
	return 0;
}

/* Answers a request as its destination's CM would. */
static void refuse_for_peer_locked(const struct vb_cm_send *send, enum vb_cm_rej_reason reason)
{
	struct vb_cm_rx rx = { .from = send->to };
	struct vb_cm_out out;

	if (vb_cm_msg_parse(&send->mad, sizeof(send->mad), &rx.msg) || !vb_cm_msg_service_id(&rx.msg))
		return;
	vb_cm_refuse(agent.table, &rx, reason, &out);
	if (out.num_sends != 1 || vb_cm_msg_parse(&out.sends[0].mad, sizeof(out.sends[0].mad), &rx.msg))
		return;
	vb_cm_receive(agent.table, vb_now_ns(), &rx, &out);
	vb_cma_agent_run_locked(&out);
}

/* Only within this host do QP numbers contain a slot of this host. */
static bool leads_to(const struct vb_cm_conn *c, uint32_t slot)
{
	if (!vb_cma_route_is_local(&c->route))
		return false;
	return vb_cma_route_slot(&c->route) == slot || c->remote_qpn >> VB_SLOT_SHIFT == slot;
}

/* Each call may release connections, so they are collected first. */
static void peer_lost_locked(uint32_t slot)
{
	struct vb_cm_conn *c = NULL, **lost;
	struct vb_cm_out out;
	unsigned total, destroyed, count = 0;

	vb_cm_table_count(agent.table, &total, &destroyed);
	lost = calloc(total + 1, sizeof(struct vb_cm_conn *));
	while (lost && count < total && (c = vb_cm_table_next(agent.table, c)))
		if (leads_to(c, slot))
			lost[count++] = c;
	for (unsigned i = 0; i < count; i++) {
		vb_cm_peer_died(agent.table, lost[i], vb_now_ns(), &out);
		vb_cma_agent_run_locked(&out);
	}
	free(lost);
}

static bool is_awaited_request_locked(const struct vb_cm_send *send)
{
	uint32_t requester = requester_id(&send->mad);

	return requester && vb_cm_table_find(agent.table, requester);
}

static int try_send(const void *message)
{
	const struct vb_cm_send *send = message;
	int err = vb_cma_packet_send(send);

	return vb_cma_route_is_local(&send->to) ? err : 0;
}

static bool is_for_same(const void *a, const void *b)
{
	const struct vb_cm_send *one = a, *other = b;

	return memcmp(&one->to, &other->to, sizeof(one->to)) == 0;
}

static bool is_patient(const void *message)
{
	const struct vb_cm_send *send = message;

	return !vb_cma_route_slot(&send->to) && is_awaited_request_locked(send);
}

static void undeliverable_locked(const void *message)
{
	const struct vb_cm_send *send = message;
	uint32_t slot = vb_cma_route_slot(&send->to);

	if (slot)
		peer_lost_locked(slot);
	else if (is_awaited_request_locked(send))
		refuse_for_peer_locked(send, VB_CM_REJ_INVALID_SERVICE_ID); /* nobody listens */
}

static const struct vb_outbox_type outbox_type = {
	.message_bytes = sizeof(struct vb_cm_send),
	.max_waiting = MAX_WAITING,
	.send = try_send,
	.is_for_same = is_for_same,
	.waits_if_absent = is_patient,
	.absent = undeliverable_locked,
};

/* Faults on purpose. True: the message is not sent. */
static bool fails_locked(const struct vb_cm_send *send)
{
	struct vb_cm_msg msg;
	struct in6_addr peer = vb_cma_route_peer(&send->to);

	if (vb_cm_msg_parse(&send->mad, sizeof(send->mad), &msg))
		return false;
	struct vb_cma_fate fate = vb_cma_fate_of(VB_FAULT_OUT, &msg, &peer);
	if (fate.refusal && !fate.is_lost)
		refuse_for_peer_locked(send, (enum vb_cm_rej_reason)fate.refusal);
	return fate.is_lost || fate.refusal;
}

static void send_locked(const struct vb_cm_send *send)
{
	if (vb_unlikely(vb_faults_on) && fails_locked(send))
		return;
	if (send->repeats && vb_outbox_waits_for(&agent.outbox, send))
		vb_cm_held_back(agent.table, vb_now_ns(), send->repeats);
	else
		vb_outbox_send(&agent.outbox, send, vb_now_ns());
}

/* Events first: a send may find the peer dead, which is a later event. */
void vb_cma_agent_run_locked(const struct vb_cm_out *out)
{
	for (unsigned i = 0; i < out->num_events; i++)
		vb_cma_deliver_locked(&out->events[i]);
	for (unsigned i = 0; i < out->num_sends; i++)
		send_locked(&out->sends[i]);
	set_timer_locked();
}

/* ---- what the progress thread calls ---- */

static void message_returned(const struct vb_cm_msg *msg, const struct in6_addr *host)
{
	struct vb_cm_out out;

	vb_cma_lock();
	if (agent.table) {
		vb_cm_returned(agent.table, vb_now_ns(), msg, host->s6_addr, &out);
		if (out.num_events)
			vb_explain(
				"rdma_connect",
				"no process has the RoCE port at the host that was asked: so it says itself, by ICMP");
		vb_cma_agent_run_locked(&out);
	}
	vb_cma_unlock();
}

static void packet_returned(uint32_t qpn, const struct in6_addr *host)
{
	vb_cma_lock();
	if (agent.table) {
		vb_cm_packet_returned(agent.table, vb_now_ns(), qpn, host->s6_addr);
		set_timer_locked();
	}
	vb_cma_unlock();
}

static void timer_fired(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_cm_out out;

	(void)timer;
	vb_cma_lock();
	agent.armed_ns = VB_CM_NEVER;
	if (agent.table) {
		while (vb_cm_expire(agent.table, now_ns, &out))
			vb_cma_agent_run_locked(&out);
		vb_outbox_try(&agent.outbox, now_ns);
		set_timer_locked();
	}
	vb_cma_unlock();
}

static void peer_died(void *arg, uint32_t slot)
{
	(void)arg;
	vb_cma_lock();
	if (agent.table)
		peer_lost_locked(slot);
	vb_cma_unlock();
}

/* ---- the end of the process ---- */

/* How many DREQs to other hosts are open; sends them once more if `repeat`. */
static unsigned open_dreqs_locked(bool repeat)
{
	struct vb_cm_conn *c = NULL;
	struct vb_cm_out out;
	unsigned count = 0;

	while ((c = vb_cm_table_next(agent.table, c))) {
		if (vb_cma_route_is_local(&c->route) || !vb_cm_repeat_dreq(c, &out))
			continue;
		count++;
		if (repeat)
			vb_cma_packet_send(&out.sends[0]);
	}
	return count;
}

/* A peer that misses its DREP repeats its DREQ, which nobody answers then. */
static void repeat_dreps_locked(void)
{
	struct vb_cm_conn *c = NULL;
	struct vb_cm_out out;

	while ((c = vb_cm_table_next(agent.table, c)))
		if (!vb_cma_route_is_local(&c->route) && vb_cm_repeat_drep(c, &out))
			vb_cma_packet_send(&out.sends[0]);
}

/* Otherwise messages within the host reach their receivers at once. */
void vb_cma_agent_flush(void)
{
	if (vb_local_is_off())
		vb_gsi_hand_on();
}

void vb_cma_agent_finish_locked(void)
{
	for (unsigned n = 0; agent.table && n < LAST_DREPS; n++)
		repeat_dreps_locked();
	for (unsigned ms = 0;
	     agent.table && ms < FINISH_MS && open_dreqs_locked(ms % REPEAT_MS == REPEAT_MS - 1); ms++) {
		vb_cma_unlock();
		vb_sleep_ns(VB_NS_PER_MS);
		vb_cma_lock();
	}
	if (!agent.table || !vb_local_is_off())
		return;
	vb_cma_unlock();
	vb_cma_agent_flush();
	vb_cma_lock();
}

/* ---- life ---- */

void vb_cma_agent_forget(void)
{
	agent.table = NULL;
	memset(&agent.timer, 0, sizeof(agent.timer));
	vb_outbox_init(&agent.outbox, &outbox_type);
}

int vb_cma_agent_open_locked(vb_inbox_handler *arrived)
{
	static const struct vb_cm_config config = { .mra_service_timeout = MRA_TIMEOUT,
						    .max_lingering = MAX_LINGERING,
						    .sidr_linger_ns = 20 * VB_NS_PER_S };
	uint64_t seed;

	vb_random(&seed, sizeof(seed));
	agent.table = vb_cm_table_create(&config, seed);
	if (!agent.table)
		return -ENOMEM;
	vb_outbox_init(&agent.outbox, &outbox_type);
	agent.timer.fire = timer_fired;
	agent.armed_ns = VB_CM_NEVER;
	vb_random(&agent.ids, sizeof(agent.ids));
	vb_inbox_set_handler(VB_GSI_QPN, arrived, NULL);
	vb_gsi_set_returned_handlers(message_returned, packet_returned);
	/* If this fails, processes of this host can still be reached; each send tries it again. */
	vb_roce_open();
	vb_peer_death_subscribe(peer_died, NULL);
	return 0;
}

/* Only peers on other hosts are asked whether they live: within a host, links and inboxes report a death. */
struct vb_cm_endpoint vb_cma_endpoint_locked(void *user, const struct vb_cm_route *peer)
{
	struct vb_cm_endpoint ep = { .user = user, .probes_peer = !vb_cma_route_is_local(peer) };

	vb_random(&ep.tid, sizeof(ep.tid));
	do
		ep.comm_id = vb_cm_id_make(vb_slot_first(), vb_scatter(&agent.ids, agent.num_ids++));
	while (vb_cm_table_has(agent.table, ep.comm_id));
	return ep;
}
