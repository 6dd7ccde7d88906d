/* SPDX-License-Identifier: BSD-2-Clause */
/* One connection from its beginning to its end: handshake, refusal, repetition, disconnection, SIDR. */
#include "cm_world.h"

/*
 * --- handshake
 * -------------------------------------------------------------------------------------------------
 */

static void timeout__is_4096_ns_times_a_power_of_two(void **state)
{
	(void)state;
	assert_true(vb_cm_timeout_ns(0) == 4096);
	for (uint8_t n = 0; n < 31; n++)
		assert_true(vb_cm_timeout_ns(n + 1) == 2 * vb_cm_timeout_ns(n));
	assert_true(vb_cm_timeout_ns(20) == UINT64_C(4294967296));
	assert_true(vb_cm_timeout_ns(255) == vb_cm_timeout_ns(31));
}

static void connect__sends_a_req_with_its_parameters(void **state)
{
	struct world *w = *state;
	const struct vb_cm_req_msg *m;

	connect_a(w);
	assert_sent(&w->a, VB_CM_ATTR_REQ);
	assert_int_equal(w->a.out.num_events, 0);
	assert_memory_equal(&w->a.out.sends[0].to, &w->p.route, sizeof(struct vb_cm_route));
	m = vb_cm_req_of(&w->a.out.sends[0].mad);
	assert_int_equal(vb_cm_req_msg_local_comm_id(m), A_ID);
	assert_true(vb_cm_req_msg_service_id(m) == SERVICE);
	assert_int_equal(vb_cm_req_msg_local_qpn(m), A_QPN);
	assert_int_equal(vb_cm_req_msg_starting_psn(m), 0x123456);
	assert_int_equal(vb_cm_req_msg_primary_local_lid(m), 0xffff);
	assert_memory_equal(vb_cm_req_msg_primary_local_gid(m), w->a.gid, 16);
	assert_memory_equal(vb_cm_req_msg_private_data(m), "ping\0", 5);
	assert_true(vb_mad_transaction_id(&w->a.out.sends[0].mad) == 0x7000 + A_ID);
	assert_true(vb_cm_deadline(w->a.t) == w->now + TIMEOUT_NS / 8);
}

static void connect__refuses_bad_arguments_and_changes_nothing(void **state)
{
	struct world *w = *state;
	struct vb_cm_req_info good = req_info(w), bad;
	struct vb_cm_endpoint ep = endpoint(A_ID), none = endpoint(0);
	struct vb_cm_conn zero = { 0 };
	uint8_t data[93] = { 0 };
	unsigned total, destroyed;

#define REFUSED(change)                                                                                      \
	do {                                                                                                 \
		bad = good;                                                                                  \
		change;                                                                                      \
		int err =                                                                                    \
			vb_cm_connect(w->a.t, &w->a.c, 1, &ep, &w->p.route, &bad, VB_CM_NO_DATA, &w->a.out); \
		assert_int_equal(err, -EINVAL);                                                              \
	} while (0)
	REFUSED(bad.qpn = 1 << 24);
	REFUSED(bad.starting_psn = 1 << 24);
	REFUSED(bad.transport = VB_CM_RD);
	REFUSED(bad.retry_count = 8);
	REFUSED(bad.rnr_retry_count = 8);
	REFUSED(bad.max_cm_retries = 16);
	REFUSED(bad.path.mtu = 0);
	REFUSED(bad.path.mtu = 6);
	REFUSED(bad.path.flow_label = 1 << 20);
	REFUSED(bad.remote_cm_response_timeout = 32);
#undef REFUSED
	assert_int_equal(
		vb_cm_connect(w->a.t, &w->a.c, 1, &ep, &w->p.route, &good, VB_CM_DATA(data, 93), &w->a.out),
		-EINVAL);
	assert_int_equal(
		vb_cm_connect(w->a.t, &w->a.c, 1, &ep, &w->p.route, &good, VB_CM_DATA(NULL, 1), &w->a.out),
		-EINVAL);
	assert_int_equal(
		vb_cm_connect(w->a.t, &w->a.c, 1, &none, &w->p.route, &good, VB_CM_NO_DATA, &w->a.out),
		-EINVAL);
	assert_memory_equal(&w->a.c, &zero, sizeof(zero));
	assert_quiet(&w->a);
	vb_cm_table_count(w->a.t, &total, &destroyed);
	assert_int_equal(total, 0);
}

