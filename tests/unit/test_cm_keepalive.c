/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers that are killed: one process here, connected with processes of another host. */
#include "../between.h"
#include "cm_world.h"

#include "proto/cm/gsi.h"

enum { MAX_CONNS = 8, SECOND = 1000000000 };
enum { HERE = 1, THERE = 2, BESIDE = 3 }; /* slots; the last is of another process there */

struct host {
	struct vb_cm_table *t;
	struct vb_cm_route route;
	uint8_t gid[16];
};

/* The near end is this side's, active if its number is even. */
struct pair {
	struct vb_cm_conn near, far;
	unsigned probes; /* that the near end has sent */
	bool is_over;
};

struct scene {
	uint64_t now;
	struct host here, there;
	struct pair pairs[MAX_CONNS];
	struct vb_cm_send probe; /* the last that came from here */
	struct vb_cm_out out;
};

static void host_init(struct host *h, uint8_t number)
{
	struct vb_cm_config config = { .max_lingering = MAX_CONNS };

	h->t = vb_cm_table_create(&config, 0);
	assert_non_null(h->t);
	h->gid[15] = number;
	h->route.opaque[0] = number;
}

static int setup(void **state)
{
	struct scene *s = calloc(1, sizeof(*s));

	s->now = 1000;
	host_init(&s->here, 1);
	host_init(&s->there, 2);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct scene *s = *state;

	vb_cm_table_destroy(s->here.t);
	vb_cm_table_destroy(s->there.t);
	free(s);
	return 0;
}

/* Hands a message to a host's machine; what that does is in s->out. */
static enum vb_cm_verdict give(struct scene *s, struct host *from, struct host *to,
			       const struct vb_cm_send *send, struct vb_cm_rx *rx)
{
	struct vb_cm_send copy = *send;

	*rx = (struct vb_cm_rx){ .from = from->route };
	memcpy(rx->src_gid, from->gid, sizeof(rx->src_gid));
	assert_int_equal(vb_cm_msg_parse(copy.mad.b, sizeof(copy.mad.b), &rx->msg), 0);
	return vb_cm_receive(to->t, s->now, rx, &s->out);
}

static void shake_hands(struct scene *s, struct host *active, struct vb_cm_conn *a,
			const struct vb_cm_endpoint *a_ep, uint32_t a_qpn, struct host *passive,
			struct vb_cm_conn *p, const struct vb_cm_endpoint *p_ep, uint32_t p_qpn)
{
	struct vb_cm_req_info req = { .service_id = SERVICE,
				      .qpn = a_qpn,
				      .starting_psn = a_ep->comm_id & 0xffffff,
				      .max_cm_retries = RETRIES,
				      .path.mtu = 3 };
	struct vb_cm_rep_info rep = { .qpn = p_qpn };
	struct vb_cm_rx rx;

	memcpy(req.path.remote_gid, passive->gid, 16);
	memcpy(req.path.local_gid, active->gid, 16);
	assert_int_equal(
		vb_cm_connect(active->t, a, s->now, a_ep, &passive->route, &req, VB_CM_NO_DATA, &s->out), 0);
	assert_int_equal(give(s, active, passive, &s->out.sends[0], &rx), VB_CM_NEW_REQUEST);
	assert_int_equal(vb_cm_request(passive->t, p, s->now, p_ep, &rx, LIFETIME, &s->out), 0);
	assert_int_equal(vb_cm_accept(passive->t, p, s->now, &rep, VB_CM_NO_DATA, &s->out), 0);
	give(s, passive, active, &s->out.sends[0], &rx);
	assert_int_equal(vb_cm_establish(active->t, a, s->now, VB_CM_NO_DATA, &s->out), 0);
	give(s, active, passive, &s->out.sends[0], &rx);
	assert_int_equal(a->state, VB_CM_ESTABLISHED);
	assert_int_equal(p->state, VB_CM_ESTABLISHED);
}

