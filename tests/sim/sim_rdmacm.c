/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two programs on two hosts that connect through librdmacm, over a network that loses, delays, doubles and cuts off, and with peers
 * that die. Both hosts are this process: what it sends to the other one comes back as if the other had sent it. So each message goes
 * through the whole library, twice.
 *
 * A run is a script of steps, made from its seed: a call of the interface on some id, a message that arrives, time that passes, a
 * misfortune of the network or of the host: neighbours that are silent, an interface that goes or changes, queue pairs that refuse.
 * Then the network heals, the programs answer what they were asked, and all comes to rest.
 *
 * What must hold: events come to ids that live, at most once, and in an order that makes sense; what an id is told of, it is told of
 * exactly once for each thing that led to it; at rest nobody waits for anything; both ends of a connection think alike of it, unless
 * one has died; and when all ids are destroyed, no timer runs and nothing is left of any connection. Many seeds bring each type of
 * event.
 *
 * usage: sim_rdmacm [-v] FIRST [COUNT]: the seeds; -v tells the steps. A failure is cut down to the steps that it needs.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../fuzz/fake_host.h"
#include "../fuzz/fake_verbs.h"
#include "../fuzz/fuzz.h"
#include "adapter/device.h"
#include "adapter/object.h"
#include "proto/gsi.h"
#include "rdmacm/cma.h"

enum { MAX_IDS = 24, MAX_FLYING = 512, MAX_STEPS = 400, CHANNELS = 2, PORT = 7471, MAX_DEAD = 64, MS = 1000000 };
enum { REST_S = 120, LONGEST_CUT_MS = 6000, SHORTEST_SCRIPT = 100, GROUPS = 3, EVENT_TYPES = RDMA_CM_EVENT_USER + 1, MANY_SEEDS = 500 };

enum kind { NOBODY, LISTENER, ACTIVE, PASSIVE };

struct group {
	uint32_t number;        /* of the membership; 0: none */
	bool is_told;
};

/* What is yet to be told. */
struct news {
	unsigned removals, changes, lost_groups;
	uint64_t user_written, user_seen;
};

struct id {
	struct rdma_cm_id *cm;
	enum kind kind;
	bool datagram, dead, wants_qp;
	struct group groups[GROUPS];
	struct news news;
	bool connected, answered, accepted, rejected, established, disconnected; /* calls that succeeded */
	unsigned seen;          /* bits of events */
	uint32_t tag;           /* both ends of a connection have the same */
};

struct flying {
	uint64_t due_ns;
	struct vb_mad mad;
	bool is_used;
};

struct step {
	uint8_t what, who, how, more;
};

static struct {
	struct rdma_event_channel *channels[CHANNELS];
	struct id ids[MAX_IDS];
	struct flying flying[MAX_FLYING];
	uint32_t dead_comm_ids[MAX_DEAD];
	unsigned num_dead, next_tag, next_random, last_group;
	struct vb_context watcher;     /* of the interfaces, as each context is */
	uint32_t tags_gone[4096 / 32]; /* one end was destroyed or is dead: the other is alone */
	uint64_t cut_until_ns;
	unsigned loss, doubling, refusals; /* percent; of queue pairs */
	bool healed, verbose;
} w;

#define MAX_SHOWN_NS UINT64_C(1000000000000)
#define BIT(event) (1u << RDMA_CM_EVENT_##event)
enum { ENDS = BIT(DISCONNECTED) | BIT(REJECTED) | BIT(UNREACHABLE) | BIT(CONNECT_ERROR) };

/* Over all seeds, each of which is a process: how often a type of event came. */
static unsigned *tally;

#define tell(...)                                                                             \
	do {                                                                                  \
		if (w.verbose) {                                                              \
			printf("# %8.3f ms  ", (double)(fake.now_ns % MAX_SHOWN_NS) / MS);    \
			printf(__VA_ARGS__);                                                  \
			putchar('\n');                                                        \
		}                                                                             \
	} while (0)

