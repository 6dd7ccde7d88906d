/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many CM machines under a simulated network and random users, one seed a run.
 *
 * Theory of operation. Endpoints own a table each; the network holds datagrams with the time at which they
 * arrive, and loses, doubles, delays and corrupts them by the seed's profile. Users pick a random connection
 * of theirs and do something legal with it. After a time of chaos the network heals, users decide what is
 * open, and all must come to rest; then both sides of each connection are compared. At last users give
 * everything up, and all memory must come back. On the way: each event at most once and in an order that
 * makes sense, lingering connections within bounds.
 *
 *	endpoint 0 --+            +-- endpoint 2
 *	             |- network  -|
 *	endpoint 1 --+            +-- endpoint N
 *
 * usage: sim_cm [FIRST_SEED [COUNT]], or sim_cm -v SEED for a trace of one run. A failure prints its seed.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/cm/cm.h"
#include "../packet_line.h"

enum { MAX_ENDPOINTS = 5, MAX_IN_FLIGHT = 4096, MAX_TOKENS = 64, MAX_EVENTS_TO_REST = 200000 };
enum { FAIR_LOSSES = 2, LOSS_SLOTS = 8192 };
enum { LIFETIME = 8, RESPONSE = 9, SERVICE_TIMEOUT = 9 };	/* exponents: 1 ms and 2 ms */

#define MS           UINT64_C(1000000)
#define MAX_DELAY_NS (UINT64_C(4096) << LIFETIME)
#define QUICK_NS     (15 * MS)	/* a user who takes longer may find that the peer gave up */

struct profile {
	const char *name;
	unsigned loss, doubling, corruption, deaths;	/* per thousand */
	unsigned max_lingering;
	bool exact;		/* nothing is lost, so both sides agree without exception */
	/* the same message is lost twice at most, users are quick: nobody waits in vain */
	bool fair;
	bool honest;		/* what arrives was sent */
};

static const struct profile profiles[] = {
	{ "doubling and reordering", .doubling = 300, .max_lingering = 10000, .exact = true, .fair = true,
	  .honest = true },
	{ "fair loss", .loss = 400, .doubling = 50, .max_lingering = 10000, .fair = true, .honest = true },
	{ "light loss", .loss = 100, .doubling = 50, .max_lingering = 10000, .honest = true },
	{ "heavy loss", .loss = 400, .doubling = 100, .max_lingering = 10000, .honest = true },
	{ "corruption and forgery", .loss = 100, .doubling = 100, .corruption = 150, .max_lingering = 6 },
	{ "death of processes", .loss = 50, .doubling = 100, .deaths = 15, .max_lingering = 10000, .honest = true },
};

/* A user's side of one connection. */
struct user {
	struct vb_cm_conn conn;
	struct user *next;
	unsigned endpoint, token;
	bool active, sidr, destroyed;
	unsigned seen;			/* bits of event types */
	uint64_t asked_at;		/* when the user was last asked something */
};

/* What is remembered of a connection after its memory is gone. */
struct token {
	bool sidr, has_excuse, orphan;	/* excuse: a side may believe otherwise; orphan: a process died */
	bool slow;			/* a user kept the other waiting */
	unsigned requests;		/* how often the passive user was asked */
	unsigned from, to;
	struct user *active, *passive;
};

struct endpoint {
	struct vb_cm_table *table;
	struct user *users;
	uint32_t next_id, next_qpn;
	uint64_t born;			/* incarnation */
};

struct datagram {
	uint64_t arrives;
	unsigned from, to;
	struct vb_mad mad;
};

static struct world {
	uint64_t seed, random, now;
	const struct profile *profile;
	bool healed, verbose, probes;	/* probes: peers are asked whether they still live */
	unsigned num_endpoints, num_tokens, num_in_flight;
	struct endpoint endpoints[MAX_ENDPOINTS];
	struct token tokens[MAX_TOKENS];
	struct datagram in_flight[MAX_IN_FLIGHT];
	struct {
		uint64_t hash;
		unsigned count;
	} losses[LOSS_SLOTS];
} w;

/*
 * --- chance and failure
 * ----------------------------------------------------------------------------------------
 */

static uint64_t next_random(void)
{
	w.random ^= w.random << 13;
	w.random ^= w.random >> 7;
	w.random ^= w.random << 17;
	return w.random * UINT64_C(0x2545f4914f6cdd1d);
}