/* Connection i, with the process there that has a slot; its far end sends no probes. */
static void connect_to(struct scene *s, unsigned i, uint32_t slot, bool probes)
{
	struct pair *pair = &s->pairs[i];
	struct vb_cm_endpoint near = { .comm_id = vb_cm_id_make(HERE, i),
				       .tid = i,
				       .probes_peer = probes,
				       .user = pair },
			      far = { .comm_id = vb_cm_id_make(slot, i), .tid = 100 + i, .auto_drep = true };
	uint32_t near_qpn = HERE << VB_CM_QPN_INDEX_BITS | i, far_qpn = slot << VB_CM_QPN_INDEX_BITS | i;

	if (i % 2 == 0)
		shake_hands(s, &s->here, &pair->near, &near, near_qpn, &s->there, &pair->far, &far, far_qpn);
	else
		shake_hands(s, &s->there, &pair->far, &far, far_qpn, &s->here, &pair->near, &near, near_qpn);
}

static struct pair *pair_of(struct scene *s, const struct vb_cm_send *send)
{
	struct vb_cm_msg msg;

	assert_int_equal(vb_cm_msg_parse(send->mad.b, sizeof(send->mad.b), &msg), 0);
	return &s->pairs[vb_cm_msg_sender_id(&msg) & 0xff];
}

static void note_events(struct scene *s)
{
	for (unsigned i = 0; i < s->out.num_events; i++)
		if (s->out.events[i].type == VB_CM_EV_DISCONNECTED)
			((struct pair *)s->out.events[i].conn->user)->is_over = true;
}

/* What becomes of a probe. */
enum fate { LOST, RETURNED, ANSWERED, UNKNOWN };

static void answer(struct scene *s)
{
	struct vb_cm_rx rx;

	give(s, &s->here, &s->there, &s->probe, &rx);
	if (s->out.num_sends)
		give(s, &s->there, &s->here, &(struct vb_cm_send){ .mad = s->out.sends[0].mad }, &rx);
}

static void refuse(struct scene *s)
{
	struct vb_cm_rx rx = { .from = s->here.route };

	assert_int_equal(vb_cm_msg_parse(s->probe.mad.b, sizeof(s->probe.mad.b), &rx.msg), 0);
	vb_cm_answer_unknown(&rx, &s->out);
	assert_int_equal(s->out.num_sends, 1);
	give(s, &s->there, &s->here, &(struct vb_cm_send){ .mad = s->out.sends[0].mad }, &rx);
}

static void bring_back(struct scene *s, const uint8_t gid[16])
{
	struct vb_cm_msg msg;

	assert_int_equal(vb_cm_msg_parse(s->probe.mad.b, sizeof(s->probe.mad.b), &msg), 0);
	vb_cm_returned(s->here.t, s->now, &msg, gid, &s->out);
}

static void befall(struct scene *s, enum fate fate)
{
	vb_cm_out_reset(&s->out);
	if (fate == RETURNED)
		bring_back(s, s->there.gid);
	else if (fate == ANSWERED)
		answer(s);
	else if (fate == UNKNOWN)
		refuse(s);
	note_events(s);
}

static void pass_with(struct scene *s, uint64_t ns, enum fate (*fate)(const struct pair *pair))
{
	uint64_t until = s->now + ns;

	while (vb_cm_deadline(s->here.t) <= until) {
		s->now = vb_max_u64(s->now, vb_cm_deadline(s->here.t));
		assert_true(vb_cm_expire(s->here.t, s->now, &s->out));
		note_events(s);
		if (!s->out.num_sends)
			continue;
		s->probe = s->out.sends[0];
		pair_of(s, &s->probe)->probes++;
		befall(s, fate(pair_of(s, &s->probe)));
	}
	s->now = until;
}

static enum fate lost(const struct pair *p) { return LOST; }
static enum fate returned(const struct pair *p) { return RETURNED; }
static enum fate answered(const struct pair *p) { return ANSWERED; }
static enum fate unknown(const struct pair *p) { return UNKNOWN; }
static enum fate unknown_but_beside(const struct pair *p)
{
	return vb_cm_id_slot(p->near.remote_comm_id) == BESIDE ? ANSWERED : UNKNOWN;
}

static unsigned probes_in_all(const struct scene *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MAX_CONNS; i++)
		n += s->pairs[i].probes;
	return n;
}

/* Exactly these are over, a bit each. */
static void assert_over(const struct scene *s, unsigned mask)
{
	for (unsigned i = 0; i < MAX_CONNS; i++)
		assert_int_equal(s->pairs[i].is_over, mask >> i & 1);
}

/* ---- probes ---- */