static uint32_t chance(void)
{
	w.next_random = w.next_random * 1664525u + 1013904223u;
	return w.next_random >> 8;
}

static bool percent(unsigned p) { return chance() % 100 < p; }

static unsigned number(const struct id *id) { return (unsigned)(id - w.ids); }

static bool is_alone(uint32_t tag) { return w.tags_gone[tag % 4096 / 32] >> tag % 32 & 1; }
static void leave(uint32_t tag) { w.tags_gone[tag % 4096 / 32] |= 1u << tag % 32; }

/* ---- the network ---- */

static bool is_dead(uint32_t comm_id)
{
	for (unsigned i = 0; comm_id && i < w.num_dead; i++)
		if (w.dead_comm_ids[i] == comm_id)
			return true;
	return false;
}

static void fly(const struct vb_mad *mad)
{
	for (unsigned i = 0; i < MAX_FLYING; i++) {
		if (w.flying[i].is_used)
			continue;
		uint64_t delay = percent(80) ? chance() % 20 : chance() % 1500;
		w.flying[i] = (struct flying){ .due_ns = fake.now_ns + delay * MS, .mad = *mad, .is_used = true };
		return;
	}
}

static void left(const void *bytes, size_t len)
{
	const struct vb_gsi_packet *packet = bytes;
	struct vb_cm_msg msg;

	if (len < sizeof(*packet))
		return;
	must(vb_cm_msg_parse(&packet->mad, sizeof(packet->mad), &msg) == 0);
	bool lost = !w.healed && (percent(w.loss) || fake.now_ns < w.cut_until_ns);
	lost |= is_dead(vb_cm_msg_sender_id(&msg)) || is_dead(vb_cm_msg_destination_id(&msg));
	tell("message %#x, %x to %x%s", msg.attribute, vb_cm_msg_sender_id(&msg), vb_cm_msg_destination_id(&msg), lost ? ": lost" : "");
	if (lost)
		return;
	fly(&packet->mad);
	if (!w.healed && percent(w.doubling))
		fly(&packet->mad);
}

static struct flying *next_due(uint64_t until)
{
	struct flying *next = NULL;

	for (unsigned i = 0; i < MAX_FLYING; i++)
		if (w.flying[i].is_used && w.flying[i].due_ns <= until && (!next || w.flying[i].due_ns < next->due_ns))
			next = &w.flying[i];
	return next;
}

static void pass_time(uint64_t ns)
{
	uint64_t until = fake.now_ns + ns;
	struct flying *f;

	while ((f = next_due(until))) {
		struct vb_mad mad = f->mad;
		f->is_used = false;
		if (f->due_ns > fake.now_ns)
			fake_pass_time(f->due_ns - fake.now_ns);
		fake_cm_message(&mad, FAKE_OTHER_ADDRESS, FAKE_OWN_ADDRESS, -1);
	}
	if (until > fake.now_ns)
		fake_pass_time(until - fake.now_ns);
}

/* ---- ids ---- */

static struct id *find(const struct rdma_cm_id *cm)
{
	for (unsigned i = 0; i < MAX_IDS; i++)
		if (w.ids[i].cm == cm)
			return &w.ids[i];
	return NULL;
}

static void destroy(struct id *id)
{
	if (!id->cm)
		return;
	tell("id %u is destroyed", number(id));
	rdma_destroy_qp(id->cm);
	must(rdma_destroy_id(id->cm) == 0);
	if (id->tag)
		leave(id->tag);
	*id = (struct id){ 0 };
}

static struct sockaddr_in other_host(void)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(FAKE_OTHER_ADDRESS) };
}

static struct rdma_conn_param parameters(uint32_t *tag)
{
	static uint32_t next_qpn;

	return (struct rdma_conn_param){ .qp_num = 0x1000 + next_qpn++ % 0xff0000, .retry_count = 7, .rnr_retry_count = 7,
		.private_data = tag, .private_data_len = sizeof(*tag) };
}