static unsigned pick(unsigned n) { return (unsigned)((next_random() >> 32) % n); }
static bool happens(unsigned per_thousand) { return pick(1000) < per_thousand; }

__attribute__((format(printf, 1, 2), noreturn)) static void broken(const char *format, ...)
{
	va_list args;

	printf("not ok 1 - cm simulation\n# seed %llu (%s) at %llu ns: ", (unsigned long long)w.seed,
	       w.profile->name, (unsigned long long)w.now);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n# again: %s -v %llu\n", program_invocation_name, (unsigned long long)w.seed);
	exit(1);
}

__attribute__((format(printf, 1, 2))) static void trace(const char *format, ...)
{
	va_list args;

	if (!w.verbose)
		return;
	printf("# %12llu ", (unsigned long long)w.now);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

/*
 * --- network
 * ---------------------------------------------------------------------------------------------------
 */

static void gid_of(unsigned endpoint, uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[0] = 0xfe;
	gid[15] = (uint8_t)(endpoint + 1);
}

static struct vb_cm_route route_to(unsigned endpoint)
{
	return (struct vb_cm_route){ .opaque = { endpoint } };
}

static void fly(unsigned from, unsigned to, const struct vb_mad *mad)
{
	struct datagram *d = &w.in_flight[w.num_in_flight];

	if (w.num_in_flight == MAX_IN_FLIGHT)
		broken("a storm of messages");
	w.num_in_flight++;
	*d = (struct datagram){
		.arrives = w.now + 1 + next_random() % (MAX_DELAY_NS - 1), .from = from, .to = to, .mad = *mad
	};
	if (!w.healed && happens(w.profile->corruption))
		for (unsigned i = 0, n = 1 + pick(4); i < n; i++)
			d->mad.b[pick(2) ? 16 + pick(60) : pick(256)] ^= (uint8_t)(1 << pick(8));
}

/* How often a message with these bytes was lost before. */
static unsigned *losses_of(unsigned from, const struct vb_mad *mad)
{
	uint64_t hash = from + 1;
	unsigned slot;

	for (unsigned i = 0; i < sizeof(mad->b); i++)
		hash = (hash ^ mad->b[i]) * UINT64_C(0x100000001b3);
	for (slot = hash % LOSS_SLOTS; w.losses[slot].hash && w.losses[slot].hash != hash;)
		slot = (slot + 1) % LOSS_SLOTS;
	w.losses[slot].hash = hash;
	return &w.losses[slot].count;
}

static bool is_lost(unsigned from, const struct vb_mad *mad)
{
	if (w.healed || !happens(w.profile->loss))
		return false;
	return !w.profile->fair || (*losses_of(from, mad))++ < FAIR_LOSSES;
}

static void send_all(unsigned from, const struct vb_cm_out *out)
{
	char line[VB_WIRE_LINE_BYTES];

	for (unsigned i = 0; i < out->num_sends; i++) {
		const struct vb_cm_send *s = &out->sends[i];
		unsigned to = (unsigned)s->to.opaque[0];
		bool lost = is_lost(from, &s->mad);

		if (w.verbose)
			vb_wire_mad_line(s->mad.b, sizeof(s->mad.b), line, sizeof(line));
		trace("%u -> %u %s%s", from, to, lost ? "LOST " : "", line);
		if (to >= w.num_endpoints)
			broken("a route nobody gave: %u", to);
		if (lost)
			continue;
		fly(from, to, &s->mad);
		if (!w.healed && happens(w.profile->doubling))
			fly(from, to, &s->mad);
	}
}

/*
 * --- users
 * -----------------------------------------------------------------------------------------------------
 */

#define BIT(type) (1u << VB_CM_EV_##type)

static struct user *user_new(unsigned endpoint, unsigned token, bool active, bool sidr)
{
	struct user *u = calloc(1, sizeof(*u));

	if (!u)
		abort();
	*u = (struct user){ .endpoint = endpoint, .token = token, .active = active, .sidr = sidr,
			    .next = w.endpoints[endpoint].users };
	w.endpoints[endpoint].users = u;
	return u;
}

static void user_free(struct user *u)
{
	struct user **at = &w.endpoints[u->endpoint].users;
	struct token *t = &w.tokens[u->token];

	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	if (t->active == u)
		t->active = NULL;
	if (t->passive == u)
		t->passive = NULL;
	free(u);
}

/* Which events may precede an event, and which must not. */
static void check_order(const struct user *u, enum vb_cm_event_type type)
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

	if (u->seen >> type & 1)
		broken("event %s twice", vb_cm_event_name(type));
	if (u->seen & forbidden[type])
		broken("event %s after %#x", vb_cm_event_name(type), u->seen);
	if (type == VB_CM_EV_TIMEWAIT_EXIT && !(u->seen & BIT(DISCONNECTED)))
		broken("timewait exit of what never ended");
	if (u->destroyed != (type == VB_CM_EV_RELEASE))
		broken("event %s for a %s connection", vb_cm_event_name(type),
		       u->destroyed ? "destroyed" : "living");
}

