/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent: the one place where the CM machine meets time, memory and the wire. It runs in whichever thread
 * calls or, for messages, timers and dead peers, in the progress thread; always under the lock.
 *
 * A MAD that the receiver's queue has no room for waits in the outbox, because the machine's own repetition
 * comes a second later; repetitions do not wait behind it. So does a request that nobody listens for:
 * programs close a listener and open it anew while their peers connect again, and get away with it where a
 * network lies between (perftest -R does). After some time it is answered by the REJ that a listening host
 * would have sent. A MAD to a process that is gone becomes the peer's death.
 */
#include "rdmacm/agent.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "adapter/peer.h"
#include "base/cancel.h"
#include "base/outbox.h"
#include "base/scatter.h"
#include "rdmacm/fault.h"
#include "rdmacm/fork.h"
#include "rdmacm/packet.h"
#include "roce/port.h"
#include "ud/gsi.h"

enum {
	MAX_WAITING = 1 << 16, /* in the outbox: some 20 MB */
	/* destroyed connections, 36 MB: a repeated request must find the one that it was for */
	MAX_LINGERING = 1 << 16,
	LEAVE_MS = 300,      /* the end of a process waits for peers on the network */
	REPEAT_MS = 20,
	LAST_DREPS = 4,      /* repetitions of what is not waited for */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;

static struct {
	bool started, fork_watched;
	struct vb_cm_table *table;
	struct vb_timer timer;
	uint64_t armed_ns; /* VB_CM_NEVER: not armed */
	uint32_t num_ids;
	struct vb_scatter ids;
	struct vb_outbox outbox;
} agent;

void vb_cma_lock(void) { pthread_mutex_lock(&lock); }

bool vb_cma_lock_at_exit(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	return pthread_mutex_timedlock(&lock, &until) == 0;
}

void vb_cma_unlock(void) { pthread_mutex_unlock(&lock); }
void vb_cma_wait_ack_locked(void) { vb_cond_wait(&acked, &lock); }
void vb_cma_wake_ack_locked(void) { pthread_cond_broadcast(&acked); }
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

/* What the CM of the host that is asked would answer. */
static void refuse_ourselves_locked(const struct vb_cm_send *send, enum vb_cm_rej_reason reason)
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

/* QP numbers of other hosts look like ours. */
static bool leads_to(const struct vb_cm_conn *c, uint32_t slot)
{
	if (!vb_cma_route_is_local(&c->route))
		return false;
	return vb_cma_route_slot(&c->route) == slot || c->remote_qpn >> VB_SLOT_SHIFT == slot;
}

/* The machine may drop a connection while it is told, so they are collected first. */
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
	int err = vb_cma_packet_send(&send->to, &send->mad);

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
		refuse_ourselves_locked(send, VB_CM_REJ_INVALID_SERVICE_ID); /* nobody listens */
}

static const struct vb_outbox_type outbox_type = {
	.message_bytes = sizeof(struct vb_cm_send),
	.max_waiting = MAX_WAITING,
	.send = try_send,
	.is_for_same = is_for_same,
	.waits_if_absent = is_patient,
	.absent = undeliverable_locked,
};

/* Faults on purpose. True: the message goes nowhere. */
static bool is_taken_locked(const struct vb_cm_send *send)
{
	struct vb_cm_msg msg;
	struct in6_addr peer = vb_cma_route_peer(&send->to);

	if (vb_cm_msg_parse(&send->mad, sizeof(send->mad), &msg))
		return false;
	struct vb_cma_fate fate = vb_cma_fate_of(VB_FAULT_OUT, &msg, &peer);
	if (fate.refusal && !fate.is_lost)
		refuse_ourselves_locked(send, (enum vb_cm_rej_reason)fate.refusal);
	return fate.is_lost || fate.refusal;
}

static void send_locked(const struct vb_cm_send *send)
{
	if (vb_unlikely(vb_faults_on) && is_taken_locked(send))
		return;
	if (!send->is_repetition || !vb_outbox_waits_for(&agent.outbox, send))
		vb_outbox_send(&agent.outbox, send, vb_now_ns());
}

/* Events first: what a send finds out (a dead peer) comes after what the machine said. */
void vb_cma_agent_run_locked(const struct vb_cm_out *out)
{
	for (unsigned i = 0; i < out->num_events; i++)
		vb_cma_deliver_locked(&out->events[i]);
	for (unsigned i = 0; i < out->num_sends; i++)
		send_locked(&out->sends[i]);
	set_timer_locked();
}

/* ---- what the progress thread calls ---- */

static struct vb_cma_fate fate_of(const struct vb_cm_rx *rx)
{
	struct in6_addr own = vb_cma_route_own(&rx->from), peer = vb_cma_route_peer(&rx->from);

	if (vb_fault_is_cut(&own, &peer))
		return (struct vb_cma_fate){ .is_lost = true };
	return vb_cma_fate_of(VB_FAULT_IN, &rx->msg, &peer);
}

