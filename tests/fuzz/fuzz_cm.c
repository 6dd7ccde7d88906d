/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hostile MADs into the CM machine, whatever its user does at the same time.
 *
 * Input: steps. A MAD is made of a message that the machine sent earlier (as it is, or as another message),
 * or of zeros, with ids and addresses of living connections, and then some of its bytes are overwritten; or
 * it is raw. Requests are taken, refused or forgotten. Users call anything on any connection, legal or not.
 * Time passes.
 *
 * Invariants: a refused call changes nothing and says nothing; each event comes at most once per connection,
 * in an order that makes sense, one end alone among them; what is sent is a message, to a route that somebody
 * gave; a MAD is answered by two at most; lingering connections stay within their bound; and when all is
 * given up and time has passed, nothing is left.
 */
#include <errno.h>

#include "fuzz.h"
#include "proto/cm/cm.h"

enum { MAX_CONNS = 12, MAX_STEPS = 300, MAX_TO_REST = 4000, MAX_LINGERING = 5, HEARD = 4, ROUTES = 3 };

struct conn {
	struct vb_cm_conn cm;
	unsigned seen;		/* bits of event types */
	bool used, destroyed;
};

static struct world {
	struct vb_cm_table *table;
	/* each allocated by itself, so that a use after its release is seen */
	struct conn *conns[MAX_CONNS];
	struct vb_mad heard[HEARD];	/* what the machine sent last */
	unsigned num_heard;
	uint64_t now;
	uint32_t next_id;
} w;

#define BIT(type) (1u << VB_CM_EV_##type)

static void check_event(const struct conn *c, const struct vb_cm_event *ev)
{
	static const unsigned forbidden[VB_CM_EV_COUNT] = {
		[VB_CM_EV_REQUEST] = ~0u,
		[VB_CM_EV_SIDR_REQUEST] = ~0u,
		[VB_CM_EV_REP] = ~0u,
		[VB_CM_EV_ESTABLISHED] = ~BIT(REQUEST),
		[VB_CM_EV_REJECTED] = ~(BIT(REQUEST) | BIT(REP)),
		[VB_CM_EV_UNREACHABLE] = ~(BIT(REQUEST) | BIT(REP) | BIT(SIDR_REQUEST)),
		[VB_CM_EV_DISCONNECTED] = ~(BIT(REQUEST) | BIT(REP) | BIT(ESTABLISHED)),
		[VB_CM_EV_TIMEWAIT_EXIT] = BIT(REJECTED) | BIT(UNREACHABLE) | BIT(SIDR_REP),
		[VB_CM_EV_SIDR_REP] = ~0u,
	};

	must(!(c->seen >> ev->type & 1) && !(c->seen & forbidden[ev->type]));
	must(ev->type != VB_CM_EV_TIMEWAIT_EXIT || c->seen & BIT(DISCONNECTED));
	must(c->destroyed == (ev->type == VB_CM_EV_RELEASE));
	must(ev->private_data.len <= VB_CM_MAX_PRIVATE_DATA && ev->additional.len <= VB_CM_MAX_PRIVATE_DATA);
}

static void release(struct conn *c)
{
	for (unsigned i = 0; i < MAX_CONNS; i++)
		if (w.conns[i] == c)
			w.conns[i] = NULL;
	free(c);
}

static void take_event(const struct vb_cm_event *ev)
{
	struct conn *c = vb_container_of(ev->conn, struct conn, cm);

	must(c->used && (ev->type == VB_CM_EV_RELEASE || ev->conn->user == c));
	check_event(c, ev);
	c->seen |= 1u << ev->type;
	if (ev->type == VB_CM_EV_RELEASE)
		release(c);
}

static void take_out(const struct vb_cm_out *out)
{
	struct vb_cm_msg msg;
	unsigned total, destroyed, living = 0;

	must(out->num_sends <= VB_CM_MAX_SENDS && out->num_events <= VB_CM_MAX_EVENTS);
	for (unsigned i = 0; i < out->num_sends; i++) {
		must(out->sends[i].to.opaque[0] < ROUTES);
		must(vb_cm_msg_parse(out->sends[i].mad.b, sizeof(out->sends[i].mad.b), &msg) == 0);
		w.heard[w.num_heard++ % HEARD] = out->sends[i].mad;
	}
	for (unsigned i = 0; i < out->num_events; i++)
		take_event(&out->events[i]);
	vb_cm_table_count(w.table, &total, &destroyed);
	for (unsigned i = 0; i < MAX_CONNS; i++)
		living += w.conns[i] && w.conns[i]->used;
	must(total == living && destroyed <= MAX_LINGERING);
}