static void begin_to_resolve(const struct id *id)
{
	struct sockaddr_in to = other_host();

	must(rdma_resolve_addr(id->cm, NULL, (struct sockaddr *)&to, 1000) == 0);
}

/* Do queue pairs refuse the next changes of their state? */
static void dice_for_qps(void) { fake_modify_result = percent(w.refusals) ? EINVAL : 0; }

/* If it is refused, the id goes without. */
static void give_qp(struct id *id)
{
	struct ibv_cq cq = { .context = id->cm->verbs };
	struct ibv_qp_init_attr attr = { .send_cq = &cq, .recv_cq = &cq, .qp_type = id->cm->qp_type };

	if (!id->wants_qp || id->cm->qp)
		return;
	int result = rdma_create_qp(id->cm, NULL, &attr);
	tell("id %u: queue pair %s", number(id), result ? "refused" : "made");
}

static bool is_served(bool datagram)
{
	for (unsigned i = 0; i < MAX_IDS; i++)
		if (w.ids[i].kind == LISTENER && w.ids[i].datagram == datagram)
			return true;
	return false;
}

static void create(const struct step *s)
{
	struct id *id = find(NULL);
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (!id)
		return;
	bool listens = (s->how & 2 && s->how < 48) || !is_served(s->how & 1);
	*id = (struct id){ .datagram = s->how & 1, .kind = listens ? LISTENER : ACTIVE, .wants_qp = s->how & 4 };
	must(rdma_create_id(w.channels[s->more % CHANNELS], &id->cm, NULL, id->datagram ? RDMA_PS_UDP : RDMA_PS_TCP) == 0);
	tell("id %u is %s%s", number(id), id->datagram ? "a datagram " : "", id->kind == LISTENER ? "listener" : "client");
	if (id->kind == ACTIVE) {
		begin_to_resolve(id);
	} else if (rdma_bind_addr(id->cm, (struct sockaddr *)&any) || rdma_listen(id->cm, s->more >> 5)) {
		destroy(id);
	}
}

static void note(struct id *id, const char *call, int result, bool *done)
{
	tell("id %u: %s %s", number(id), call, result ? strerror(errno) : "ok");
	*done |= result == 0;
}

static void connect_id(struct id *id)
{
	uint32_t tag = w.next_tag + 1;
	struct rdma_conn_param param = parameters(&tag);
	bool was = id->connected;

	note(id, "connect", rdma_connect(id->cm, &param), &id->connected);
	if (id->connected && !was)
		id->tag = w.next_tag = tag;
}

static void accept_id(struct id *id)
{
	struct rdma_conn_param param = parameters(&id->tag);

	dice_for_qps();
	note(id, "accept", rdma_accept(id->cm, &param), &id->accepted);
	id->answered |= id->accepted;
}

/* A rejection is said once: if it is lost, and came after an acceptance, the peer may never know. */
static void reject(struct id *id, bool for_options)
{
	note(id, "reject", for_options ? rdma_reject_ece(id->cm, NULL, 0) : rdma_reject(id->cm, "no", 2), &id->rejected);
	id->answered |= id->rejected;
	if (id->rejected && (id->accepted || id->kind == ACTIVE))
		leave(id->tag);
}

/* It says that data came, which is not true: the peer may never hear of its acceptance. */
static void notify(struct id *id)
{
	bool done = false;

	note(id, "notify", rdma_notify(id->cm, IBV_EVENT_COMM_EST), &done);
	if (done)
		leave(id->tag);
}

/* The id's process is gone, with all that it had to say; what is to be said to it is lost. */
static void die(struct id *id)
{
	struct vb_cm_conn *conn = vb_cma_id_of(id->cm)->conn;

	if (id->kind == LISTENER || !conn || w.num_dead == MAX_DEAD)
		return;
	tell("id %u dies", number(id));
	w.dead_comm_ids[w.num_dead++] = conn->local_comm_id;
	id->dead = true;
	leave(id->tag);
}