static bool is_open(const struct user *u)
{
	return u && u->conn.state == VB_CM_ESTABLISHED;
}

/* Whether the user owes the peer an answer. */
static bool is_deciding(const struct user *u)
{
	switch (u->conn.state) {
	case VB_CM_REQ_RCVD:
	case VB_CM_MRA_REQ_SENT:
	case VB_CM_REP_RCVD:
	case VB_CM_MRA_REP_SENT:
	case VB_CM_DREQ_RCVD:
	case VB_CM_SIDR_REQ_RCVD:
		return true;
	default:
		return false;
	}
}

static void note_slowness(const struct user *u)
{
	if (u && is_deciding(u) && w.now - u->asked_at > QUICK_NS)
		w.tokens[u->token].slow = true;
}

/* On a fair network only a slow user lets the other side run out of retries. */
static void check_timeout(const struct user *u)
{
	struct token *t = &w.tokens[u->token];

	note_slowness(u->active ? t->passive : t->active);
	if (w.profile->fair && !t->slow)
		broken("token %u: the %s side waits in vain", u->token, u->active ? "active" : "passive");
	t->has_excuse = true;
}

static void take_events(unsigned endpoint, const struct vb_cm_out *out)
{
	for (unsigned i = 0; i < out->num_events; i++) {
		const struct vb_cm_event *ev = &out->events[i];
		struct user *u = vb_container_of(ev->conn, struct user, conn);

		trace("%u: event %s %d (token %u, %s)", endpoint, vb_cm_event_name(ev->type), ev->status,
		      u->token, u->active ? "active" : "passive");
		if (u->endpoint != endpoint || (ev->type != VB_CM_EV_RELEASE && ev->conn->user != u))
			broken("event of a foreign connection");
		check_order(u, ev->type);
		u->seen |= 1u << ev->type;
		u->asked_at = w.now;
		if (ev->status == -ETIMEDOUT)
			check_timeout(u);
		if (ev->type == VB_CM_EV_RELEASE)
			user_free(u);
	}
}

static void take_out(unsigned endpoint, const struct vb_cm_out *out)
{
	unsigned total, destroyed;

	send_all(endpoint, out);
	take_events(endpoint, out);
	vb_cm_table_count(w.endpoints[endpoint].table, &total, &destroyed);
	if (destroyed > w.profile->max_lingering)
		broken("%u lingering connections", destroyed);
}

static struct vb_cm_endpoint new_endpoint(struct endpoint *e, struct user *u)
{
	return (struct vb_cm_endpoint){ .comm_id = e->next_id++, .tid = next_random(), .user = u,
					.auto_drep = pick(2), .probes_peer = w.probes };
}

static void user_connect(unsigned from)
{
	struct endpoint *e = &w.endpoints[from];
	unsigned to = pick(w.num_endpoints), token = w.num_tokens;
	struct vb_cm_route route = route_to(to);
	struct vb_cm_req_info info = {
		.service_id = 1 + pick(3),
		.ca_guid = from + 100,
		.qpn = e->next_qpn++,
		.starting_psn = pick(1 << 24),
		.local_cm_response_timeout = RESPONSE,
		.remote_cm_response_timeout = RESPONSE,
		.max_cm_retries = (uint8_t)(w.profile->fair ? 15 : 3 + pick(13)),
		.path = { .mtu = 3, .packet_lifetime = LIFETIME },
	};
	struct vb_cm_sidr_info sidr = { .service_id = info.service_id,
					.timeout_ns = 3 * MAX_DELAY_NS,
					.max_retries = info.max_cm_retries,
					.peer_gid = info.path.remote_gid };
	struct vb_cm_endpoint ep;
	struct vb_cm_out out;
	struct user *u;
	int rc;

	if (token == MAX_TOKENS)
		return;
	w.num_tokens++;
	w.tokens[token] = (struct token){ .sidr = !pick(4), .from = from, .to = to };
	u = w.tokens[token].active = user_new(from, token, true, w.tokens[token].sidr);
	gid_of(from, info.path.local_gid);
	gid_of(to, info.path.remote_gid);
	ep = new_endpoint(e, u);
	trace("%u: connect token %u", from, token);
	if (u->sidr)
		rc = vb_cm_sidr_connect(e->table, &u->conn, w.now, &ep, &route, &sidr,
					VB_CM_DATA(&token, sizeof(token)), &out);
	else
		rc = vb_cm_connect(e->table, &u->conn, w.now, &ep, &route, &info,
				   VB_CM_DATA(&token, sizeof(token)), &out);
	if (rc)
		broken("connect: %d", rc);
	take_out(from, &out);
}

