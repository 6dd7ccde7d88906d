/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rectangle as a whole, destruction in every state, death of the peer, and messages that must change
 * nothing.
 */
#include "cm_world.h"

/*
 * --- the rectangle
 * ---------------------------------------------------------------------------------------------
 */

#define FIRST_RX VB_CM_IN_PEER_DIED

static void rectangle__nothing_from_outside_is_illegal(void **state)
{
	(void)state;
	for (int in = FIRST_RX; in < VB_CM_INPUT_COUNT; in++)
		for (int st = 0; st < VB_CM_STATE_COUNT; st++)
			assert_int_not_equal(vb_cm_move((enum vb_cm_input)in, (enum vb_cm_state)st)->kind,
					     VB_CM_MOVE_ILLEGAL);
	for (int st = 0; st < VB_CM_STATE_COUNT; st++)
		assert_int_not_equal(vb_cm_move(VB_CM_IN_DESTROY, (enum vb_cm_state)st)->kind,
				     VB_CM_MOVE_ILLEGAL);
}

static void rectangle__moves_are_complete(void **state)
{
	(void)state;
	for (int in = 0; in < VB_CM_INPUT_COUNT; in++) {
		for (int st = 0; st < VB_CM_STATE_COUNT; st++) {
			const struct vb_cm_move *m = vb_cm_move((enum vb_cm_input)in, (enum vb_cm_state)st);

			if (m->kind == VB_CM_MOVE_GO || m->kind == VB_CM_MOVE_STAY)
				assert_non_null(m->action);
			if (m->kind == VB_CM_MOVE_GO)
				assert_int_not_equal(m->next, VB_CM_IDLE);
		}
	}
}

/* Every state is the end or has a way out: by the user, the peer or the timer. */
static void rectangle__every_state_can_be_left(void **state)
{
	(void)state;
	for (int st = 0; st < VB_CM_CLOSED; st++) {
		unsigned ways = 0;

		for (int in = 0; in < VB_CM_INPUT_COUNT; in++) {
			const struct vb_cm_move *m = vb_cm_move((enum vb_cm_input)in, (enum vb_cm_state)st);

			ways += m->kind == VB_CM_MOVE_GO && (int)m->next != st;
		}
		assert_true(ways > 0);
	}
}

static int call_of(struct world *w, struct side *s, enum vb_cm_input in)
{
	struct vb_cm_rep_info rep = rep_info();
	struct vb_cm_req_info req = req_info(w);
	struct vb_cm_endpoint ep = endpoint(0x00300003);
	struct vb_cm_sidr_info sidr = { .service_id = 1, .timeout_ns = 1 };
	struct vb_cm_sidr_reply reply = { .status = VB_CM_SIDR_SUCCESS, .qpn = 1, .qkey = 1 };

	switch (in) {
	case VB_CM_IN_CONNECT:
		return vb_cm_connect(s->t, &s->c, w->now, &ep, &s->route, &req, VB_CM_NO_DATA, &s->out);
	case VB_CM_IN_SIDR_CONNECT:
		return vb_cm_sidr_connect(s->t, &s->c, w->now, &ep, &s->route, &sidr, VB_CM_NO_DATA, &s->out);
	case VB_CM_IN_MRA:
		return vb_cm_mra(s->t, &s->c, w->now, 1, VB_CM_NO_DATA, &s->out);
	case VB_CM_IN_ACCEPT:
		return vb_cm_accept(s->t, &s->c, w->now, &rep, VB_CM_NO_DATA, &s->out);
	case VB_CM_IN_REJECT:
		return vb_cm_reject(s->t, &s->c, w->now, VB_CM_REJ_NO_QP, VB_CM_NO_DATA, VB_CM_NO_DATA,
				    &s->out);
	case VB_CM_IN_ESTABLISH:
		return vb_cm_establish(s->t, &s->c, w->now, VB_CM_NO_DATA, &s->out);
	case VB_CM_IN_NOTIFY:
		return vb_cm_notify_established(s->t, &s->c, w->now, &s->out);
	case VB_CM_IN_DISCONNECT:
		return vb_cm_disconnect(s->t, &s->c, w->now, VB_CM_NO_DATA, &s->out);
	case VB_CM_IN_SIDR_REPLY:
		return vb_cm_sidr_reply(s->t, &s->c, w->now, &reply, VB_CM_NO_DATA, &s->out);
	default:
		return 1;
	}
}

