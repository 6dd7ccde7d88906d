/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes with a connection each, active `a` and passive `p`, and a clock that tests turn. */
#ifndef CM_WORLD_H
#define CM_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "proto/cm/cm_internal.h"

enum {
	A_ID = 0x00100001,
	P_ID = 0x00200001,
	A_QPN = 0x000111,
	P_QPN = 0x000222,
	SERVICE = 0x01061234,
	RETRIES = 3
};
enum { LIFETIME = 4, RESPONSE = 10, SERVICE_TIMEOUT = 12 };	/* exponents */

#define PATH_NS     (2 * vb_cm_timeout_ns(LIFETIME))
#define TIMEOUT_NS  (vb_cm_timeout_ns(RESPONSE) + PATH_NS)

struct side {
	struct vb_cm_table *t;
	struct vb_cm_conn c;
	struct vb_cm_out out;
	struct vb_cm_route route;	/* to this side */
	uint8_t gid[16];
};

struct world {
	uint64_t now;
	struct side a, p;
	struct {
		enum vb_cm_verdict verdict;
		struct vb_cm_rx rx;
	} last;				/* what was received last */
};

static inline void side_init(struct side *s, uint8_t number, unsigned max_lingering)
{
	struct vb_cm_config config = { .mra_service_timeout = SERVICE_TIMEOUT, .max_lingering = max_lingering,
				       .sidr_linger_ns = 1000000 };

	memset(s, 0, sizeof(*s));
	s->t = vb_cm_table_create(&config, number);
	assert_non_null(s->t);
	s->gid[0] = 0xfe;
	s->gid[15] = number;
	s->route.opaque[0] = number;
}

static inline struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->now = 1000;
	side_init(&w->a, 1, 16);
	side_init(&w->p, 2, 16);
	return w;
}

static inline void world_free(struct world *w)
{
	vb_cm_table_destroy(w->a.t);
	vb_cm_table_destroy(w->p.t);
	free(w);
}

static inline struct side *other(struct world *w, const struct side *s) { return s == &w->a ? &w->p : &w->a; }

static inline struct vb_cm_req_info req_info(const struct world *w)
{
	struct vb_cm_req_info info = {
		.service_id = SERVICE, .ca_guid = 0xa1a2a3a4a5a6a7a8, .qpn = A_QPN, .starting_psn = 0x123456,
		.responder_resources = 4, .initiator_depth = 5, .retry_count = 6, .rnr_retry_count = 7,
		.flow_control = true, .local_cm_response_timeout = RESPONSE,
		.remote_cm_response_timeout = RESPONSE,
		.max_cm_retries = RETRIES,
		.path = { .pkey = 0xffff, .mtu = 3, .rate = 3, .hop_limit = 64, .packet_lifetime = LIFETIME,
			  .local_ack_timeout = LIFETIME + 1 },
	};

	memcpy(info.path.local_gid, w->a.gid, 16);
	memcpy(info.path.remote_gid, w->p.gid, 16);
	return info;
}

static inline struct vb_cm_rep_info rep_info(void)
{
	return (struct vb_cm_rep_info){ .ca_guid = 0xb1b2, .qpn = P_QPN, .starting_psn = 0x654321,
					.responder_resources = 3, .initiator_depth = 2, .rnr_retry_count = 1,
					.flow_control = true };
}

static inline struct vb_cm_endpoint endpoint(uint32_t id)
{
	return (struct vb_cm_endpoint){ .comm_id = id, .tid = 0x7000 + id, .user = (void *)(uintptr_t)id };
}

static inline enum vb_cm_attribute sent(const struct side *s, unsigned i)
{
	assert_true(i < s->out.num_sends);
	return (enum vb_cm_attribute)vb_mad_attribute_id(&s->out.sends[i].mad);
}

/* Exactly this was sent, and nothing else. */
static inline void assert_sent(const struct side *s, enum vb_cm_attribute attribute)
{
	assert_int_equal(s->out.num_sends, 1);
	assert_int_equal(sent(s, 0), attribute);
}

static inline void assert_event(const struct side *s, enum vb_cm_event_type type, int status)
{
	assert_int_equal(s->out.num_events, 1);
	assert_string_equal(vb_cm_event_name(s->out.events[0].type), vb_cm_event_name(type));
	assert_int_equal(s->out.events[0].status, status);
	assert_ptr_equal(s->out.events[0].conn, &s->c);
}

static inline void assert_quiet(const struct side *s)
{
	assert_int_equal(s->out.num_sends, 0);
	assert_int_equal(s->out.num_events, 0);
}

static inline void assert_state(const struct side *s, enum vb_cm_state state)
{
	assert_string_equal(vb_cm_state_name(s->c.state), vb_cm_state_name(state));
}

static inline void receive_at(struct world *w, struct side *to, const struct vb_cm_send *send)
{
	struct side *from = other(w, to);

	w->last.rx.from = from->route;
	memcpy(w->last.rx.src_gid, from->gid, 16);
	assert_int_equal(vb_cm_msg_parse(send->mad.b, sizeof(send->mad.b), &w->last.rx.msg), 0);
	w->last.verdict = vb_cm_receive(to->t, w->now, &w->last.rx, &to->out);
}

/* Carries what `from` sent last to the other side, which must be one message for it. */
static inline void carry(struct world *w, struct side *from)
{
	struct vb_cm_send send;

	assert_int_equal(from->out.num_sends, 1);
	send = from->out.sends[0];
	assert_memory_equal(&send.to, &other(w, from)->route, sizeof(send.to));
	receive_at(w, other(w, from), &send);
}

static inline void expire(struct world *w, struct side *s)
{
	w->now = vb_cm_deadline(s->t);
	assert_true(w->now != VB_CM_NEVER);
	assert_true(vb_cm_expire(s->t, w->now, &s->out));
}