static struct conn *new_conn(void)
{
	for (unsigned i = 0; i < MAX_CONNS; i++)
		if (!w.conns[i]) {
			w.conns[i] = calloc(1, sizeof(*w.conns[i]));
			must(w.conns[i] != NULL);
			return w.conns[i];
		}
	return NULL;
}

/* What was not taken is free again. */
static void settle_new(struct conn *c, int rc, const struct vb_cm_out *out)
{
	if (rc) {
		must(!out->num_sends && !out->num_events);
		release(c);
		return;
	}
	c->used = true;
	take_out(out);
}

static struct conn *pick_conn(struct fuzz_input *in)
{
	struct conn *c = w.conns[take(in) % MAX_CONNS];
	return c && c->used ? c : NULL;
}

static struct vb_cm_route route_of(uint8_t b) { return (struct vb_cm_route){ .opaque = { b % ROUTES } }; }

/* Some senders are known, some are not. */
static void gid_of(uint8_t b, uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[15] = b % 3;
}

/*
 * --- users
 * -----------------------------------------------------------------------------------------------------
 */

static struct vb_cm_endpoint endpoint_of(struct fuzz_input *in, struct conn *c)
{
	uint8_t b = take(in);
	/* Now and then an id that is taken, or none. */
	uint32_t id = b < 16 ? b & 3 : w.next_id++;

	return (struct vb_cm_endpoint){ .comm_id = id, .tid = take(in), .user = c, .auto_drep = b & 1 };
}

static void begin(struct fuzz_input *in)
{
	struct conn *c = new_conn();
	struct vb_cm_out out;

	if (!c)
		return;
	struct vb_cm_endpoint ep = endpoint_of(in, c);
	struct vb_cm_route to = route_of(take(in));
	struct vb_cm_req_info info = { .service_id = 1, .ca_guid = take(in), .qpn = take(in),
		.starting_psn = take32(in),
		.qkey = take(in), .transport = take(in) % 5, .retry_count = take(in) % 9,
		.local_cm_response_timeout = take(in) % 33,
		.remote_cm_response_timeout = take(in) % 33, .max_cm_retries = take(in) % 17,
		.path = { .mtu = take(in) % 7, .packet_lifetime = take(in) % 33, .flow_label = take(in) } };
	gid_of(take(in), info.path.remote_gid);
	settle_new(c,
		   vb_cm_connect(w.table, &c->cm, w.now, &ep, &to, &info,
				 VB_CM_DATA("hello", take(in) % 94 ? 5 : 93), &out),
		   &out);
}

static void begin_sidr(struct fuzz_input *in)
{
	struct conn *c = new_conn();
	struct vb_cm_out out;
	uint8_t gid[16];

	if (!c)
		return;
	struct vb_cm_endpoint ep = endpoint_of(in, c);
	struct vb_cm_route to = route_of(take(in));
	struct vb_cm_sidr_info info = { .service_id = 1,
					.pkey = 0xffff,
					.timeout_ns = (uint64_t)take(in) << 16,
					.max_retries = take(in) % 17,
					.peer_gid = gid };
	gid_of(take(in), gid);
	settle_new(c, vb_cm_sidr_connect(w.table, &c->cm, w.now, &ep, &to, &info, VB_CM_NO_DATA, &out), &out);
}

static int call(struct fuzz_input *in, struct conn *c, struct vb_cm_out *out)
{
	static const uint8_t data[256] = "private";
	struct vb_cm_ece ece = { .vendor_id = 1, .attr_mod = 2 };
	struct vb_cm_sidr_reply sidr;
	struct vb_cm_rep_info rep = { .qpn = take(in), .starting_psn = take(in) };
	uint8_t len = take(in);

	switch (take(in) % 9) {
	case 0:
		return vb_cm_mra(w.table, &c->cm, w.now, take(in) % 33, VB_CM_DATA(data, len), out);
	case 1:
		return vb_cm_reject(w.table, &c->cm, w.now, take(in), VB_CM_DATA(data, take(in) % 80),
				    VB_CM_DATA(data, len), out);
	case 2:
		return vb_cm_establish(w.table, &c->cm, w.now, VB_CM_DATA(data, len), out);
	case 3: return vb_cm_notify_established(w.table, &c->cm, w.now, out);
	case 4:
		return vb_cm_disconnect(w.table, &c->cm, w.now, VB_CM_DATA(data, len), out);
	case 5:
		sidr = (struct vb_cm_sidr_reply){ .status = take(in) % 7,
						  .qpn = 5,
						  .qkey = 6,
						  .ece = len & 1 ? ece : (struct vb_cm_ece){ 0 } };
		sidr.additional = VB_CM_DATA(data, take(in) % 80);
		return vb_cm_sidr_reply(w.table, &c->cm, w.now, &sidr, VB_CM_DATA(data, len), out);
	default:
		return vb_cm_accept(w.table, &c->cm, w.now, &rep, VB_CM_DATA(data, len), out);
	}
}