static void connect__refuses_a_comm_id_in_use(void **state)
{
	struct world *w = *state;
	struct vb_cm_conn second = { 0 };
	struct vb_cm_req_info info = req_info(w);
	struct vb_cm_endpoint ep = endpoint(A_ID);

	connect_a(w);
	assert_int_equal(vb_cm_connect(w->a.t, &second, 1, &ep, &w->p.route, &info, VB_CM_NO_DATA, &w->a.out),
			 -EEXIST);
	assert_int_equal(second.state, VB_CM_IDLE);
}

static void request__reports_what_the_req_says(void **state)
{
	struct world *w = *state;
	struct vb_cm_req_info want = req_info(w);
	const struct vb_cm_event *ev = &w->p.out.events[0];
	struct vb_cm_event preview;

	bring(w, VB_CM_REQ_RCVD);
	assert_event(&w->p, VB_CM_EV_REQUEST, 0);
	assert_int_equal(w->p.out.num_sends, 0);
	want.path.packet_lifetime = 0;
	memcpy(want.path.local_gid, w->p.gid, 16);
	memcpy(want.path.remote_gid, w->a.gid, 16);
	assert_memory_equal(&ev->info.req, &want, sizeof(want));
	assert_int_equal(ev->private_data.len, 92);
	assert_memory_equal(ev->private_data.bytes, "ping\0", 5);
	assert_int_equal(w->p.c.remote_comm_id, A_ID);
	vb_cm_request_preview(&w->last.rx, &preview);
	preview.conn = &w->p.c;
	assert_memory_equal(&preview, ev, sizeof(preview));
}

static void handshake__establishes_both_sides(void **state)
{
	struct world *w = *state;
	struct vb_cm_rep_info rep = rep_info();

	bring(w, VB_CM_REP_RCVD);
	assert_event(&w->a, VB_CM_EV_REP, 0);
	assert_memory_equal(&w->a.out.events[0].info.rep, &rep, sizeof(rep));
	assert_memory_equal(w->a.out.events[0].private_data.bytes, "pong\0", 5);
	assert_int_equal(w->a.out.events[0].private_data.len, 196);
	assert_true(vb_cm_deadline(w->a.t) == VB_CM_NEVER);
	establish_a(w);
	assert_sent(&w->a, VB_CM_ATTR_RTU);
	assert_int_equal(w->a.out.num_events, 0);
	carry(w, &w->a);
	assert_event(&w->p, VB_CM_EV_ESTABLISHED, 0);
	assert_int_equal(w->p.out.num_sends, 0);
	assert_true(vb_cm_deadline(w->p.t) == VB_CM_NEVER);
	assert_int_equal(w->a.c.remote_comm_id, P_ID);
	assert_int_equal(w->a.c.remote_qpn, P_QPN);
	assert_int_equal(w->p.c.remote_qpn, A_QPN);
}

static void handshake__answers_carry_the_transaction_of_the_req(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_REP_SENT);
	assert_true(vb_mad_transaction_id(&w->p.out.sends[0].mad) == 0x7000 + A_ID);
	carry(w, &w->p);
	establish_a(w);
	assert_true(vb_mad_transaction_id(&w->a.out.sends[0].mad) == 0x7000 + A_ID);
}

static void handshake__xrc_names_its_qp_in_the_ee_field(void **state)
{
	struct world *w = *state;
	struct vb_cm_req_info info = req_info(w);
	struct vb_cm_endpoint ep = endpoint(A_ID);

	info.transport = VB_CM_XRC;
	assert_int_equal(
		vb_cm_connect(w->a.t, &w->a.c, w->now, &ep, &w->p.route, &info, VB_CM_NO_DATA, &w->a.out), 0);
	request_p(w);
	assert_int_equal(w->p.out.events[0].info.req.transport, VB_CM_XRC);
	accept_p(w);
	assert_int_equal(vb_cm_rep_msg_local_qpn(vb_cm_rep_of(&w->p.out.sends[0].mad)), 0);
	assert_int_equal(vb_cm_rep_msg_local_eecn(vb_cm_rep_of(&w->p.out.sends[0].mad)), P_QPN);
	carry(w, &w->p);
	assert_int_equal(w->a.out.events[0].info.rep.qpn, P_QPN);
	assert_true(w->a.out.events[0].info.rep.srq);
}