/* What a program would do with the id as it is. */
static void go_on(struct id *id)
{
	if (id->kind == ACTIVE && !id->connected)
		connect_id(id);
	else if (id->kind == PASSIVE && !id->answered)
		accept_id(id);
	else if ((id->seen & BIT(CONNECT_RESPONSE)) && !id->established)
		note(id, "establish", rdma_establish(id->cm), &id->established);
	else if (id->kind != LISTENER && !id->disconnected)
		note(id, "disconnect", rdma_disconnect(id->cm), &id->disconnected);
}

static void write_event(struct id *id)
{
	must(rdma_write_cm_event(id->cm, RDMA_CM_EVENT_USER, 0, id->news.user_written++) == 0);
}

static struct sockaddr_in group_address(const struct id *id, const struct group *g)
{
	uint32_t n = (uint32_t)(g - id->groups);

	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef000001 + n) }; /* 239.0.0.1 and so on */
}

static void join(struct id *id, struct group *g, bool to_send_only)
{
	struct sockaddr_in to = group_address(id, g);
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = to_send_only ? RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER : RDMA_MC_JOIN_FLAG_FULLMEMBER,
		.addr = (struct sockaddr *)&to };
	bool may = id->datagram && id->cm->verbs;

	if (g->number)
		return;
	int result = rdma_join_multicast_ex(id->cm, &attr, (void *)(uintptr_t)(w.last_group + 1));
	must(result == (may ? 0 : -1));
	if (may)
		*g = (struct group){ .number = ++w.last_group };
	tell("id %u: join %s", number(id), may ? "ok" : "refused");
}

/* The news of having joined does not come any more; that the group is lost does, if it was. */
static void leave_group(struct id *id, struct group *g)
{
	struct sockaddr_in to = group_address(id, g);

	must(rdma_leave_multicast(id->cm, (struct sockaddr *)&to) == (g->number ? 0 : -1));
	tell("id %u: leave %s", number(id), g->number ? "ok" : "refused");
	*g = (struct group){ 0 };
}

/* Calls that come too late. */
static void misuse(const struct id *id)
{
	struct sockaddr_in to = other_host();

	if (id->kind == ACTIVE && !(id->seen & BIT(ROUTE_RESOLVED)))
		return;
	must(rdma_bind_addr(id->cm, (struct sockaddr *)&to) == -1);
	must(rdma_resolve_addr(id->cm, NULL, (struct sockaddr *)&to, 1000) == -1);
	must(rdma_resolve_route(id->cm, 1000) == -1);
	must(rdma_listen(id->cm, 1) == -1);
}

static void call(struct id *id, const struct step *s)
{
	uint8_t tos = s->more;

	if (!id->cm || id->dead)
		return;
	if (s->more & 3) {
		go_on(id);
		return;
	}
	switch (s->how % 17) {
	case 0:
	case 1:
	case 2: connect_id(id); break;
	case 3:
	case 4:
	case 5: accept_id(id); break;
	case 6: reject(id, s->more & 4); break;
	case 7: note(id, "establish", rdma_establish(id->cm), &id->established); break;
	case 8: note(id, "disconnect", rdma_disconnect(id->cm), &id->disconnected); break;
	case 9: notify(id); break;
	case 10: must(rdma_migrate_id(id->cm, w.channels[s->more % CHANNELS]) == 0); break;
	case 11: die(id); break;
	case 12: write_event(id); break;
	case 13: join(id, &id->groups[s->more / 4 % GROUPS], s->more & 128); break;
	case 14: leave_group(id, &id->groups[s->more / 4 % GROUPS]); break;
	case 15: must(rdma_set_option(id->cm, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1) == 0); break;
	case 16: misuse(id); break;
	}
}

/* ---- events ---- */