static void call_something(struct fuzz_input *in)
{
	struct conn *c = pick_conn(in);
	struct vb_cm_out out;

	if (!c || c->destroyed)
		return;
	struct vb_cm_conn before = c->cm;
	if (call(in, c, &out) == 0) {
		take_out(&out);
		return;
	}
	must(out.num_sends == 0 && out.num_events == 0 && memcmp(&before, &c->cm, sizeof(before)) == 0);
}

static void give_up(struct conn *c)
{
	struct vb_cm_out out;

	if (!c || c->destroyed)
		return;
	c->destroyed = true;
	vb_cm_destroy(w.table, &c->cm, w.now, &out);
	take_out(&out);
}

static void lose_peer(struct conn *c)
{
	struct vb_cm_out out;

	if (!c)
		return;
	vb_cm_peer_died(w.table, &c->cm, w.now, &out);
	take_out(&out);
}

static bool may_be_gone(enum vb_cm_state state)
{
	return state == VB_CM_REQ_SENT || state == VB_CM_SIDR_REQ_SENT || state == VB_CM_DREQ_SENT;
}

/* Only the very message that waits for an answer counts, and only the third time. */
static void bring_back(struct fuzz_input *in, struct conn *c)
{
	struct vb_cm_msg msg;
	struct vb_cm_out out;
	uint8_t host[16];

	if (!c || !c->cm.has_last)
		return;
	struct vb_cm_conn before = c->cm;
	struct vb_mad mad = c->cm.last;
	uint8_t change = take(in);
	memcpy(host, c->cm.peer_gid, sizeof(host));
	if (change & 1)
		mad.b[take(in)] ^= change;
	if (change & 2)
		host[take(in) % sizeof(host)] ^= change;
	if (vb_cm_msg_parse(mad.b, sizeof(mad.b), &msg))
		return;
	vb_cm_returned(w.table, w.now, &msg, host, &out);
	if (out.num_events)
		must(!(change & 3) && before.returned == 2 && may_be_gone(before.state));
	must(out.num_sends == 0);
	take_out(&out);
}

/*
 * --- what arrives
 * ----------------------------------------------------------------------------------------------
 */

/* The two communication ids stand where most messages have them; SIDR's single one is in the first place. */
static void address(struct fuzz_input *in, struct vb_mad *mad, unsigned attribute)
{
	struct conn *c = pick_conn(in);
	uint8_t choice = take(in);
	bool is_sidr = attribute == VB_CM_ATTR_SIDR_REP;

	if (!c)
		return;
	vb_cm_rtu_msg_set_local_comm_id(vb_cm_rtu_in(mad), is_sidr    ? c->cm.local_comm_id :
							   choice & 1 ? c->cm.remote_comm_id :
									choice);
	if (attribute != VB_CM_ATTR_REQ && attribute < VB_CM_ATTR_SIDR_REQ)
		vb_cm_rtu_msg_set_remote_comm_id(vb_cm_rtu_in(mad), choice & 2 ? 0 : c->cm.local_comm_id);
	if (attribute == VB_CM_ATTR_DREQ)
		vb_cm_dreq_msg_set_remote_qpn(vb_cm_dreq_in(mad), choice & 4 ? 77 : c->cm.local_qpn);
	/* A QP that another connection of that peer has already. */
	if (attribute == VB_CM_ATTR_REQ && choice & 16)
		vb_cm_req_msg_set_local_qpn(vb_cm_req_in(mad), c->cm.remote_qpn);
	if (attribute == VB_CM_ATTR_REP && choice & 16)
		vb_cm_rep_msg_set_local_qpn(vb_cm_rep_in(mad), choice >> 5);
	vb_mad_set_transaction_id(mad, c->cm.tid + (choice >> 3 & 1));
}