void vb_cma_agent_receive(const struct vb_cm_rx *rx)
{
	struct vb_cma_fate fate = { 0 };
	struct vb_cm_out out;

	if (vb_unlikely(vb_faults_on))
		fate = fate_of(rx);
	vb_cma_lock();
	if (agent.started && !fate.is_lost) {
		if (fate.refusal)
			vb_cm_refuse(agent.table, rx, (enum vb_cm_rej_reason)fate.refusal, &out);
		else if (vb_cm_receive(agent.table, vb_now_ns(), rx, &out) != VB_CM_HANDLED)
			vb_cma_take_request_locked(rx, &out);
		vb_cma_agent_run_locked(&out);
	}
	vb_cma_unlock();
}

static void message_returned(const struct vb_cm_msg *msg, const struct in6_addr *host)
{
	struct vb_cm_out out;

	vb_cma_lock();
	if (agent.started) {
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
	if (agent.started) {
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
	if (agent.started) {
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
	if (agent.started)
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
			vb_cma_packet_send(&out.sends[0].to, &out.sends[0].mad);
	}
	return count;
}

/* A peer that misses its DREP asks again, and finds nobody. */
static void repeat_dreps_locked(void)
{
	struct vb_cm_conn *c = NULL;
	struct vb_cm_out out;

	while ((c = vb_cm_table_next(agent.table, c)))
		if (!vb_cma_route_is_local(&c->route) && vb_cm_repeat_drep(c, &out))
			vb_cma_packet_send(&out.sends[0].to, &out.sends[0].mad);
}

/* Else messages within the host go straight to their receivers. */
void vb_cma_agent_hand_on(void)
{
	if (vb_local_is_off())
		vb_gsi_hand_on();
}

void vb_cma_agent_take_leave_locked(void)
{
	for (unsigned n = 0; agent.started && n < LAST_DREPS; n++)
		repeat_dreps_locked();
	for (unsigned ms = 0;
	     agent.started && ms < LEAVE_MS && open_dreqs_locked(ms % REPEAT_MS == REPEAT_MS - 1); ms++) {
		vb_cma_unlock();
		vb_sleep_ns(1000000);
		vb_cma_lock();
	}
	if (!agent.started || !vb_local_is_off())
		return;
	vb_cma_unlock();
	vb_cma_agent_hand_on();
	vb_cma_lock();
}

/* ---- life ---- */

/* The child has nothing of the parent's agent: its table, timer and messages are left where they are. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&acked, NULL);
	agent.started = false;
	agent.table = NULL;
	memset(&agent.timer, 0, sizeof(agent.timer));
	vb_outbox_init(&agent.outbox, &outbox_type);
	vb_cma_device_forget();
	vb_cma_neighbour_forget_all();
	vb_cma_interfaces_forget();
	vb_cma_id_forget();
}

/*
 * Registered after the host's own handlers, so that the lock is taken before theirs: the order of every other
 * caller.
 */
static int watch_forks_locked(void)
{
	int err = agent.fork_watched ? 0 : pthread_atfork(vb_cma_lock, vb_cma_unlock, forget);

	agent.fork_watched = err == 0;
	return -err;
}

static int start_locked(void)
{
	static const struct vb_cm_config config = { .mra_service_timeout = VB_CMA_MRA_TIMEOUT,
						    .max_lingering = MAX_LINGERING,
						    .sidr_linger_ns = 20000000000 };
	int err = vb_host_get();

	if (err)
		return err;
	err = watch_forks_locked();
	agent.table = err ? NULL : vb_cm_table_create(&config);
	if (!agent.table) {
		vb_host_put();
		return err ? err : -ENOMEM;
	}
	vb_outbox_init(&agent.outbox, &outbox_type);
	agent.timer.fire = timer_fired;
	agent.armed_ns = VB_CM_NEVER;
	vb_random(&agent.ids, sizeof(agent.ids));
	vb_inbox_set_handler(VB_GSI_QPN, vb_cma_packet_arrived, NULL);
	vb_gsi_set_returned_handlers(message_returned, packet_returned);
	/* without it this host's processes are in reach, and it is tried again when something is sent */
	vb_roce_open();
	vb_peer_death_subscribe(peer_died, NULL);
	vb_cma_interfaces_watch_locked();
	agent.started = true;
	return 0;
}

int vb_cma_agent_start(void)
{
	int err = 0;

	vb_cma_lock();
	if (!agent.started)
		err = start_locked();
	vb_cma_unlock();
	return err;
}

/* Within a host links and inboxes tell of a peer's death. */
struct vb_cm_endpoint vb_cma_endpoint_locked(void *user, const struct vb_cm_route *peer)
{
	struct vb_cm_endpoint ep = { .user = user, .watches = !vb_cma_route_is_local(peer) };

	vb_random(&ep.tid, sizeof(ep.tid));
	do
		ep.comm_id = vb_cm_id_make(vb_slot_first(), vb_scatter(&agent.ids, agent.num_ids++));
	while (vb_cm_table_find(agent.table, ep.comm_id));
	return ep;
}