static int decide_request(struct user *u, struct vb_cm_table *t, struct vb_cm_out *out)
{
	struct vb_cm_rep_info rep = { .qpn = w.endpoints[u->endpoint].next_qpn++,
				      .starting_psn = pick(1 << 24) };
	struct vb_cm_sidr_reply reply = { .qpn = rep.qpn, .qkey = 7 };
	unsigned choice = pick(10);

	if (u->sidr) {
		reply.status = pick(3) ? VB_CM_SIDR_SUCCESS : VB_CM_SIDR_REJECT;
		return vb_cm_sidr_reply(t, &u->conn, w.now, &reply, VB_CM_NO_DATA, out);
	}
	if (choice == 0)
		return vb_cm_reject(t, &u->conn, w.now, VB_CM_REJ_CONSUMER_DEFINED, VB_CM_NO_DATA,
				    VB_CM_NO_DATA, out);
	if (choice == 1 && u->conn.state == VB_CM_REQ_RCVD)
		return vb_cm_mra(t, &u->conn, w.now, SERVICE_TIMEOUT, VB_CM_NO_DATA, out);
	return vb_cm_accept(t, &u->conn, w.now, &rep, VB_CM_NO_DATA, out);
}

static int decide_rep(struct user *u, struct vb_cm_table *t, struct vb_cm_out *out)
{
	unsigned choice = pick(10);

	if (choice == 0)
		return vb_cm_reject(t, &u->conn, w.now, VB_CM_REJ_CONSUMER_DEFINED, VB_CM_NO_DATA,
				    VB_CM_NO_DATA, out);
	if (choice == 1 && u->conn.state == VB_CM_REP_RCVD)
		return vb_cm_mra(t, &u->conn, w.now, SERVICE_TIMEOUT, VB_CM_NO_DATA, out);
	return vb_cm_establish(t, &u->conn, w.now, VB_CM_NO_DATA, out);
}

/* Data reaches the passive side only if the active side has begun to send. */
static bool data_came(const struct user *u)
{
	const struct user *a = w.tokens[u->token].active;

	return w.profile->honest && a && a->conn.state == VB_CM_ESTABLISHED &&
	       a->conn.remote_comm_id == u->conn.local_comm_id;
}

static void user_destroy(struct user *u)
{
	struct vb_cm_out out;
	unsigned endpoint = u->endpoint;

	trace("%u: destroy token %u in %s", endpoint, u->token, vb_cm_state_name(u->conn.state));
	if (!w.profile->exact)
		w.tokens[u->token].has_excuse = true;
	note_slowness(u);
	u->destroyed = true;
	vb_cm_destroy(w.endpoints[endpoint].table, &u->conn, w.now, &out);
	take_out(endpoint, &out);
}