static void make_mad(struct fuzz_input *in, struct vb_mad *mad)
{
	uint8_t choice = take(in);
	unsigned attribute = VB_CM_ATTR_REQ + take(in) % 11;

	if (choice & 1 && w.num_heard) {
		*mad = w.heard[take(in) % HEARD];
		if (choice & 2)
			vb_mad_set_attribute_id(mad, attribute);
	} else {
		vb_cm_msg_init(mad, attribute, take(in));
	}
	if (choice & 4)
		address(in, mad, vb_mad_attribute_id(mad));
	for (unsigned i = choice >> 4; i > 0; i--)
		mad->b[take(in)] = take(in);
}

static void new_request(struct fuzz_input *in, const struct vb_cm_rx *rx)
{
	struct vb_cm_event preview;
	struct vb_cm_out out;
	struct conn *c;

	vb_cm_request_preview(rx, &preview);
	must(preview.conn == NULL && preview.private_data.len <= VB_CM_MAX_PRIVATE_DATA);
	switch (take(in) % 4) {
	case 0:
		return;
	case 1:
		vb_cm_refuse(w.table, rx, take(in), &out);
		must(out.num_events == 0);
		take_out(&out);
		return;
	}
	c = new_conn();
	if (!c)
		return;
	struct vb_cm_endpoint ep = endpoint_of(in, c);
	settle_new(c, vb_cm_request(w.table, &c->cm, w.now, &ep, rx, take(in) % 33, &out), &out);
}

static void receive(struct fuzz_input *in, bool raw)
{
	struct vb_cm_rx rx = { .from = route_of(take(in)) };
	struct vb_cm_out out;
	struct vb_mad mad = { 0 };
	size_t len = sizeof(mad);

	gid_of(take(in), rx.src_gid);
	if (!raw)
		make_mad(in, &mad);
	for (unsigned i = 0; raw && i < sizeof(mad.b); i++)
		mad.b[i] = take(in);
	if (raw && in->left == 0)
		len = take(in);
	if (vb_cm_msg_parse(mad.b, len, &rx.msg))
		return;
	(void)vb_cm_msg_destination_id(&rx.msg);
	(void)vb_cm_msg_service_id(&rx.msg);
	if (vb_cm_receive(w.table, w.now, &rx, &out) == VB_CM_HANDLED) {
		take_out(&out);
		return;
	}
	must(out.num_sends == 0 && out.num_events == 0);
	new_request(in, &rx);
}

/*
 * --- time
 * ------------------------------------------------------------------------------------------------------
 */

static void expire(void)
{
	struct vb_cm_out out;

	for (unsigned i = 0; vb_cm_expire(w.table, w.now, &out); i++) {
		must(i < 4 * MAX_CONNS);
		take_out(&out);
	}
}

static void pass_time(struct fuzz_input *in)
{
	uint64_t deadline = vb_cm_deadline(w.table);
	uint8_t b = take(in);

	w.now += (uint64_t)b << 14;
	if (b & 1 && deadline != VB_CM_NEVER && deadline > w.now)
		w.now = deadline;
	expire();
}

static void come_to_rest(void)
{
	unsigned total, destroyed, steps = 0;

	for (unsigned i = 0; i < MAX_CONNS; i++)
		give_up(w.conns[i]);
	for (uint64_t at; (at = vb_cm_deadline(w.table)) != VB_CM_NEVER; expire()) {
		must(steps++ < MAX_TO_REST);
		w.now = at > w.now ? at : w.now;
	}
	vb_cm_table_count(w.table, &total, &destroyed);
	must(total == 0 && destroyed == 0 && vb_cm_table_next(w.table, NULL) == NULL);
	for (unsigned i = 0; i < MAX_CONNS; i++)
		must(w.conns[i] == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct vb_cm_config config = { .mra_service_timeout = 9,
				       .sidr_linger_ns = 1000000,
				       .max_lingering = MAX_LINGERING };

	memset(&w, 0, sizeof(w));
	w.now = 1000000;
	w.next_id = 16;
	w.table = vb_cm_table_create(&config, take(&in));
	must(w.table != NULL);
	for (unsigned i = 0; in.left && i < MAX_STEPS; i++) {
		switch (take(&in) % 11) {
		case 0: begin(&in); break;
		case 1: begin_sidr(&in); break;
		case 2:
		case 3: call_something(&in); break;
		case 4: give_up(pick_conn(&in)); break;
		case 5: lose_peer(pick_conn(&in)); break;
		case 6: pass_time(&in); break;
		case 7: receive(&in, true); break;
		case 10: bring_back(&in, pick_conn(&in)); break;
		default: receive(&in, false); break;
		}
	}
	come_to_rest();
	vb_cm_table_destroy(w.table);
	return 0;
}