static void rectangle__illegal_calls_change_nothing(void **state)
{
	unsigned illegal = 0, legal = 0;

	(void)state;
	for (int st = 0; st < VB_CM_STATE_COUNT; st++) {
		for (int in = 0; in < FIRST_RX; in++) {
			struct world *w = world_new();
			struct side *s = bring(w, (enum vb_cm_state)st);
			const struct vb_cm_move *m = vb_cm_move((enum vb_cm_input)in, s->c.state);
			struct vb_cm_conn before = s->c;
			uint64_t deadline = vb_cm_deadline(s->t);
			int rc = call_of(w, s, (enum vb_cm_input)in);

			if (rc != 1 && m->kind == VB_CM_MOVE_ILLEGAL) {
				illegal++;
				assert_int_equal(rc, -EINVAL);
				assert_memory_equal(&s->c, &before, sizeof(before));
				assert_true(vb_cm_deadline(s->t) == deadline);
				assert_quiet(s);
			} else if (rc != 1) {
				legal++;
				assert_int_equal(rc, 0);
				assert_int_equal(s->c.state, m->next);
				assert_int_equal(s->out.num_sends, in != VB_CM_IN_NOTIFY);
			}
			world_free(w);
		}
	}
	assert_int_equal(legal, 2 + 2 + 2 + 6 + 2 + 2 + 4 + 1);
	assert_true(illegal > 100);
}

/*
 * --- destruction
 * -----------------------------------------------------------------------------------------------
 */

/* What vb_cm_destroy says to the peer, and whether the connection is gone at once. */
static void destroy__tells_the_peer_in_every_state(void **state)
{
	static const struct {
		enum vb_cm_state state;
		int message;
		bool released;
	} cases[VB_CM_STATE_COUNT] = {
		{ VB_CM_IDLE, 0, true },
		{ VB_CM_REQ_SENT, VB_CM_ATTR_REJ, true },
		{ VB_CM_MRA_REQ_RCVD, VB_CM_ATTR_REJ, true },
		{ VB_CM_REP_RCVD, VB_CM_ATTR_REJ, false },
		{ VB_CM_MRA_REP_SENT, VB_CM_ATTR_REJ, false },
		{ VB_CM_REQ_RCVD, VB_CM_ATTR_REJ, false },
		{ VB_CM_MRA_REQ_SENT, VB_CM_ATTR_REJ, false },
		{ VB_CM_REP_SENT, VB_CM_ATTR_REJ, false },
		{ VB_CM_MRA_REP_RCVD, VB_CM_ATTR_REJ, false },
		{ VB_CM_ESTABLISHED, VB_CM_ATTR_DREQ, false },
		{ VB_CM_DREQ_SENT, 0, false },
		{ VB_CM_DREQ_RCVD, VB_CM_ATTR_DREP, false },
		{ VB_CM_TIMEWAIT, 0, false },
		{ VB_CM_SIDR_REQ_SENT, 0, true },
		{ VB_CM_SIDR_REQ_RCVD, VB_CM_ATTR_SIDR_REP, false },
		{ VB_CM_LINGER, 0, false },
		{ VB_CM_CLOSED, 0, true },
	};

	(void)state;
	for (unsigned i = 0; i < VB_CM_STATE_COUNT; i++) {
		struct world *w = world_new();
		struct side *s = bring(w, cases[i].state);
		unsigned total, destroyed;

		vb_cm_destroy(s->t, &s->c, w->now, &s->out);
		assert_int_equal(s->out.num_sends, cases[i].message != 0);
		if (cases[i].message)
			assert_int_equal(sent(s, 0), cases[i].message);
		assert_int_equal(s->out.num_events, cases[i].released);
		assert_null(vb_cm_table_find(s->t, s->c.local_comm_id));
		/* Until it is released nobody else may have its id (IDLE: it has none yet). */
		assert_int_equal(vb_cm_table_has(s->t, s->c.local_comm_id), !cases[i].released);
		while (!s->out.num_events) {
			expire(w, s);
			if (s->out.num_sends)
				assert_int_equal(sent(s, 0), VB_CM_ATTR_DREQ);
		}
		assert_event(s, VB_CM_EV_RELEASE, 0);
		vb_cm_table_count(s->t, &total, &destroyed);
		assert_int_equal(total, 0);
		assert_int_equal(destroyed, 0);
		assert_true(vb_cm_deadline(s->t) == VB_CM_NEVER);
		world_free(w);
	}
}