/* Something that is legal for the connection as it is; `calm` leaves open connections alone. */
static void user_act(struct user *u, bool calm)
{
	struct vb_cm_table *t = w.endpoints[u->endpoint].table;
	struct vb_cm_out out = { 0 };
	int rc = 0;

	if (u->destroyed)
		return;
	if (!calm && !pick(25)) {
		user_destroy(u);
		return;
	}
	note_slowness(u);
	trace("%u: act on token %u in %s", u->endpoint, u->token, vb_cm_state_name(u->conn.state));
	switch (u->conn.state) {
	case VB_CM_REQ_RCVD:
	case VB_CM_MRA_REQ_SENT:
	case VB_CM_SIDR_REQ_RCVD:
		rc = decide_request(u, t, &out);
		break;
	case VB_CM_REP_RCVD:
	case VB_CM_MRA_REP_SENT:
		rc = decide_rep(u, t, &out);
		break;
	case VB_CM_REP_SENT:
	case VB_CM_MRA_REP_RCVD:
		if (data_came(u) && pick(2))
			rc = vb_cm_notify_established(t, &u->conn, w.now, &out);
		else if (!calm && !pick(8))
			rc = vb_cm_disconnect(t, &u->conn, w.now, VB_CM_NO_DATA, &out);
		break;
	case VB_CM_ESTABLISHED:
		if (!calm && !pick(4))
			rc = vb_cm_disconnect(t, &u->conn, w.now, VB_CM_NO_DATA, &out);
		break;
	case VB_CM_DREQ_RCVD:
		rc = vb_cm_disconnect(t, &u->conn, w.now, VB_CM_NO_DATA, &out);
		break;
	case VB_CM_CLOSED:
		user_destroy(u);
		return;
	default:
		break;
	}
	if (rc)
		broken("a legal call fails: %d in %s", rc, vb_cm_state_name(u->conn.state));
	take_out(u->endpoint, &out);
}

static void act_somewhere(void)
{
	unsigned endpoint = pick(w.num_endpoints), n = 0;

	for (struct user *u = w.endpoints[endpoint].users; u; u = u->next)
		n++;
	if (!n || !pick(6)) {
		user_connect(endpoint);
		return;
	}
	n = pick(n);
	for (struct user *u = w.endpoints[endpoint].users; u; u = u->next)
		if (!n--) {
			user_act(u, false);
			return;
		}
}

/* Quick users: each looks after his connection about every two milliseconds. */
static void act_everywhere(void)
{
	for (unsigned i = 0; i < w.num_endpoints; i++)
		for (struct user *u = w.endpoints[i].users, *next; u; u = next) {
			next = u->next;
			if (!pick(4) && is_deciding(u))
				user_act(u, pick(4) != 0);
		}
}

/*
 * --- processes
 * -------------------------------------------------------------------------------------------------
 */

static void endpoint_start(unsigned i)
{
	struct vb_cm_config config = { .mra_service_timeout = SERVICE_TIMEOUT,
				       .sidr_linger_ns = 100 * MAX_DELAY_NS,
				       .max_lingering = w.profile->max_lingering };
	struct endpoint *e = &w.endpoints[i];

	e->table = vb_cm_table_create(&config, next_random());
	if (!e->table)
		abort();
	e->users = NULL;
	/* A process that comes again takes the same QP numbers, but other comm ids. */
	e->next_id = (i + 1) << 20 | (uint32_t)(e->born++ & 15) << 16 | 1;
	e->next_qpn = (i + 1) << 12;
}

static void forget_users(struct endpoint *e)
{
	while (e->users)
		user_free(e->users);
	vb_cm_table_destroy(e->table);
}

static void tell_death(unsigned witness, unsigned dead)
{
	struct vb_cm_table *t = w.endpoints[witness].table;
	uint8_t gid[16];

	gid_of(dead, gid);
	for (struct user *u = w.endpoints[witness].users, *next; u; u = next) {
		struct vb_cm_out out;

		next = u->next;
		if (memcmp(u->conn.peer_gid, gid, 16))
			continue;
		vb_cm_peer_died(t, &u->conn, w.now, &out);
		take_out(witness, &out);
	}
}

static void endpoint_dies(unsigned i)
{
	trace("%u: dies", i);
	for (unsigned k = 0; k < w.num_tokens; k++)
		w.tokens[k].orphan |= w.tokens[k].from == i || w.tokens[k].to == i;
	forget_users(&w.endpoints[i]);
	endpoint_start(i);
	for (unsigned k = 0; k < w.num_endpoints; k++)
		if (k != i)
			tell_death(k, i);
}

/*
 * --- what arrives
 * ----------------------------------------------------------------------------------------------
 */