static void take_child(struct id *listener, struct rdma_cm_id *cm, const struct rdma_cm_event *event)
{
	struct id *id = find(NULL);
	const void *data = listener->datagram ? event->param.ud.private_data : event->param.conn.private_data;
	uint32_t tag;

	must(data);
	memcpy(&tag, data, sizeof(tag));
	if (!id) {
		must(rdma_destroy_id(cm) == 0 || !"a request's id is refused");
		leave(tag);
		return;
	}
	*id = (struct id){ .cm = cm, .kind = PASSIVE, .datagram = listener->datagram, .tag = tag, .wants_qp = tag & 1 };
	give_qp(id);
	tell("id %u is the server of connection %u", number(id), tag);
}

static struct group *find_group(struct id *id, const void *context)
{
	for (unsigned i = 0; i < GROUPS; i++)
		if (id->groups[i].number == (uintptr_t)context)
			return &id->groups[i];
	return NULL;
}

static void check_joined(struct id *id, const struct rdma_cm_event *event)
{
	struct group *g = find_group(id, event->param.ud.private_data);

	must(g && g->number && !g->is_told);
	g->is_told = true;
}

/* What is not of the connection, and comes as often as there is a reason. False: it is of the connection. */
static bool is_news(struct id *id, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_USER:
		must(event->param.arg == id->news.user_seen++ && id->news.user_seen <= id->news.user_written);
		return true;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		must(id->news.removals-- > 0);
		return true;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		must(id->news.changes-- > 0);
		return true;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		check_joined(id, event);
		return true;
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		must(event->status == -ENODEV && id->news.lost_groups-- > 0);
		return true;
	default:
		return false;
	}
}

/* A response that is for a queue pair, and is taken when the connection has ended again, is not told. */
static bool has_answer(const struct id *id)
{
	return id->cm->qp ? id->connected : (id->seen & BIT(CONNECT_RESPONSE)) != 0;
}

static void check_event(const struct id *id, enum rdma_cm_event_type type)
{
	unsigned bit = 1u << type;

	must(!(id->seen & bit));
	must(!(bit & ENDS) || !(id->seen & ENDS));
	must(id->kind != LISTENER);
	switch (type) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		must(id->kind == ACTIVE && !(id->seen & BIT(ADDR_RESOLVED)));
		return;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		must(id->kind == ACTIVE && (id->seen & BIT(ADDR_RESOLVED)));
		return;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		must(id->connected && !id->datagram && !id->cm->qp && !(id->seen & ENDS));
		return;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		must(id->connected && !id->datagram && id->cm->qp);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		must(id->kind == ACTIVE ? (id->datagram || id->cm->qp) && id->connected : id->accepted);
		must(!(id->seen & ENDS));
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
		must(!id->datagram && (id->kind == ACTIVE ? has_answer(id) : id->accepted));
		return;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
		must(id->kind == ACTIVE ? id->connected : !id->datagram);
		return;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		must(id->seen & (BIT(DISCONNECTED) | BIT(CONNECT_ERROR)));
		return;
	default:
		must(!"an event that nothing led to");
	}
}

/* Both programs see to their duties at once, if dutiful: they resolve, answer, establish and disconnect. */
static void follow(struct id *id, enum rdma_cm_event_type type, bool dutiful)
{
	if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
		give_qp(id);
		must(rdma_resolve_route(id->cm, 1000) == 0);
	}
	if (type == RDMA_CM_EVENT_ADDR_ERROR) { /* as often as it takes */
		id->seen &= ~BIT(ADDR_ERROR);
		begin_to_resolve(id);
	}
	if (type == RDMA_CM_EVENT_CONNECT_ERROR) /* the rejection may be lost, and the peer has accepted */
		leave(id->tag);
	if (!dutiful || id->dead)
		return;
	if (type == RDMA_CM_EVENT_CONNECT_RESPONSE)
		note(id, "establish", rdma_establish(id->cm), &id->established);
	if (type == RDMA_CM_EVENT_DISCONNECTED)
		note(id, "disconnect", rdma_disconnect(id->cm), &id->disconnected);
}