static void destroy__of_the_active_side_ends_the_passive_one(void **state)
{
	static const enum vb_cm_state passive[] = { VB_CM_REQ_RCVD, VB_CM_MRA_REQ_SENT, VB_CM_REP_SENT };

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_LEN(passive); i++) {
		struct world *w = world_new();

		bring(w, passive[i]);
		vb_cm_destroy(w->a.t, &w->a.c, w->now, &w->a.out);
		carry(w, &w->a);
		assert_event(&w->p, VB_CM_EV_REJECTED, VB_CM_REJ_TIMEOUT);
		world_free(w);
	}
}

static void destroy__goes_on_disconnecting_alone(void **state)
{
	struct world *w = *state;

	establish_both(w);
	vb_cm_destroy(w->a.t, &w->a.c, w->now, &w->a.out);
	expire(w, &w->a);
	carry(w, &w->a);
	assert_event(&w->p, VB_CM_EV_DISCONNECTED, 0);
	disconnect_side(w, &w->p);
	carry(w, &w->p);
	assert_quiet(&w->a);
	assert_state(&w->a, VB_CM_TIMEWAIT);
	assert_int_equal(vb_cm_disconnect(w->a.t, &w->a.c, w->now, VB_CM_NO_DATA, &w->a.out), -EINVAL);
	expire(w, &w->a);
	assert_event(&w->a, VB_CM_EV_RELEASE, 0);
}

static void destroy__keeps_the_rejection_for_a_repeated_req(void **state)
{
	struct world *w = *state;
	struct vb_cm_send req;

	connect_a(w);
	req = w->a.out.sends[0];
	request_p(w);
	vb_cm_destroy(w->p.t, &w->p.c, w->now, &w->p.out);
	receive_at(w, &w->p, &req);
	assert_int_equal(w->last.verdict, VB_CM_HANDLED);
	assert_sent(&w->p, VB_CM_ATTR_REJ);
}

static void destroy__keeps_no_more_than_allowed(void **state)
{
	struct side s;
	struct vb_cm_conn conns[4] = { 0 };
	struct world *w = *state;
	unsigned total, destroyed;

	side_init(&s, 9, 2);
	for (unsigned i = 0; i < 4; i++) {
		struct vb_cm_endpoint ep = endpoint(0x00900000 + i);
		struct vb_cm_send req;

		memset(&w->a.c, 0, sizeof(w->a.c));
		vb_cm_table_destroy(w->a.t);
		side_init(&w->a, (uint8_t)(10 + i), 0);
		connect_a(w);
		req = w->a.out.sends[0];
		w->last.rx.from = w->a.route;
		memcpy(w->last.rx.src_gid, w->a.gid, 16);
		assert_int_equal(vb_cm_msg_parse(req.mad.b, 256, &w->last.rx.msg), 0);
		assert_int_equal(vb_cm_receive(s.t, 1, &w->last.rx, &s.out), VB_CM_NEW_REQUEST);
		assert_int_equal(vb_cm_request(s.t, &conns[i], 1, &ep, &w->last.rx, LIFETIME, &s.out), 0);
		vb_cm_destroy(s.t, &conns[i], 1, &s.out);
		assert_int_equal(s.out.num_events, i >= 2);
		if (i >= 2)
			assert_ptr_equal(s.out.events[0].conn, &conns[i - 2]);
	}
	vb_cm_table_count(s.t, &total, &destroyed);
	assert_int_equal(total, 2);
	assert_int_equal(destroyed, 2);
	vb_cm_table_destroy(s.t);
}

/*
 * --- death of the peer
 * -----------------------------------------------------------------------------------------
 */