static void handshake__carries_ece_both_ways(void **state)
{
	struct world *w = *state;
	struct vb_cm_req_info req = req_info(w);
	struct vb_cm_rep_info rep = rep_info();
	struct vb_cm_endpoint ep = endpoint(A_ID);

	req.ece = (struct vb_cm_ece){ .vendor_id = 0x0002c9, .attr_mod = 0xdeadbeef };
	rep.ece = (struct vb_cm_ece){ .vendor_id = 0xabcdef, .attr_mod = 0x12345678 };
	assert_int_equal(
		vb_cm_connect(w->a.t, &w->a.c, w->now, &ep, &w->p.route, &req, VB_CM_NO_DATA, &w->a.out), 0);
	request_p(w);
	assert_memory_equal(&w->p.out.events[0].info.req.ece, &req.ece, sizeof(req.ece));
	assert_int_equal(vb_cm_accept(w->p.t, &w->p.c, w->now, &rep, VB_CM_NO_DATA, &w->p.out), 0);
	carry(w, &w->p);
	assert_memory_equal(&w->a.out.events[0].info.rep.ece, &rep.ece, sizeof(rep.ece));
}

static void accept__refuses_private_data_beyond_196(void **state)
{
	struct world *w = *state;
	struct vb_cm_rep_info info = rep_info();
	uint8_t data[197] = { 0 };

	bring(w, VB_CM_REQ_RCVD);
	assert_int_equal(vb_cm_accept(w->p.t, &w->p.c, w->now, &info, VB_CM_DATA(data, 197), &w->p.out),
			 -EINVAL);
	assert_int_equal(vb_cm_accept(w->p.t, &w->p.c, w->now, &info, VB_CM_DATA(data, 196), &w->p.out), 0);
}

static void notify__stands_in_for_a_lost_rtu(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_REP_SENT);
	assert_int_equal(vb_cm_notify_established(w->p.t, &w->p.c, w->now, &w->p.out), 0);
	assert_event(&w->p, VB_CM_EV_ESTABLISHED, 0);
	assert_true(vb_cm_deadline(w->p.t) == VB_CM_NEVER);
	assert_int_equal(vb_cm_notify_established(w->p.t, &w->p.c, w->now, &w->p.out), -EINVAL);
}

/*
 * --- refusal
 * ---------------------------------------------------------------------------------------------------
 */

static void reject__tells_reason_and_data(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_LINGER);
	assert_sent(&w->p, VB_CM_ATTR_REJ);
	assert_int_equal(vb_cm_rej_msg_message_rejected(vb_cm_rej_of(&w->p.out.sends[0].mad)),
			 VB_CM_REJECTED_REQ);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_REJECTED, VB_CM_REJ_CONSUMER_DEFINED);
	assert_int_equal(w->a.out.events[0].additional.len, 3);
	assert_memory_equal(w->a.out.events[0].additional.bytes, "ari", 3);
	assert_int_equal(w->a.out.events[0].private_data.len, 148);
	assert_memory_equal(w->a.out.events[0].private_data.bytes, "no\0", 3);
	assert_state(&w->a, VB_CM_CLOSED);
	assert_true(vb_cm_deadline(w->a.t) == VB_CM_NEVER);
}

static void reject__of_a_rep_ends_the_passive_side(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_REP_RCVD);
	assert_int_equal(vb_cm_reject(w->a.t, &w->a.c, w->now, VB_CM_REJ_NO_QP, VB_CM_NO_DATA, VB_CM_NO_DATA,
				      &w->a.out),
			 0);
	assert_int_equal(vb_cm_rej_msg_message_rejected(vb_cm_rej_of(&w->a.out.sends[0].mad)),
			 VB_CM_REJECTED_REP);
	carry(w, &w->a);
	assert_event(&w->p, VB_CM_EV_REJECTED, VB_CM_REJ_NO_QP);
	assert_true(vb_cm_deadline(w->p.t) != VB_CM_NEVER);
}