static void new_request(unsigned endpoint, const struct vb_cm_rx *rx)
{
	struct endpoint *e = &w.endpoints[endpoint];
	struct vb_cm_event preview;
	struct vb_cm_out out;
	struct vb_cm_endpoint ep;
	struct user *u;
	unsigned token;
	int rc;

	if (vb_cm_msg_service_id(&rx->msg) == 3) {
		vb_cm_refuse(e->table, rx, VB_CM_REJ_INVALID_SERVICE_ID, &out);
		take_out(endpoint, &out);
		return;
	}
	vb_cm_request_preview(rx, &preview);
	memcpy(&token, preview.private_data.bytes, sizeof(token));
	if (token >= w.num_tokens) {
		if (w.profile->honest)
			broken("a request with token %u", token);
		token = 0;
	}
	if (w.tokens[token].requests++ && w.profile->honest && !w.tokens[token].orphan)
		broken("token %u asks twice", token);
	u = user_new(endpoint, token, false, preview.type == VB_CM_EV_SIDR_REQUEST);
	w.tokens[token].passive = u;
	ep = new_endpoint(e, u);
	rc = vb_cm_request(e->table, &u->conn, w.now, &ep, rx, LIFETIME, &out);
	if (rc)
		broken("request: %d", rc);
	take_out(endpoint, &out);
}

static void arrive(const struct datagram *d)
{
	struct vb_cm_rx rx = { .from = route_to(d->from) };
	struct vb_cm_out out;

	gid_of(d->from, rx.src_gid);
	if (vb_cm_msg_parse(d->mad.b, sizeof(d->mad.b), &rx.msg)) {
		if (w.profile->honest)
			broken("a message of ours does not parse");
		return;
	}
	if (vb_cm_receive(w.endpoints[d->to].table, w.now, &rx, &out) == VB_CM_HANDLED)
		take_out(d->to, &out);
	else
		new_request(d->to, &rx);
}

/* Somebody says that a message found nobody. */
static void bring_back(const struct datagram *d)
{
	struct vb_cm_msg msg;
	struct vb_cm_out out;
	uint8_t host[16];

	gid_of(d->to, host);
	if (vb_cm_msg_parse(d->mad.b, sizeof(d->mad.b), &msg))
		return;
	trace("%u: a message comes back", d->from);
	vb_cm_returned(w.endpoints[d->from].table, w.now, &msg, host, &out);
	take_out(d->from, &out);
}

/* A stranger who has seen a message sends a variation of it from an address of his own. */
static void forge(void)
{
	struct datagram *d;

	if (!w.num_in_flight)
		return;
	d = &w.in_flight[pick(w.num_in_flight)];
	if (pick(2)) {
		bring_back(d);
		return;
	}
	vb_mad_set_attribute_id(&d->mad, VB_CM_ATTR_REQ + pick(11));
	fly(pick(w.num_endpoints), d->to, &d->mad);
}

/*
 * --- time
 * ------------------------------------------------------------------------------------------------------
 */

static struct datagram *next_arrival(void)
{
	struct datagram *first = NULL;

	for (unsigned i = 0; i < w.num_in_flight; i++)
		if (!first || w.in_flight[i].arrives < first->arrives)
			first = &w.in_flight[i];
	return first;
}

static unsigned next_timer(uint64_t *deadline)
{
	unsigned which = 0;

	*deadline = VB_CM_NEVER;
	for (unsigned i = 0; i < w.num_endpoints; i++) {
		uint64_t d = vb_cm_deadline(w.endpoints[i].table);

		if (d < *deadline) {
			*deadline = d;
			which = i;
		}
	}
	return which;
}

/* Lets the next thing before `until` happen; false if there is none. */
static bool turn(uint64_t until)
{
	struct datagram *d = next_arrival();
	uint64_t deadline;
	unsigned endpoint = next_timer(&deadline);
	struct vb_cm_out out;

	if (d && d->arrives <= deadline && d->arrives < until) {
		struct datagram copy = *d;

		*d = w.in_flight[--w.num_in_flight];
		w.now = copy.arrives;
		arrive(&copy);
		return true;
	}
	if (deadline >= until)
		return false;
	w.now = deadline > w.now ? deadline : w.now;
	if (!vb_cm_expire(w.endpoints[endpoint].table, w.now, &out))
		broken("a deadline without a timer");
	take_out(endpoint, &out);
	return true;
}

static void run_chaos(unsigned steps)
{
	while (steps--) {
		uint64_t until = w.now + next_random() % MS;

		while (turn(until))
			;
		w.now = until;
		act_somewhere();
		if (w.profile->fair)
			act_everywhere();
		if (happens(w.profile->deaths))
			endpoint_dies(pick(w.num_endpoints));
		if (!w.profile->honest && !pick(4))
			forge();
	}
}