static bool take_event(unsigned channel, bool dutiful)
{
	struct rdma_cm_event *event;

	dice_for_qps();
	if (rdma_get_cm_event(w.channels[channel], &event))
		return false;
	enum rdma_cm_event_type type = event->event;
	bool brings = type == RDMA_CM_EVENT_CONNECT_REQUEST;
	struct id *id = find(brings ? event->listen_id : event->id);
	must(id && id->cm->channel == w.channels[channel]);
	must((unsigned)type < EVENT_TYPES);
	tally[type]++;
	tell("id %u: %s, %d", number(id), rdma_event_str(type), event->status);
	bool is_step = !brings && !is_news(id, event);
	if (brings) {
		must(id->kind == LISTENER && !find(event->id));
		take_child(id, event->id, event);
	} else if (is_step) {
		check_event(id, type);
		id->seen |= 1u << type;
	}
	must(rdma_ack_cm_event(event) == 0);
	if (is_step)
		follow(id, type, dutiful);
	return true;
}

/* ---- the host ---- */

static unsigned groups_of(const struct id *id)
{
	unsigned count = 0;

	for (unsigned i = 0; i < GROUPS; i++)
		count += id->groups[i].number != 0;
	return count;
}

/* All ids that have a device are told. */
static void lose_interface(void)
{
	for (unsigned i = 0; i < MAX_IDS; i++) {
		struct id *id = &w.ids[i];
		if (!id->cm || !id->cm->verbs)
			continue;
		id->news.removals++;
		id->news.lost_groups += groups_of(id);
	}
	fake.has_no_ethernet = true;
}

static void change_interface(void)
{
	for (unsigned i = 0; i < MAX_IDS; i++)
		if (w.ids[i].cm && w.ids[i].cm->verbs)
			w.ids[i].news.changes++;
	fake.mac++;
}

static void change_host(const struct step *s)
{
	switch (s->how % 12) {
	case 0: fake.has_silent_neighbours = true; break;
	case 1:
	case 2: fake.has_silent_neighbours = false; break;
	case 3:
		if (!fake.has_no_ethernet)
			lose_interface();
		break;
	case 4:
	case 5: fake.has_no_ethernet = false; break;
	case 6:
		if (!fake.has_no_ethernet)
			change_interface();
		break;
	default:
		pass_time((uint64_t)s->how * MS / 4);
		return;
	}
	tell("the host: %s neighbours, %s interface %u", fake.has_silent_neighbours ? "silent" : "talking",
	     fake.has_no_ethernet ? "no" : "an", fake.mac);
	fake_interfaces_changed();
}

/* ---- the run ---- */

static void take_step(const struct step *s)
{
	struct id *id = &w.ids[s->who % MAX_IDS];

	for (unsigned i = 0; i < MAX_IDS && !id->cm; i++) /* an id that there is */
		id = &w.ids[(s->who + i) % MAX_IDS];
	switch (s->what % 16) {
	case 0: create(s); break;
	case 1:
	case 2:
	case 3:
	case 4:
	case 5: call(id, s); break;
	case 6: take_event(s->how % CHANNELS, s->more & 1); break;
	case 7:
	case 8:
	case 9:
		for (unsigned i = 0; i < 20 && take_event(i % CHANNELS, s->more & 1); i++)
			;
		break;
	case 10:
		if (s->how % 6 == 0)
			destroy(id);
		break;
	case 11:
		if (s->more % 4 == 0)
			w.cut_until_ns = fake.now_ns + (uint64_t)s->how * LONGEST_CUT_MS / 255 * MS;
		break;
	case 12: pass_time((uint64_t)s->how * 10 * MS); break;
	case 13: change_host(s); break;
	default: pass_time((uint64_t)s->how * MS / 4); break;
	}
}