static void reject__is_repeated_to_a_repeated_rep(void **state)
{
	struct world *w = *state;
	struct vb_cm_send rep;

	bring(w, VB_CM_REP_SENT);
	rep = w->p.out.sends[0];
	carry(w, &w->p);
	assert_int_equal(vb_cm_reject(w->a.t, &w->a.c, w->now, VB_CM_REJ_NO_QP, VB_CM_NO_DATA, VB_CM_NO_DATA,
				      &w->a.out),
			 0);
	receive_at(w, &w->a, &rep);
	assert_sent(&w->a, VB_CM_ATTR_REJ);
}

static void reject__is_repeated_to_an_rtu_that_crossed_it(void **state)
{
	struct world *w = *state;
	struct vb_cm_send rtu;

	bring(w, VB_CM_REP_RCVD);
	establish_a(w);
	rtu = w->a.out.sends[0];
	assert_int_equal(vb_cm_reject(w->p.t, &w->p.c, w->now, VB_CM_REJ_NO_QP, VB_CM_NO_DATA, VB_CM_NO_DATA,
				      &w->p.out),
			 0);
	receive_at(w, &w->p, &rtu);
	assert_sent(&w->p, VB_CM_ATTR_REJ);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_DISCONNECTED, 0);
}

static void refuse__answers_without_a_connection(void **state)
{
	struct world *w = *state;

	connect_a(w);
	carry(w, &w->a);
	vb_cm_refuse(w->p.t, &w->last.rx, VB_CM_REJ_INVALID_SERVICE_ID, &w->p.out);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_REJECTED, VB_CM_REJ_INVALID_SERVICE_ID);
}

static void req__that_nobody_could_accept_is_refused(void **state)
{
	struct world *w = *state;
	struct vb_cm_send send;

	connect_a(w);
	send = w->a.out.sends[0];
	vb_cm_req_msg_set_path_mtu(vb_cm_req_in(&send.mad), 6);
	receive_at(w, &w->p, &send);
	assert_int_equal(w->last.verdict, VB_CM_HANDLED);
	assert_int_equal(vb_cm_rej_msg_reason(vb_cm_rej_of(&w->p.out.sends[0].mad)), VB_CM_REJ_INVALID_MTU);
	vb_cm_req_msg_set_path_mtu(vb_cm_req_in(&send.mad), 5);
	vb_cm_req_msg_set_transport_service_type(vb_cm_req_in(&send.mad), VB_CM_RD);
	receive_at(w, &w->p, &send);
	assert_int_equal(vb_cm_rej_msg_reason(vb_cm_rej_of(&w->p.out.sends[0].mad)),
			 VB_CM_REJ_INVALID_TRANSPORT_TYPE);
}

/*
 * --- repetition
 * ------------------------------------------------------------------------------------------------
 */

static void timer__repeats_the_req_then_gives_up(void **state)
{
	struct world *w = *state;
	struct vb_mad req;

	connect_a(w);
	req = w->a.out.sends[0].mad;
	for (unsigned i = 0; i < RETRIES; i++) {
		uint64_t sent = w->now;
		assert_false(vb_cm_expire(w->a.t, vb_cm_deadline(w->a.t) - 1, &w->a.out));
		assert_quiet(&w->a);
		expire(w, &w->a);
		assert_true(w->now - sent == (i < 3 ? TIMEOUT_NS >> (3 - i) : TIMEOUT_NS));
		assert_sent(&w->a, VB_CM_ATTR_REQ);
		assert_memory_equal(&w->a.out.sends[0].mad, &req, sizeof(req));
		assert_int_equal(w->a.out.num_events, 0);
	}
	expire(w, &w->a);
	assert_event(&w->a, VB_CM_EV_UNREACHABLE, -ETIMEDOUT);
	assert_sent(&w->a, VB_CM_ATTR_REJ);
	assert_int_equal(vb_cm_rej_msg_reason(vb_cm_rej_of(&w->a.out.sends[0].mad)), VB_CM_REJ_TIMEOUT);
	assert_state(&w->a, VB_CM_CLOSED);
	assert_true(vb_cm_deadline(w->a.t) == VB_CM_NEVER);
	assert_false(vb_cm_expire(w->a.t, UINT64_MAX, &w->a.out));
}