static void peer_died__ends_every_state(void **state)
{
	(void)state;
	for (int st = 0; st < VB_CM_STATE_COUNT; st++) {
		struct world *w = world_new();
		struct side *s = bring(w, (enum vb_cm_state)st);
		bool live = st == VB_CM_ESTABLISHED || st == VB_CM_DREQ_SENT;
		bool over = st == VB_CM_IDLE || st == VB_CM_DREQ_RCVD || st == VB_CM_TIMEWAIT ||
			    st == VB_CM_LINGER || st == VB_CM_CLOSED;

		vb_cm_peer_died(s->t, &s->c, w->now, &s->out);
		assert_int_equal(s->out.num_sends, 0);
		if (live)
			assert_event(s, VB_CM_EV_DISCONNECTED, -ECONNRESET);
		else if (!over)
			assert_event(s, VB_CM_EV_UNREACHABLE, -ECONNRESET);
		else
			assert_int_equal(s->out.num_events, 0);
		if (st != VB_CM_IDLE)
			assert_true(s->c.state == VB_CM_TIMEWAIT || s->c.state == VB_CM_CLOSED);
		world_free(w);
	}
}

/*
 * --- requests that come back
 * -----------------------------------------------------------------------------------
 */

static void bring_back(struct world *w, const struct vb_mad *mad, const uint8_t host[16])
{
	struct vb_cm_msg msg;

	assert_int_equal(vb_cm_msg_parse(mad->b, sizeof(mad->b), &msg), 0);
	vb_cm_returned(w->a.t, w->now, &msg, host, &w->a.out);
	assert_int_equal(w->a.out.num_sends, 0);
}

static void returned__the_third_time_nobody_is_there(void **state)
{
	struct world *w = *state;

	for (int sidr = 0; sidr < 2; sidr++) {
		struct world *fresh = world_new();
		struct vb_mad req;

		if (sidr)
			sidr_connect_a(fresh);
		else
			connect_a(fresh);
		req = fresh->a.out.sends[0].mad;
		for (int i = 0; i < 2; i++) {
			bring_back(fresh, &req, w->p.gid);
			assert_quiet(&fresh->a);
		}
		bring_back(fresh, &req, w->p.gid);
		assert_event(&fresh->a, VB_CM_EV_UNREACHABLE, -EHOSTUNREACH);
		assert_state(&fresh->a, VB_CM_CLOSED);
		bring_back(fresh, &req, w->p.gid);
		assert_quiet(&fresh->a);
		world_free(fresh);
	}
}

static void returned__only_the_very_request_counts(void **state)
{
	struct world *w = *state;
	struct vb_mad req, other_req;
	uint8_t elsewhere[16] = { 0xfe };

	connect_a(w);
	req = other_req = w->a.out.sends[0].mad;
	vb_mad_set_transaction_id(&other_req, vb_mad_transaction_id(&req) + 1);
	for (int i = 0; i < 10; i++) {
		bring_back(w, &other_req, w->p.gid);
		assert_quiet(&w->a);
		bring_back(w, &req, elsewhere);
		assert_quiet(&w->a);
	}
	assert_state(&w->a, VB_CM_REQ_SENT);
}

static void returned__dreq_ends_the_disconnecting(void **state)
{
	struct world *w = *state;
	struct vb_mad dreq;

	establish_both(w);
	disconnect_side(w, &w->a);
	dreq = w->a.out.sends[0].mad;
	for (int i = 0; i < 2; i++) {
		bring_back(w, &dreq, w->p.gid);
		assert_quiet(&w->a);
	}
	bring_back(w, &dreq, w->p.gid);
	assert_event(&w->a, VB_CM_EV_DISCONNECTED, -EHOSTUNREACH);
	assert_state(&w->a, VB_CM_TIMEWAIT);
}

/* What came back before an answer does not count for the next message. */
static void returned__is_counted_by_message(void **state)
{
	struct world *w = *state;
	struct vb_cm_send req;
	struct vb_mad dreq;

	connect_a(w);
	req = w->a.out.sends[0];
	bring_back(w, &req.mad, w->p.gid);
	bring_back(w, &req.mad, w->p.gid);
	w->a.out = (struct vb_cm_out){ .num_sends = 1, .sends = { req } };
	request_p(w);
	accept_p(w);
	carry(w, &w->p);
	establish_a(w);
	disconnect_side(w, &w->a);
	dreq = w->a.out.sends[0].mad;
	bring_back(w, &dreq, w->p.gid);
	assert_state(&w->a, VB_CM_DREQ_SENT);
}