/* What is left to be answered. */
static void do_duties(void)
{
	for (unsigned i = 0; i < MAX_IDS; i++) {
		struct id *id = &w.ids[i];
		if (!id->cm || id->dead)
			continue;
		if (id->kind == PASSIVE && !id->answered && !(id->seen & ENDS))
			accept_id(id);
		if ((id->seen & BIT(CONNECT_RESPONSE)) && !id->established && !(id->seen & ENDS))
			note(id, "establish", rdma_establish(id->cm), &id->established);
		if ((id->seen & BIT(DISCONNECTED)) && !id->disconnected)
			note(id, "disconnect", rdma_disconnect(id->cm), &id->disconnected);
	}
}

static void come_to_rest(void)
{
	w.healed = true;
	fake.has_silent_neighbours = false;
	for (unsigned i = 0; i < REST_S * 4; i++) {
		for (unsigned c = 0; c < CHANNELS; c++)
			while (take_event(c, true))
				;
		do_duties();
		pass_time(250 * MS);
	}
}

static bool is_open(const struct id *id)
{
	if (id->seen & ENDS)
		return false;
	return id->kind == ACTIVE && !id->cm->qp ? id->established : (id->seen & BIT(ESTABLISHED)) != 0;
}

static void check_pair(const struct id *id)
{
	for (unsigned i = 0; i < MAX_IDS; i++) {
		const struct id *peer = &w.ids[i];
		if (peer != id && peer->cm && peer->tag == id->tag && !peer->datagram)
			must(is_open(id) == is_open(peer));
	}
}

static void check_told(const struct id *id)
{
	must(!id->news.removals && !id->news.changes && !id->news.lost_groups && id->news.user_seen == id->news.user_written);
	for (unsigned i = 0; i < GROUPS; i++)
		must(!id->groups[i].number || id->groups[i].is_told);
	must(id->kind != ACTIVE || (id->seen & BIT(ROUTE_RESOLVED)));
}

static void check_rest(void)
{
	for (unsigned i = 0; i < MAX_IDS; i++) {
		const struct id *id = &w.ids[i];
		if (id->cm)
			check_told(id);
		if (!id->cm || id->dead || id->rejected || id->kind == LISTENER)
			continue;
		tell("id %u at rest: %x", i, id->seen);
		if (id->connected)
			must(id->seen & (ENDS | BIT(CONNECT_RESPONSE) | BIT(ESTABLISHED)));
		if (id->accepted && !id->datagram)
			must(id->seen & (ENDS | BIT(ESTABLISHED)));
		if (id->disconnected)
			must(id->seen & ENDS);
		if (id->seen & BIT(DISCONNECTED))
			must(id->seen & BIT(TIMEWAIT_EXIT));
		if (!id->tag || id->datagram)
			continue;
		if (!is_alone(id->tag))
			check_pair(id);
	}
}

static void check_empty(void)
{
	unsigned total = 0, destroyed;

	for (unsigned i = 0; i < MAX_IDS; i++)
		destroy(&w.ids[i]);
	for (unsigned c = 0; c < CHANNELS; c++) {
		must(!take_event(c, false));
		rdma_destroy_event_channel(w.channels[c]);
	}
	for (unsigned i = 0; i < 400; i++)
		pass_time(UINT64_C(1000) * MS);
	vb_cma_lock();
	if (vb_cma_table_locked())
		vb_cm_table_count(vb_cma_table_locked(), &total, &destroyed);
	vb_cma_unlock();
	must(total == 0);
	must(fake_timers() == 0);
}

static void watch_interfaces(void)
{
	struct vb_device **devices;
	unsigned count;

	must(vb_device_list(&devices, &count) == 0 && count);
	must(vb_context_init(&w.watcher, devices[0]) == 0);
	for (unsigned i = 0; i < count; i++)
		vb_device_put(devices[i]);
	free(devices);
}