/* A peer that is alive and slow: its queue is full. */
static void timer__try_that_was_held_back_does_not_count(void **state)
{
	struct world *w = *state;
	const uint64_t patience_ns = 68000000000;

	connect_a(w);
	uint64_t start = w->now;
	assert_int_equal(w->a.out.sends[0].repeats, 0);
	for (expire(w, &w->a); w->now - start < patience_ns; expire(w, &w->a)) {
		assert_sent(&w->a, VB_CM_ATTR_REQ);
		assert_int_equal(w->a.out.num_events, 0);
		assert_int_equal(w->a.out.sends[0].repeats,
				 vb_cm_req_msg_local_comm_id(vb_cm_req_of(&w->a.out.sends[0].mad)));
		vb_cm_held_back(w->a.t, w->now, w->a.out.sends[0].repeats);
	}
	vb_cm_held_back(w->a.t, w->now, w->a.out.sends[0].repeats);
	vb_cm_held_back(w->a.t, w->now, 12345); /* of no connection */
	expire(w, &w->a);
	assert_event(&w->a, VB_CM_EV_UNREACHABLE, -ETIMEDOUT);
}

static void timer__rep_unanswered_ends_both_sides(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_REP_SENT);
	carry(w, &w->p);
	establish_a(w);
	for (unsigned i = 0; i < RETRIES; i++) {
		expire(w, &w->p);
		assert_sent(&w->p, VB_CM_ATTR_REP);
	}
	expire(w, &w->p);
	assert_event(&w->p, VB_CM_EV_UNREACHABLE, -ETIMEDOUT);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_DISCONNECTED, 0);
	assert_state(&w->a, VB_CM_TIMEWAIT);
}

static void rtu__lost_is_sent_again_for_a_repeated_rep(void **state)
{
	struct world *w = *state;
	struct vb_mad rtu;

	bring(w, VB_CM_REP_RCVD);
	establish_a(w);
	rtu = w->a.out.sends[0].mad;
	expire(w, &w->p);
	carry(w, &w->p);
	assert_sent(&w->a, VB_CM_ATTR_RTU);
	assert_memory_equal(&w->a.out.sends[0].mad, &rtu, sizeof(rtu));
	assert_int_equal(w->a.out.num_events, 0);
	carry(w, &w->a);
	assert_event(&w->p, VB_CM_EV_ESTABLISHED, 0);
	receive_at(w, &w->p, &w->a.out.sends[0]);
	assert_quiet(&w->p);
}

static void req__repeated_gets_the_same_answer(void **state)
{
	static const struct { enum vb_cm_state before, after; enum vb_cm_attribute answer; } cases[] = {
		{ VB_CM_REQ_RCVD, VB_CM_MRA_REQ_SENT, VB_CM_ATTR_MRA },
		{ VB_CM_MRA_REQ_SENT, VB_CM_MRA_REQ_SENT, VB_CM_ATTR_MRA },
		{ VB_CM_REP_SENT, VB_CM_REP_SENT, VB_CM_ATTR_REP },
		{ VB_CM_LINGER, VB_CM_LINGER, VB_CM_ATTR_REJ },
	};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_LEN(cases); i++) {
		struct world *w = world_new();
		struct vb_cm_send req;
		struct vb_mad answer;
		bool had_answer;
		uint64_t deadline;

		connect_a(w);
		req = w->a.out.sends[0];
		world_free(w);
		w = world_new();
		bring(w, cases[i].before);
		had_answer = w->p.out.num_sends;
		if (had_answer)
			answer = w->p.out.sends[0].mad;
		deadline = vb_cm_deadline(w->p.t);
		w->now += 5;
		receive_at(w, &w->p, &req);
		assert_int_equal(w->last.verdict, VB_CM_HANDLED);
		assert_sent(&w->p, cases[i].answer);
		assert_int_equal(w->p.out.num_events, 0);
		if (had_answer)
			assert_memory_equal(&w->p.out.sends[0].mad, &answer, sizeof(answer));
		assert_state(&w->p, cases[i].after);
		assert_true(vb_cm_deadline(w->p.t) == deadline);
		world_free(w);
	}
}