/* Once anything was heard of the peer, nobody believes that there is none. */
static void returned__is_not_believed_in_any_other_state(void **state)
{
	(void)state;
	for (int st = 0; st < VB_CM_STATE_COUNT; st++) {
		struct world *w = world_new();
		struct side *s = bring(w, (enum vb_cm_state)st);
		struct vb_cm_msg msg;

		if (st != VB_CM_REQ_SENT && st != VB_CM_SIDR_REQ_SENT && st != VB_CM_DREQ_SENT &&
		    s->c.has_last && !vb_cm_msg_parse(s->c.last.b, sizeof(s->c.last.b), &msg))
			for (int i = 0; i < 10; i++) {
				vb_cm_returned(s->t, w->now, &msg, s->c.peer_gid, &s->out);
				assert_quiet(s);
				assert_state(s, (enum vb_cm_state)st);
			}
		world_free(w);
	}
}

/*
 * --- stale connections
 * -----------------------------------------------------------------------------------------
 */

static struct vb_cm_send req_again(struct world *w, uint32_t comm_id, uint32_t psn)
{
	struct side fresh;
	struct vb_cm_req_info info = req_info(w);
	struct vb_cm_endpoint ep = endpoint(comm_id);
	struct vb_cm_send send;

	side_init(&fresh, 1, 0);
	info.starting_psn = psn;
	assert_int_equal(
		vb_cm_connect(fresh.t, &fresh.c, w->now, &ep, &w->p.route, &info, VB_CM_NO_DATA, &fresh.out),
		0);
	send = fresh.out.sends[0];
	vb_cm_table_destroy(fresh.t);
	return send;
}

static void stale__req_from_the_same_qp_ends_the_old_connection(void **state)
{
	struct world *w = *state;
	struct vb_cm_send again;

	establish_both(w);
	again = req_again(w, 0x00100077, 1);
	receive_at(w, &w->p, &again);
	assert_int_equal(w->last.verdict, VB_CM_HANDLED);
	assert_int_equal(w->p.out.num_sends, 2);
	assert_int_equal(sent(&w->p, 0), VB_CM_ATTR_REJ);
	assert_int_equal(vb_cm_rej_msg_reason(vb_cm_rej_of(&w->p.out.sends[0].mad)), VB_CM_REJ_STALE_CONN);
	assert_int_equal(vb_cm_rej_msg_remote_comm_id(vb_cm_rej_of(&w->p.out.sends[0].mad)), 0x00100077);
	assert_int_equal(sent(&w->p, 1), VB_CM_ATTR_DREQ);
	assert_state(&w->p, VB_CM_DREQ_SENT);
	receive_at(w, &w->a, &w->p.out.sends[1]);
	disconnect_side(w, &w->a);
	carry(w, &w->a);
	receive_at(w, &w->p, &again);
	assert_int_equal(w->last.verdict, VB_CM_NEW_REQUEST);
}

static void stale__req_with_the_same_id_about_something_else(void **state)
{
	struct world *w = *state;
	struct vb_cm_send again;

	establish_both(w);
	again = req_again(w, A_ID, 0x999999);
	receive_at(w, &w->p, &again);
	assert_int_equal(w->p.out.num_sends, 2);
	assert_int_equal(vb_cm_rej_msg_reason(vb_cm_rej_of(&w->p.out.sends[0].mad)), VB_CM_REJ_STALE_CONN);
	assert_state(&w->p, VB_CM_DREQ_SENT);
}

static void stale__req_repeated_while_disconnecting(void **state)
{
	struct world *w = *state;
	struct vb_cm_send req;

	connect_a(w);
	req = w->a.out.sends[0];
	request_p(w);
	accept_p(w);
	carry(w, &w->p);
	establish_a(w);
	carry(w, &w->a);
	receive_at(w, &w->p, &req);
	assert_quiet(&w->p);
	disconnect_side(w, &w->p);
	receive_at(w, &w->p, &req);
	assert_sent(&w->p, VB_CM_ATTR_REJ);
	assert_state(&w->p, VB_CM_DREQ_SENT);
}