static void run(uint64_t seed, const struct step *steps, unsigned count)
{
	memset(&w.flying, 0, sizeof(w.flying));
	w.next_random = (unsigned)seed * 2654435761u + 1;
	w.loss = seed % 4 * 10;
	w.doubling = seed % 3 * 10;
	w.refusals = seed % 5 * 5;
	fake_reset();
	fake_is_both_hosts = true;
	fake.left = left;
	watch_interfaces();
	for (unsigned c = 0; c < CHANNELS; c++)
		must((w.channels[c] = rdma_create_event_channel()));
	create(&(struct step){ .how = 2, .more = 0 });
	create(&(struct step){ .how = 3, .more = 0 });
	for (unsigned i = 0; i < count; i++)
		take_step(&steps[i]);
	come_to_rest();
	check_rest();
	check_empty();
}

/* ---- seeds ---- */

/* In a process of its own, which starts without ids. True: all held. */
static bool holds(uint64_t seed, const struct step *steps, unsigned count, bool quiet)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		w.verbose = !quiet;
		if (quiet && !freopen("/dev/null", "w", stderr))
			_exit(2);
		run(seed, steps, count);
		fflush(NULL);
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid);
	return status == 0;
}

static unsigned make_script(uint64_t seed, struct step *steps)
{
	uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	unsigned count = SHORTEST_SCRIPT + seed % (MAX_STEPS - SHORTEST_SCRIPT);

	for (unsigned i = 0; i < count; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		steps[i] = (struct step){ (uint8_t)(x >> 8), (uint8_t)(x >> 16), (uint8_t)(x >> 24), (uint8_t)(x >> 32) };
		steps[i].who %= 2 + seed % (MAX_IDS - 2); /* few ids are used more */
	}
	return count;
}

/* Leaves out what the failure does not need: halves first, single steps last. */
static unsigned cut_down(uint64_t seed, struct step *steps, unsigned count)
{
	struct step fewer[MAX_STEPS];

	for (unsigned part = count / 2; part; part /= 2)
		for (unsigned at = 0; at + part <= count;) {
			memcpy(fewer, steps, at * sizeof(*steps));
			memcpy(fewer + at, steps + at + part, (count - at - part) * sizeof(*steps));
			if (holds(seed, fewer, count - part, true)) {
				at += part;
				continue;
			}
			count -= part;
			memcpy(steps, fewer, count * sizeof(*steps));
		}
	return count;
}

/* All types come but those that resolving by subnet administration, or with a thread, would bring. */
static bool has_all_events(void)
{
	bool all = true;

	for (int type = 0; type < EVENT_TYPES; type++) {
		bool never = type == RDMA_CM_EVENT_ROUTE_ERROR || type == RDMA_CM_EVENT_ADDRINFO_RESOLVED ||
			     type == RDMA_CM_EVENT_ADDRINFO_ERROR;
		printf("# %8u %s\n", tally[type], rdma_event_str((enum rdma_cm_event_type)type));
		all = all && (never ? !tally[type] : tally[type] > 0);
	}
	return all;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	tally = mmap(NULL, EVENT_TYPES * sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(tally != MAP_FAILED);
	bool verbose = argc > 1 && !strcmp(argv[1], "-v");
	struct step steps[MAX_STEPS];

	argv += verbose;
	argc -= verbose;
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t count = verbose ? 1 : argc > 2 ? strtoull(argv[2], NULL, 0) : 1000;
	printf("1..1\n");
	for (uint64_t seed = first; seed < first + count; seed++) {
		unsigned n = make_script(seed, steps);
		if (holds(seed, steps, n, !verbose))
			continue;
		n = cut_down(seed, steps, n);
		printf("# seed %llu fails, in %u steps:\n", (unsigned long long)seed, n);
		holds(seed, steps, n, false);
		printf("not ok 1 - rdma_cm simulation; again: sim_rdmacm -v %llu\n", (unsigned long long)seed);
		return 1;
	}
	bool all = has_all_events() || count < MANY_SEEDS;
	printf("%sok 1 - rdma_cm simulation: %llu seeds from %llu\n", all ? "" : "not ", (unsigned long long)count, (unsigned long long)first);
	return !all;
}