static void mra__buys_time_and_then_the_req_is_repeated(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_MRA_REQ_RCVD);
	assert_quiet(&w->a);
	assert_true(vb_cm_deadline(w->a.t) == w->now + vb_cm_timeout_ns(SERVICE_TIMEOUT) + TIMEOUT_NS);
	expire(w, &w->a);
	assert_sent(&w->a, VB_CM_ATTR_REQ);
	assert_state(&w->a, VB_CM_REQ_SENT);
	accept_p(w);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_REP, 0);
}

static void mra__of_a_rep_buys_time(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_MRA_REP_RCVD);
	assert_true(vb_cm_deadline(w->p.t) == w->now + vb_cm_timeout_ns(SERVICE_TIMEOUT) + TIMEOUT_NS);
	establish_a(w);
	carry(w, &w->a);
	assert_event(&w->p, VB_CM_EV_ESTABLISHED, 0);
}

static void mra__from_a_peer_is_limited(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_REQ_RCVD);
	assert_int_equal(vb_cm_mra(w->p.t, &w->p.c, w->now, 31, VB_CM_NO_DATA, &w->p.out), 0);
	carry(w, &w->p);
	assert_true(vb_cm_deadline(w->a.t) == w->now + vb_cm_timeout_ns(VB_CM_MAX_PEER_TIMEOUT) + TIMEOUT_NS);
}

static void rep__repeated_to_a_slow_user_gets_mra(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_REP_RCVD);
	expire(w, &w->p);
	carry(w, &w->p);
	assert_sent(&w->a, VB_CM_ATTR_MRA);
	assert_state(&w->a, VB_CM_MRA_REP_SENT);
	carry(w, &w->a);
	assert_state(&w->p, VB_CM_MRA_REP_RCVD);
}

/*
 * --- disconnection
 * ---------------------------------------------------------------------------------------------
 */

static void disconnect__is_answered_when_the_user_does(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_DREQ_RCVD);
	assert_event(&w->p, VB_CM_EV_DISCONNECTED, 0);
	assert_int_equal(w->p.out.num_sends, 0);
	disconnect_side(w, &w->p);
	assert_sent(&w->p, VB_CM_ATTR_DREP);
	assert_state(&w->p, VB_CM_TIMEWAIT);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_DISCONNECTED, 0);
	assert_true(vb_cm_deadline(w->a.t) == w->now + PATH_NS + vb_cm_timeout_ns(0));
	expire(w, &w->a);
	assert_event(&w->a, VB_CM_EV_TIMEWAIT_EXIT, 0);
	expire(w, &w->p);
	assert_event(&w->p, VB_CM_EV_TIMEWAIT_EXIT, 0);
	assert_state(&w->p, VB_CM_CLOSED);
}

static void disconnect__is_answered_at_once_with_auto_drep(void **state)
{
	struct world *w = *state;

	establish_both(w);
	w->p.c.auto_drep = true;
	disconnect_side(w, &w->a);
	carry(w, &w->a);
	assert_event(&w->p, VB_CM_EV_DISCONNECTED, 0);
	assert_sent(&w->p, VB_CM_ATTR_DREP);
	assert_state(&w->p, VB_CM_TIMEWAIT);
}

static void disconnect__lost_drep_is_sent_again(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_DREQ_RCVD);
	disconnect_side(w, &w->p);
	expire(w, &w->a);
	assert_sent(&w->a, VB_CM_ATTR_DREQ);
	carry(w, &w->a);
	assert_sent(&w->p, VB_CM_ATTR_DREP);
	assert_int_equal(w->p.out.num_events, 0);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_DISCONNECTED, 0);
}

static void disconnect__drep_once_more_at_the_end(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_DREQ_RCVD);
	assert_false(vb_cm_repeat_drep(&w->p.c, &w->p.out));
	disconnect_side(w, &w->p);
	assert_true(vb_cm_repeat_drep(&w->p.c, &w->p.out));
	assert_sent(&w->p, VB_CM_ATTR_DREP);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_DISCONNECTED, 0);
	assert_state(&w->a, VB_CM_TIMEWAIT);
	assert_false(vb_cm_repeat_drep(&w->a.c, &w->a.out));
}