static void stale__rep_from_a_qp_in_use(void **state)
{
	struct world *w = *state;
	struct vb_cm_conn second = { 0 };
	struct vb_cm_req_info info = req_info(w);
	struct vb_cm_rep_info rep = rep_info();
	struct vb_cm_endpoint ep = endpoint(0x00100050), peer_ep = endpoint(0x00200050);
	struct side fresh;

	establish_both(w);
	info.qpn = 0x555;
	assert_int_equal(
		vb_cm_connect(w->a.t, &second, w->now, &ep, &w->p.route, &info, VB_CM_NO_DATA, &w->a.out), 0);
	carry(w, &w->a);
	side_init(&fresh, 2, 0);
	assert_int_equal(
		vb_cm_request(fresh.t, &fresh.c, w->now, &peer_ep, &w->last.rx, LIFETIME, &fresh.out), 0);
	assert_int_equal(vb_cm_accept(fresh.t, &fresh.c, w->now, &rep, VB_CM_NO_DATA, &fresh.out), 0);
	receive_at(w, &w->a, &fresh.out.sends[0]);
	assert_int_equal(w->a.out.num_sends, 2);
	assert_int_equal(sent(&w->a, 0), VB_CM_ATTR_REJ);
	assert_int_equal(sent(&w->a, 1), VB_CM_ATTR_DREQ);
	assert_int_equal(w->a.out.num_events, 1);
	assert_int_equal(w->a.out.events[0].type, VB_CM_EV_REJECTED);
	assert_ptr_equal(w->a.out.events[0].conn, &second);
	assert_state(&w->a, VB_CM_DREQ_SENT);
	vb_cm_table_destroy(fresh.t);
}

/*
 * --- messages for nobody, and hostile ones
 * ---------------------------------------------------------------------
 */

static void unknown__is_answered_by_kind(void **state)
{
	static const struct { enum vb_cm_attribute message; int answer; } cases[] = {
		{ VB_CM_ATTR_MRA, 0 }, { VB_CM_ATTR_REJ, 0 }, { VB_CM_ATTR_REP, VB_CM_ATTR_REJ },
		{ VB_CM_ATTR_RTU, VB_CM_ATTR_REJ }, { VB_CM_ATTR_DREQ, VB_CM_ATTR_DREP }, { VB_CM_ATTR_DREP, 0 },
		{ VB_CM_ATTR_SIDR_REP, 0 }, { VB_CM_ATTR_LAP, VB_CM_ATTR_APR }, { VB_CM_ATTR_APR, 0 },
	};
	struct world *w = *state;

	for (unsigned i = 0; i < VB_ARRAY_LEN(cases); i++) {
		struct vb_cm_send send;

		vb_cm_msg_init(&send.mad, cases[i].message, 0x99);
		/* All of these begin with the two ids (a SIDR_REP with one). */
		vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(&send.mad), 0x51);
		vb_cm_rtu_msg_set_remote_comm_id(vb_cm_rtu_in(&send.mad), 0x52);
		receive_at(w, &w->p, &send);
		assert_int_equal(w->last.verdict, VB_CM_HANDLED);
		assert_int_equal(w->p.out.num_events, 0);
		assert_int_equal(w->p.out.num_sends, cases[i].answer != 0);
		if (!cases[i].answer)
			continue;
		assert_int_equal(sent(&w->p, 0), cases[i].answer);
		assert_true(vb_mad_transaction_id(&w->p.out.sends[0].mad) == 0x99);
		assert_int_equal(vb_cm_rtu_msg_local_comm_id(vb_cm_rtu_of(&w->p.out.sends[0].mad)), 0x52);
		assert_int_equal(vb_cm_rtu_msg_remote_comm_id(vb_cm_rtu_of(&w->p.out.sends[0].mad)), 0x51);
	}
}

static void unknown__rtu_ends_the_half_open_side(void **state)
{
	struct world *w = *state;

	bring(w, VB_CM_REP_RCVD);
	for (unsigned i = 0; i <= RETRIES; i++)
		expire(w, &w->p);
	expire(w, &w->p);
	assert_state(&w->p, VB_CM_CLOSED);
	establish_a(w);
	carry(w, &w->a);
	assert_sent(&w->p, VB_CM_ATTR_REJ);
	carry(w, &w->p);
	assert_event(&w->a, VB_CM_EV_DISCONNECTED, 0);
}