static void probes__by_one_connection_with_each_process(void **state)
{
	struct scene *s = *state;

	for (unsigned i = 0; i < 3; i++)
		connect_to(s, i, THERE, true);
	connect_to(s, 3, BESIDE, true);
	pass_with(s, 12ull * SECOND, answered);
	assert_between(s->pairs[3].probes, 12, 60);
	assert_int_equal(probes_in_all(s), 2 * s->pairs[3].probes);
	for (unsigned i = 0; i < 3; i++) /* which take turns */
		assert_between(s->pairs[i].probes, s->pairs[3].probes / 3 - 1, s->pairs[3].probes / 3 + 1);
	assert_over(s, 0);
}

static void probes__with_the_last_message_of_the_handshake(void **state)
{
	struct scene *s = *state;

	connect_to(s, 0, THERE, true);
	pass_with(s, SECOND, answered);
	assert_int_equal(vb_mad_attribute_id(&s->probe.mad), VB_CM_ATTR_RTU);
	connect_to(s, 1, BESIDE, true);
	s->pairs[0].probes = 0;
	vb_cm_destroy(s->here.t, &s->pairs[0].near, s->now, &s->out);
	pass_with(s, SECOND, answered);
	assert_int_equal(s->pairs[1].far.state, VB_CM_ESTABLISHED);
	assert_true(s->pairs[1].probes > 0);
}

static void probes__only_verbatim_processes(void **state)
{
	struct scene *s = *state;
	struct vb_cm_endpoint near = { .comm_id = vb_cm_id_make(HERE, 1), .probes_peer = true },
			      far = { .comm_id = 0x12345678 };

	connect_to(s, 0, THERE, false);
	/* a kernel's numbers */
	shake_hands(s, &s->here, &s->pairs[1].near, &near, 0x1001, &s->there, &s->pairs[1].far, &far, 0x11);
	pass_with(s, 100ull * SECOND, returned);
	assert_int_equal(probes_in_all(s), 0);
	assert_over(s, 0);
}

static void probes__by_a_sibling_when_the_prober_is_over(void **state)
{
	struct scene *s = *state;

	for (unsigned i = 0; i < 4; i += 2)
		connect_to(s, i, THERE, true);
	vb_cm_peer_died(s->here.t, &s->pairs[0].near, s->now, &s->out);
	pass_with(s, SECOND, answered);
	assert_int_equal(s->pairs[0].probes, 0);
	assert_true(s->pairs[2].probes > 0);
	vb_cm_peer_died(s->here.t, &s->pairs[2].near, s->now, &s->out);
	s->pairs[2].probes = 0;
	pass_with(s, SECOND, answered);
	assert_int_equal(probes_in_all(s), 0);
}

static void silence__is_no_death(void **state)
{
	struct scene *s = *state;

	connect_to(s, 0, THERE, true);
	connect_to(s, 1, BESIDE, true);
	pass_with(s, 1000ull * SECOND, lost);
	assert_over(s, 0);
}

/* ---- another process answers ---- */

static void unknown__ends_all_with_the_process(void **state)
{
	struct scene *s = *state;

	for (unsigned i = 0; i < 6; i++)
		connect_to(s, i, THERE, true);
	connect_to(s, 6, BESIDE, true);
	pass_with(s, SECOND / 2, unknown_but_beside);
	assert_over(s, 0x3f);
	pass_with(s, 10ull * SECOND, unknown_but_beside);
	assert_over(s, 0x3f);
}

static bool first_is_known;
static enum fate unknown_at_first(const struct pair *p)
{
	bool was_known = first_is_known;

	first_is_known = true;
	return was_known ? ANSWERED : UNKNOWN;
}

static void unknown__of_one_leaves_those_that_are_known(void **state)
{
	struct scene *s = *state;

	first_is_known = false;
	for (unsigned i = 0; i < 4; i++)
		connect_to(s, i, THERE, true);
	pass_with(s, SECOND / 2, unknown_at_first);
	assert_over(s, 1);
	assert_true(s->pairs[1].probes && s->pairs[2].probes && s->pairs[3].probes);
	pass_with(s, 100ull * SECOND, answered);
	assert_over(s, 1);
}