static void disconnect__unanswered_ends_after_its_retries(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_DREQ_SENT);
	for (unsigned i = 0; i < RETRIES; i++)
		expire(w, &w->a);
	expire(w, &w->a);
	assert_event(&w->a, VB_CM_EV_DISCONNECTED, -ETIMEDOUT);
	assert_int_equal(w->a.out.num_sends, 0);
	assert_state(&w->a, VB_CM_TIMEWAIT);
}

static void disconnect__crossing_requests_answer_each_other(void **state)
{
	struct world *w = *state;
	struct vb_cm_send from_a, from_p;

	establish_both(w);
	disconnect_side(w, &w->a);
	disconnect_side(w, &w->p);
	from_a = w->a.out.sends[0];
	from_p = w->p.out.sends[0];
	receive_at(w, &w->a, &from_p);
	assert_event(&w->a, VB_CM_EV_DISCONNECTED, 0);
	assert_sent(&w->a, VB_CM_ATTR_DREP);
	receive_at(w, &w->p, &from_a);
	assert_event(&w->p, VB_CM_EV_DISCONNECTED, 0);
	carry(w, &w->a);
	assert_quiet(&w->p);
	assert_state(&w->p, VB_CM_TIMEWAIT);
}

static void disconnect__before_the_rtu_came(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_REP_RCVD);
	establish_a(w);
	disconnect_side(w, &w->a);
	carry(w, &w->a);
	assert_int_equal(w->p.out.num_events, 2);
	assert_int_equal(w->p.out.events[0].type, VB_CM_EV_ESTABLISHED);
	assert_int_equal(w->p.out.events[0].status, 0);
	assert_int_equal(w->p.out.events[1].type, VB_CM_EV_DISCONNECTED);
	assert_int_equal(w->p.out.events[1].status, 0);
	assert_state(&w->p, VB_CM_DREQ_RCVD);
}

/*
 * --- SIDR
 * ------------------------------------------------------------------------------------------------------
 */

static void sidr__tells_qpn_and_qkey(void **state)
{
	struct world *w = *state;
	const struct vb_cm_event *ev = &w->a.out.events[0];
	struct vb_cm_sidr_reply reply = { .status = VB_CM_SIDR_SUCCESS, .qpn = 0x1234, .qkey = 0x11111111 };

	bring(w, VB_CM_SIDR_REQ_RCVD);
	assert_event(&w->p, VB_CM_EV_SIDR_REQUEST, 0);
	assert_true(w->p.out.events[0].info.sidr_req.service_id == SERVICE);
	assert_memory_equal(w->p.out.events[0].private_data.bytes, "who\0", 4);
	assert_int_equal(vb_cm_sidr_reply(w->p.t, &w->p.c, w->now, &reply, VB_CM_DATA("me", 2), &w->p.out),
			 0);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_SIDR_REP, VB_CM_SIDR_SUCCESS);
	assert_int_equal(ev->info.sidr_rep.qpn, 0x1234);
	assert_int_equal(ev->info.sidr_rep.qkey, 0x11111111);
	assert_memory_equal(ev->private_data.bytes, "me\0", 3);
	assert_state(&w->a, VB_CM_CLOSED);
}

static void sidr__repeated_question_gets_the_same_answer(void **state)
{
	struct world *w = *state;
	struct vb_cm_sidr_reply refusal = { .status = VB_CM_SIDR_REJECT, .additional = VB_CM_DATA("x", 1) };
	struct vb_cm_send req;
	struct vb_mad answer;

	sidr_connect_a(w);
	req = w->a.out.sends[0];
	request_p(w);
	receive_at(w, &w->p, &req);
	assert_quiet(&w->p);
	assert_int_equal(vb_cm_sidr_reply(w->p.t, &w->p.c, w->now, &refusal, VB_CM_NO_DATA, &w->p.out), 0);
	answer = w->p.out.sends[0].mad;
	receive_at(w, &w->p, &req);
	assert_sent(&w->p, VB_CM_ATTR_SIDR_REP);
	assert_memory_equal(&w->p.out.sends[0].mad, &answer, sizeof(answer));
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_SIDR_REP, VB_CM_SIDR_REJECT);
	assert_int_equal(w->a.out.events[0].additional.len, 1);
	expire(w, &w->p);
	assert_quiet(&w->p);
	assert_state(&w->p, VB_CM_CLOSED);
}