static void lap__is_answered_not_supported(void **state)
{
	struct world *w = *state;
	struct vb_cm_send send;

	establish_both(w);
	vb_cm_msg_init(&send.mad, VB_CM_ATTR_LAP, 5);
	vb_cm_lap_msg_set_local_comm_id(vb_cm_lap_in(&send.mad), A_ID);
	vb_cm_lap_msg_set_remote_comm_id(vb_cm_lap_in(&send.mad), P_ID);
	vb_cm_lap_msg_set_remote_qpn(vb_cm_lap_in(&send.mad), P_QPN);
	receive_at(w, &w->p, &send);
	assert_sent(&w->p, VB_CM_ATTR_APR);
	assert_int_equal(vb_cm_apr_msg_ap_status(vb_cm_apr_of(&w->p.out.sends[0].mad)),
			 VB_CM_AP_NOT_SUPPORTED);
	assert_state(&w->p, VB_CM_ESTABLISHED);
}

/* A message of each kind that names s's connection, with one thing wrong. */
enum wrong { WRONG_ADDRESS, WRONG_PEER_ID, WRONG_QPN, NUM_WRONG };

static bool forge(const struct side *s, enum vb_cm_attribute attribute, enum wrong wrong, struct vb_mad *mad)
{
	vb_cm_msg_init(mad, attribute, 1);
	if (wrong == WRONG_QPN && attribute != VB_CM_ATTR_DREQ && attribute != VB_CM_ATTR_LAP)
		return false;
	if (wrong == WRONG_PEER_ID && !s->c.remote_comm_id)
		return false;
	if (attribute == VB_CM_ATTR_SIDR_REP) {
		vb_cm_sidr_rep_msg_set_request_id(vb_cm_sidr_rep_in(mad), s->c.local_comm_id);
		return wrong == WRONG_ADDRESS;
	}
	vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(mad), s->c.remote_comm_id ? s->c.remote_comm_id : 77);
	if (wrong == WRONG_PEER_ID)
		vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(mad), s->c.remote_comm_id + 1);
	vb_cm_rtu_msg_set_remote_comm_id(vb_cm_rtu_in(mad), s->c.local_comm_id);
	if (attribute == VB_CM_ATTR_DREQ)
		vb_cm_dreq_msg_set_remote_qpn(vb_cm_dreq_in(mad), s->c.local_qpn + (wrong == WRONG_QPN));
	if (attribute == VB_CM_ATTR_LAP)
		vb_cm_lap_msg_set_remote_qpn(vb_cm_lap_in(mad), s->c.local_qpn + (wrong == WRONG_QPN));
	return true;
}

static void forge_and_check(enum vb_cm_state st, enum vb_cm_attribute attribute, enum wrong wrong)
{
	struct world *w = world_new();
	struct side *s = bring(w, st);
	struct vb_cm_conn before = s->c;
	uint64_t deadline = vb_cm_deadline(s->t);
	struct vb_cm_rx rx = { .from = s->route };
	struct vb_mad mad;

	memcpy(rx.src_gid, other(w, s)->gid, 16);
	if (wrong == WRONG_ADDRESS)
		rx.src_gid[7] ^= 1;
	if (s->c.local_comm_id && forge(s, attribute, wrong, &mad)) {
		assert_int_equal(vb_cm_msg_parse(mad.b, sizeof(mad.b), &rx.msg), 0);
		assert_int_equal(vb_cm_receive(s->t, w->now, &rx, &s->out), VB_CM_HANDLED);
		assert_memory_equal(&s->c, &before, sizeof(before));
		assert_true(vb_cm_deadline(s->t) == deadline);
		assert_int_equal(s->out.num_events, 0);
	}
	world_free(w);
}

static void forged__messages_change_nothing_in_any_state(void **state)
{
	(void)state;
	for (int st = 0; st < VB_CM_STATE_COUNT; st++)
		for (int attr = VB_CM_ATTR_MRA; attr <= VB_CM_ATTR_APR; attr++)
			for (int wrong = 0; wrong < NUM_WRONG; wrong++)
				if (attr != VB_CM_ATTR_SIDR_REQ)
					forge_and_check((enum vb_cm_state)st, (enum vb_cm_attribute)attr,
							(enum wrong)wrong);
}