/* Users decide what waits for them, until nothing moves any more. */
static void run_to_rest(void)
{
	unsigned turns = 0;

	for (bool moved = true; moved;) {
		uint64_t until = w.now + MS;

		while (turn(until))
			if (++turns > MAX_EVENTS_TO_REST)
				broken("it never comes to rest");
		w.now = until;
		moved = next_arrival() != NULL;
		for (unsigned i = 0; i < w.num_endpoints; i++) {
			moved |= !w.probes && vb_cm_deadline(w.endpoints[i].table) != VB_CM_NEVER;
			for (struct user *u = w.endpoints[i].users, *next; u; u = next) {
				next = u->next;
				moved |= !is_open(u);
				user_act(u, true);
			}
		}
	}
}

/* Long enough for probes to find what the other side has forgotten. */
static void run_probes(void)
{
	uint64_t until = w.now + MAX_TOKENS * 500 * MS;

	while (turn(until))
		;
	w.now = until;
	run_to_rest();
}

/*
 * --- the oracle
 * ------------------------------------------------------------------------------------------------
 */

static void check_rest(void)
{
	for (unsigned i = 0; i < w.num_endpoints; i++)
		for (struct user *u = w.endpoints[i].users; u; u = u->next)
			if (u->conn.state != VB_CM_ESTABLISHED)
				broken("token %u rests in %s", u->token, vb_cm_state_name(u->conn.state));
	for (unsigned k = 0; k < w.num_tokens && w.profile->honest; k++) {
		const struct token *t = &w.tokens[k];

		if ((t->orphan && !w.probes) || t->sidr || is_open(t->active) == is_open(t->passive)) {
			if (is_open(t->active) && is_open(t->passive) &&
			    (t->active->conn.remote_comm_id != t->passive->conn.local_comm_id ||
			     t->active->conn.remote_qpn != t->passive->conn.local_qpn ||
			     t->passive->conn.remote_qpn != t->active->conn.local_qpn))
				broken("token %u: the sides name different connections", k);
			continue;
		}
		if (w.profile->exact || w.probes || !t->has_excuse)
			broken("token %u: only the %s side is open", k,
			       is_open(t->active) ? "active" : "passive");
	}
}

static void give_up_everything(void)
{
	for (unsigned i = 0; i < w.num_endpoints; i++)
		for (struct user *u = w.endpoints[i].users, *next; u; u = next) {
			struct vb_cm_out out;

			next = u->next;
			if (u->destroyed)
				continue;
			if (u->conn.state != VB_CM_ESTABLISHED || pick(2)) {
				user_destroy(u);
				continue;
			}
			if (vb_cm_disconnect(w.endpoints[i].table, &u->conn, w.now, VB_CM_NO_DATA, &out))
				broken("disconnect of an open connection");
			take_out(i, &out);
		}
}

static void check_empty(void)
{
	for (unsigned i = 0; i < w.num_endpoints; i++) {
		unsigned total, destroyed;

		vb_cm_table_count(w.endpoints[i].table, &total, &destroyed);
		if (total || destroyed || w.endpoints[i].users)
			broken("endpoint %u keeps %u connections", i, total);
	}
}

static void run_seed(uint64_t seed, bool verbose)
{
	memset(&w, 0, sizeof(w));
	w.seed = seed;
	w.random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	w.verbose = verbose;
	w.profile = &profiles[seed % VB_ARRAY_LEN(profiles)];
	w.probes = seed / VB_ARRAY_LEN(profiles) % 2;
	w.num_endpoints = 1 + pick(MAX_ENDPOINTS);
	for (unsigned i = 0; i < w.num_endpoints; i++)
		endpoint_start(i);
	run_chaos(50 + pick(250));
	w.healed = true;
	run_to_rest();
	if (w.probes)
		run_probes();
	check_rest();
	give_up_everything();
	run_to_rest();
	check_empty();
	for (unsigned i = 0; i < w.num_endpoints; i++)
		forget_users(&w.endpoints[i]);
}

int main(int argc, char **argv)
{
	bool verbose = argc > 1 && !strcmp(argv[1], "-v");
	uint64_t first, count;

	argv += verbose;
	argc -= verbose;
	first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	count = verbose ? 1 : argc > 2 ? strtoull(argv[2], NULL, 0) : 2000;
	printf("1..1\n");
	for (uint64_t i = 0; i < count; i++)
		run_seed(first + i, verbose);
	printf("ok 1 - cm simulation: %llu seeds from %llu\n", (unsigned long long)count,
	       (unsigned long long)first);
	return 0;
}