static inline void connect_a(struct world *w)
{
	struct vb_cm_req_info info = req_info(w);
	struct vb_cm_endpoint ep = endpoint(A_ID);

	assert_int_equal(vb_cm_connect(w->a.t, &w->a.c, w->now, &ep, &w->p.route, &info,
				       VB_CM_DATA("ping", 4), &w->a.out),
			 0);
}

static inline void request_p(struct world *w)
{
	struct vb_cm_endpoint ep = endpoint(P_ID);

	carry(w, &w->a);
	assert_true(w->last.verdict == VB_CM_NEW_REQUEST || w->last.verdict == VB_CM_NEW_SIDR_REQUEST);
	assert_int_equal(vb_cm_request(w->p.t, &w->p.c, w->now, &ep, &w->last.rx, LIFETIME, &w->p.out), 0);
}

static inline void accept_p(struct world *w)
{
	struct vb_cm_rep_info info = rep_info();

	assert_int_equal(vb_cm_accept(w->p.t, &w->p.c, w->now, &info, VB_CM_DATA("pong", 4), &w->p.out), 0);
}

static inline void establish_a(struct world *w)
{
	assert_int_equal(vb_cm_establish(w->a.t, &w->a.c, w->now, VB_CM_NO_DATA, &w->a.out), 0);
}

static inline void sidr_connect_a(struct world *w)
{
	struct vb_cm_sidr_info info = { .service_id = SERVICE, .pkey = 0xffff, .timeout_ns = 5000,
					.max_retries = RETRIES, .peer_gid = w->p.gid };
	struct vb_cm_endpoint ep = endpoint(A_ID);

	assert_int_equal(vb_cm_sidr_connect(w->a.t, &w->a.c, w->now, &ep, &w->p.route, &info,
					    VB_CM_DATA("who", 3), &w->a.out),
			 0);
}

static inline void disconnect_side(struct world *w, struct side *s)
{
	assert_int_equal(vb_cm_disconnect(s->t, &s->c, w->now, VB_CM_NO_DATA, &s->out), 0);
}

/* Leads to an established connection on both sides. */
static inline void establish_both(struct world *w)
{
	connect_a(w);
	request_p(w);
	accept_p(w);
	carry(w, &w->p);
	establish_a(w);
	carry(w, &w->a);
	assert_state(&w->a, VB_CM_ESTABLISHED);
	assert_state(&w->p, VB_CM_ESTABLISHED);
}

/*
 * Brings a side into any state by ordinary traffic, and returns that side. Its last message is in its `out`.
 */
static inline struct side *bring(struct world *w, enum vb_cm_state state)
{
	struct side *s = &w->a;

	switch (state) {
	case VB_CM_IDLE:
		break;
	case VB_CM_REQ_SENT:
		connect_a(w);
		break;
	case VB_CM_REQ_RCVD:
		connect_a(w);
		request_p(w);
		s = &w->p;
		break;
	case VB_CM_MRA_REQ_SENT:
		s = bring(w, VB_CM_REQ_RCVD);
		assert_int_equal(vb_cm_mra(s->t, &s->c, w->now, SERVICE_TIMEOUT, VB_CM_NO_DATA, &s->out), 0);
		break;
	case VB_CM_MRA_REQ_RCVD:
		bring(w, VB_CM_MRA_REQ_SENT);
		carry(w, &w->p);
		break;
	case VB_CM_REP_SENT:
		s = bring(w, VB_CM_REQ_RCVD);
		accept_p(w);
		break;
	case VB_CM_REP_RCVD:
		bring(w, VB_CM_REP_SENT);
		carry(w, &w->p);
		break;
	case VB_CM_MRA_REP_SENT:
		bring(w, VB_CM_REP_RCVD);
		assert_int_equal(vb_cm_mra(s->t, &s->c, w->now, SERVICE_TIMEOUT, VB_CM_NO_DATA, &s->out), 0);
		break;
	case VB_CM_MRA_REP_RCVD:
		bring(w, VB_CM_MRA_REP_SENT);
		carry(w, &w->a);
		s = &w->p;
		break;
	case VB_CM_ESTABLISHED:
		establish_both(w);
		break;
	case VB_CM_DREQ_SENT:
		establish_both(w);
		disconnect_side(w, s);
		break;
	case VB_CM_DREQ_RCVD:
		bring(w, VB_CM_DREQ_SENT);
		carry(w, &w->a);
		s = &w->p;
		break;
	case VB_CM_TIMEWAIT:
		bring(w, VB_CM_DREQ_RCVD);
		disconnect_side(w, &w->p);
		carry(w, &w->p);
		break;
	case VB_CM_SIDR_REQ_SENT:
		sidr_connect_a(w);
		break;
	case VB_CM_SIDR_REQ_RCVD:
		sidr_connect_a(w);
		request_p(w);
		s = &w->p;
		break;
	case VB_CM_LINGER:
		s = bring(w, VB_CM_REQ_RCVD);
		assert_int_equal(vb_cm_reject(s->t, &s->c, w->now, VB_CM_REJ_CONSUMER_DEFINED,
					      VB_CM_DATA("ari", 3), VB_CM_DATA("no", 2), &s->out),
				 0);
		break;
	case VB_CM_CLOSED:
		bring(w, VB_CM_LINGER);
		carry(w, &w->p);
		break;
	case VB_CM_STATE_COUNT:
		fail();
	}
	assert_state(s, state);
	return s;
}

static inline int world_setup(void **state)
{
	*state = world_new();
	return 0;
}

static inline int world_teardown(void **state)
{
	world_free(*state);
	return 0;
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

#endif