/* A peer that answers so for one after the other does not cause a probe of all the others each time. */
static void unknown__one_by_one_probes_all_but_now_and_then(void **state)
{
	struct scene *s = *state;

	for (unsigned i = 0; i < MAX_CONNS; i++)
		connect_to(s, i, THERE, true);
	pass_with(s, SECOND / 2, unknown);
	assert_over(s, 0xff);
	assert_int_equal(probes_in_all(s), MAX_CONNS);
}

/* ---- the host answers ---- */

static void returned__for_some_time_ends_all_with_the_host(void **state)
{
	struct scene *s = *state;

	for (unsigned i = 0; i < 3; i++)
		connect_to(s, i, THERE, true);
	connect_to(s, 3, BESIDE, true);
	pass_with(s, SECOND, returned);
	assert_over(s, 0);
	pass_with(s, SECOND, returned); /* two seconds after the death */
	assert_over(s, 0xf);
}

static unsigned number;
static enum fate returned_now_and_then(const struct pair *p) { return number++ % 2 ? RETURNED : ANSWERED; }

static void returned__is_refuted_by_any_answer(void **state)
{
	struct scene *s = *state;

	connect_to(s, 1, THERE, true); /* which the active side answers */
	pass_with(s, 100ull * SECOND, returned_now_and_then);
	assert_over(s, 0);
}

/* What goes there is returned, but for one message in a while: that peer hardly gets a processor. */
static void returned__is_refuted_late(void **state)
{
	struct scene *s = *state;

	connect_to(s, 1, THERE, true); /* which the active side answers */
	for (unsigned i = 0; i < 50; i++) {
		pass_with(s, 8ull * SECOND / 10, returned);
		befall(s, ANSWERED);
	}
	assert_over(s, 0);
}

static void returned__once_is_soon_forgotten(void **state)
{
	struct scene *s = *state;

	connect_to(s, 0, THERE, true);
	pass_with(s, SECOND, lost);
	for (unsigned i = 0; i < 10; i++) {
		befall(s, RETURNED);
		pass_with(s, 5ull * SECOND, lost);
	}
	assert_over(s, 0);
}

/* Many ICMP messages at once count as one. */
static void returned__many_times_at_once_is_no_proof(void **state)
{
	struct scene *s = *state;

	connect_to(s, 0, THERE, true);
	pass_with(s, SECOND, lost);
	for (unsigned i = 0; i < 1000; i++)
		befall(s, RETURNED);
	pass_with(s, 10ull * SECOND, lost);
	assert_over(s, 0);
}

static void returned__something_else_does_not_count(void **state)
{
	struct scene *s = *state;

	connect_to(s, 0, THERE, true);
	for (unsigned i = 0; i < 10; i++) {
		pass_with(s, SECOND, lost);
		bring_back(s, s->here.gid);
		vb_mad_set_transaction_id(&s->probe.mad, 77);
		bring_back(s, s->there.gid);
		vb_cm_packet_returned(s->here.t, s->now, 77, s->there.gid);
		vb_cm_packet_returned(s->here.t, s->now, s->pairs[0].near.remote_qpn, s->here.gid);
	}
	assert_over(s, 0);
}

static void returned__packets_of_queue_pairs_count(void **state)
{
	struct scene *s = *state;

	connect_to(s, 0, THERE, true);
	connect_to(s, 2, THERE, true);
	for (unsigned i = 0; i < 5; i++) {
		vb_cm_packet_returned(s->here.t, s->now, s->pairs[2].near.remote_qpn, s->there.gid);
		pass_with(s, SECOND / 2, lost);
	}
	assert_over(s, 5);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(probes__by_one_connection_with_each_process),
		CASE(probes__with_the_last_message_of_the_handshake),
		CASE(probes__only_verbatim_processes),
		CASE(probes__by_a_sibling_when_the_prober_is_over),
		CASE(silence__is_no_death),
		CASE(unknown__ends_all_with_the_process),
		CASE(unknown__of_one_leaves_those_that_are_known),
		CASE(unknown__one_by_one_probes_all_but_now_and_then),
		CASE(returned__for_some_time_ends_all_with_the_host),
		CASE(returned__is_refuted_by_any_answer),
		CASE(returned__is_refuted_late),
		CASE(returned__once_is_soon_forgotten),
		CASE(returned__many_times_at_once_is_no_proof),
		CASE(returned__something_else_does_not_count),
		CASE(returned__packets_of_queue_pairs_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