static void sidr__unanswered_is_unreachable(void **state)
{
	struct world *w = *state;

	sidr_connect_a(w);
	for (unsigned i = 0; i < RETRIES; i++) {
		expire(w, &w->a);
		assert_sent(&w->a, VB_CM_ATTR_SIDR_REQ);
	}
	expire(w, &w->a);
	assert_event(&w->a, VB_CM_EV_UNREACHABLE, -ETIMEDOUT);
	assert_int_equal(w->a.out.num_sends, 0);
}

static void sidr__refused_without_a_connection(void **state)
{
	struct world *w = *state;

	sidr_connect_a(w);
	carry(w, &w->a);
	assert_int_equal(w->last.verdict, VB_CM_NEW_SIDR_REQUEST);
	assert_true(vb_cm_msg_service_id(&w->last.rx.msg) == SERVICE);
	vb_cm_refuse(w->p.t, &w->last.rx, VB_CM_REJ_INVALID_SERVICE_ID, &w->p.out);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_SIDR_REP, VB_CM_SIDR_UNSUPPORTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timeout__is_4096_ns_times_a_power_of_two),
		WORLD_TEST(connect__sends_a_req_with_its_parameters),
		WORLD_TEST(connect__refuses_bad_arguments_and_changes_nothing),
		WORLD_TEST(connect__refuses_a_comm_id_in_use),
		WORLD_TEST(request__reports_what_the_req_says),
		WORLD_TEST(handshake__establishes_both_sides),
		WORLD_TEST(handshake__answers_carry_the_transaction_of_the_req),
		WORLD_TEST(handshake__xrc_names_its_qp_in_the_ee_field),
		WORLD_TEST(handshake__carries_ece_both_ways),
		WORLD_TEST(accept__refuses_private_data_beyond_196),
		WORLD_TEST(notify__stands_in_for_a_lost_rtu),
		WORLD_TEST(reject__tells_reason_and_data),
		WORLD_TEST(reject__of_a_rep_ends_the_passive_side),
		WORLD_TEST(reject__is_repeated_to_a_repeated_rep),
		WORLD_TEST(reject__is_repeated_to_an_rtu_that_crossed_it),
		WORLD_TEST(refuse__answers_without_a_connection),
		WORLD_TEST(req__that_nobody_could_accept_is_refused),
		WORLD_TEST(timer__repeats_the_req_then_gives_up),
		WORLD_TEST(timer__try_that_was_held_back_does_not_count),
		WORLD_TEST(timer__rep_unanswered_ends_both_sides),
		WORLD_TEST(rtu__lost_is_sent_again_for_a_repeated_rep),
		cmocka_unit_test(req__repeated_gets_the_same_answer),
		WORLD_TEST(mra__buys_time_and_then_the_req_is_repeated),
		WORLD_TEST(mra__of_a_rep_buys_time),
		WORLD_TEST(mra__from_a_peer_is_limited),
		WORLD_TEST(rep__repeated_to_a_slow_user_gets_mra),
		WORLD_TEST(disconnect__is_answered_when_the_user_does),
		WORLD_TEST(disconnect__is_answered_at_once_with_auto_drep),
		WORLD_TEST(disconnect__lost_drep_is_sent_again),
		WORLD_TEST(disconnect__drep_once_more_at_the_end),
		WORLD_TEST(disconnect__unanswered_ends_after_its_retries),
		WORLD_TEST(disconnect__crossing_requests_answer_each_other),
		WORLD_TEST(disconnect__before_the_rtu_came),
		WORLD_TEST(sidr__tells_qpn_and_qkey),
		WORLD_TEST(sidr__repeated_question_gets_the_same_answer),
		WORLD_TEST(sidr__unanswered_is_unreachable),
		WORLD_TEST(sidr__refused_without_a_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