static void forged__abandonment_does_not_end_an_established_connection(void **state)
{
	struct world *w = *state;
	struct vb_cm_send rej;

	connect_a(w);
	rej.mad = w->a.out.sends[0].mad;
	request_p(w);
	accept_p(w);
	carry(w, &w->p);
	establish_a(w);
	carry(w, &w->a);
	vb_cm_msg_init(&rej.mad, VB_CM_ATTR_REJ, 1);
	vb_cm_rej_msg_set_local_comm_id(vb_cm_rej_in(&rej.mad), A_ID);
	vb_cm_rej_msg_set_reason(vb_cm_rej_in(&rej.mad), VB_CM_REJ_TIMEOUT);
	vb_cm_rej_msg_set_reject_info_length(vb_cm_rej_in(&rej.mad), 8);
	vb_cm_rej_msg_set_ari(vb_cm_rej_in(&rej.mad), "\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8", 8);
	receive_at(w, &w->p, &rej);
	assert_quiet(&w->p);
	assert_state(&w->p, VB_CM_ESTABLISHED);
}

static void forged__abandonment_needs_the_guid(void **state)
{
	struct world *w = *state;
	struct vb_cm_send rej;

	bring(w, VB_CM_REP_SENT);
	vb_cm_msg_init(&rej.mad, VB_CM_ATTR_REJ, 1);
	vb_cm_rej_msg_set_local_comm_id(vb_cm_rej_in(&rej.mad), A_ID);
	vb_cm_rej_msg_set_reason(vb_cm_rej_in(&rej.mad), VB_CM_REJ_TIMEOUT);
	vb_cm_rej_msg_set_reject_info_length(vb_cm_rej_in(&rej.mad), 8);
	receive_at(w, &w->p, &rej);
	assert_quiet(&w->p);
	assert_state(&w->p, VB_CM_REP_SENT);
}

static void table__iterates_and_finds(void **state)
{
	struct world *w = *state;
	struct vb_cm_conn more[300] = { 0 };
	struct vb_cm_req_info info = req_info(w);
	unsigned seen = 0;

	for (unsigned i = 0; i < VB_ARRAY_LEN(more); i++) {
		struct vb_cm_endpoint ep = endpoint(0x00100000 + i * 4096 + 7);

		assert_int_equal(
			vb_cm_connect(w->a.t, &more[i], i, &ep, &w->p.route, &info, VB_CM_NO_DATA, &w->a.out),
			0);
	}
	for (unsigned i = 0; i < VB_ARRAY_LEN(more); i++)
		assert_ptr_equal(vb_cm_table_find(w->a.t, 0x00100000 + i * 4096 + 7), &more[i]);
	for (struct vb_cm_conn *c = NULL; (c = vb_cm_table_next(w->a.t, c));)
		seen++;
	assert_int_equal(seen, VB_ARRAY_LEN(more));
	assert_null(vb_cm_table_find(w->a.t, 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rectangle__nothing_from_outside_is_illegal),
		cmocka_unit_test(rectangle__moves_are_complete),
		cmocka_unit_test(rectangle__every_state_can_be_left),
		cmocka_unit_test(rectangle__illegal_calls_change_nothing),
		cmocka_unit_test(destroy__tells_the_peer_in_every_state),
		cmocka_unit_test(destroy__of_the_active_side_ends_the_passive_one),
		WORLD_TEST(destroy__goes_on_disconnecting_alone),
		WORLD_TEST(destroy__keeps_the_rejection_for_a_repeated_req),
		WORLD_TEST(destroy__keeps_no_more_than_allowed),
		cmocka_unit_test(peer_died__ends_every_state),
		WORLD_TEST(returned__the_third_time_nobody_is_there),
		WORLD_TEST(returned__only_the_very_request_counts),
		WORLD_TEST(returned__dreq_ends_the_disconnecting),
		WORLD_TEST(returned__is_counted_by_message),
		cmocka_unit_test(returned__is_not_believed_in_any_other_state),
		WORLD_TEST(stale__req_from_the_same_qp_ends_the_old_connection),
		WORLD_TEST(stale__req_with_the_same_id_about_something_else),
		WORLD_TEST(stale__req_repeated_while_disconnecting),
		WORLD_TEST(stale__rep_from_a_qp_in_use),
		WORLD_TEST(unknown__is_answered_by_kind),
		WORLD_TEST(unknown__rtu_ends_the_half_open_side),
		WORLD_TEST(lap__is_answered_not_supported),
		cmocka_unit_test(forged__messages_change_nothing_in_any_state),
		WORLD_TEST(forged__abandonment_does_not_end_an_established_connection),
		WORLD_TEST(forged__abandonment_needs_the_guid),
		WORLD_TEST(table__iterates_and_finds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
