/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two programs on two hosts that connect through librdmacm, over a network that loses, delays, doubles and cuts off, and with peers
 * that die. Both hosts are this process: what it sends to the other one comes back as if the other had sent it. So each message goes
 * through the whole library, twice.
 *
 * A run is a script of steps, made from its seed: a call of the interface on some id, a message that arrives, time that passes, a
 * misfortune of the network. Then the network heals, the programs answer what they were asked, and all comes to rest.
 *
 * What must hold: events come to ids that live, at most once, and in an order that makes sense; at rest nobody waits for anything;
 * both ends of a connection think alike of it, unless one has died; and when all ids are destroyed, no timer runs and nothing is
 * left of any connection.
 *
 * usage: sim_rdmacm [-v] FIRST [COUNT]: the seeds; -v tells the steps. A failure is cut down to the steps that it needs.
 */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../fuzz/fake_host.h"
#include "../fuzz/fake_verbs.h"
#include "../fuzz/fuzz.h"
#include "proto/gsi.h"
#include "rdmacm/cma.h"

enum { MAX_IDS = 24, MAX_FLYING = 512, MAX_STEPS = 400, CHANNELS = 2, PORT = 7471, MAX_DEAD = 64, MS = 1000000 };
enum { REST_S = 120, LONGEST_CUT_MS = 6000 };

enum kind { NOBODY, LISTENER, ACTIVE, PASSIVE };

struct id {
	struct rdma_cm_id *cm;
	enum kind kind;
	bool datagram, dead;
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
	unsigned num_dead, next_tag, next_random;
	uint32_t tags_gone[4096 / 32]; /* one end was destroyed or is dead: the other is alone */
	uint64_t cut_until_ns;
	unsigned loss, doubling;       /* percent */
	bool healed, verbose;
} w;

#define MAX_SHOWN_NS UINT64_C(1000000000000)
#define BIT(event) (1u << RDMA_CM_EVENT_##event)
enum { ENDS = BIT(DISCONNECTED) | BIT(REJECTED) | BIT(UNREACHABLE) | BIT(CONNECT_ERROR) };

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

static void create(const struct step *s)
{
	struct id *id = find(NULL);
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (!id)
		return;
	*id = (struct id){ .datagram = s->how & 1, .kind = s->how & 2 && s->how < 48 ? LISTENER : ACTIVE };
	must(rdma_create_id(w.channels[s->more % CHANNELS], &id->cm, NULL, id->datagram ? RDMA_PS_UDP : RDMA_PS_TCP) == 0);
	tell("id %u is %s%s", number(id), id->datagram ? "a datagram " : "", id->kind == LISTENER ? "listener" : "client");
	if (id->kind == ACTIVE) {
		struct sockaddr_in to = other_host();
		must(rdma_resolve_addr(id->cm, NULL, (struct sockaddr *)&to, 1000) == 0);
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

	note(id, "accept", rdma_accept(id->cm, &param), &id->accepted);
	id->answered |= id->accepted;
}

/* A rejection is said once: if it is lost, and came after an acceptance, the peer may never know. */
static void reject(struct id *id)
{
	note(id, "reject", rdma_reject(id->cm, "no", 2), &id->rejected);
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

static void call(struct id *id, const struct step *s)
{
	if (!id->cm || id->dead)
		return;
	if (s->more & 3) {
		go_on(id);
		return;
	}
	switch (s->how % 12) {
	case 0:
	case 1:
	case 2: connect_id(id); break;
	case 3:
	case 4:
	case 5: accept_id(id); break;
	case 6: reject(id); break;
	case 7: note(id, "establish", rdma_establish(id->cm), &id->established); break;
	case 8: note(id, "disconnect", rdma_disconnect(id->cm), &id->disconnected); break;
	case 9: notify(id); break;
	case 10: must(rdma_migrate_id(id->cm, w.channels[s->more % CHANNELS]) == 0); break;
	case 11: die(id); break;
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
	*id = (struct id){ .cm = cm, .kind = PASSIVE, .datagram = listener->datagram, .tag = tag };
	tell("id %u is the server of connection %u", number(id), tag);
}

static void check_event(const struct id *id, enum rdma_cm_event_type type)
{
	unsigned bit = 1u << type;

	must(!(id->seen & bit));
	must(!(bit & ENDS) || !(id->seen & ENDS));
	must(id->kind != LISTENER);
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		must(id->kind == ACTIVE);
		return;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		must(id->connected && !id->datagram && !(id->seen & ENDS));
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		must(id->kind == ACTIVE ? id->datagram && id->connected : id->accepted);
		must(!(id->seen & ENDS));
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
		must(!id->datagram && (id->kind == ACTIVE ? (id->seen & BIT(CONNECT_RESPONSE)) != 0 : id->accepted));
		return;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
		must(id->kind == ACTIVE ? id->connected : !id->datagram);
		return;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		must(id->seen & BIT(DISCONNECTED));
		return;
	default:
		must(!"an event that nothing led to");
	}
}

/* Both programs see to their duties at once, if dutiful: they resolve, answer, establish and disconnect. */
static void follow(struct id *id, enum rdma_cm_event_type type, bool dutiful)
{
	if (type == RDMA_CM_EVENT_ADDR_RESOLVED)
		must(rdma_resolve_route(id->cm, 1000) == 0);
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

	if (rdma_get_cm_event(w.channels[channel], &event))
		return false;
	enum rdma_cm_event_type type = event->event;
	bool brings = type == RDMA_CM_EVENT_CONNECT_REQUEST;
	struct id *id = find(brings ? event->listen_id : event->id);
	must(id);
	tell("id %u: %s, %d", number(id), rdma_event_str(type), event->status);
	if (brings) {
		must(id->kind == LISTENER && !find(event->id));
		take_child(id, event->id, event);
	} else {
		check_event(id, type);
		id->seen |= 1u << type;
	}
	must(rdma_ack_cm_event(event) == 0);
	if (!brings)
		follow(id, type, dutiful);
	return true;
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
	case 11: w.cut_until_ns = fake.now_ns + (uint64_t)s->how * LONGEST_CUT_MS / 255 * MS; break;
	case 12: pass_time((uint64_t)s->how * 10 * MS); break;
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
	return id->kind == ACTIVE ? id->established : (id->seen & BIT(ESTABLISHED)) != 0;
}

static void check_pair(const struct id *id)
{
	for (unsigned i = 0; i < MAX_IDS; i++) {
		const struct id *peer = &w.ids[i];
		if (peer != id && peer->cm && peer->tag == id->tag && !peer->datagram)
			must(is_open(id) == is_open(peer));
	}
}

static void check_rest(void)
{
	for (unsigned i = 0; i < MAX_IDS; i++) {
		const struct id *id = &w.ids[i];
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

static void run(uint64_t seed, const struct step *steps, unsigned count)
{
	memset(&w.flying, 0, sizeof(w.flying));
	w.next_random = (unsigned)seed * 2654435761u + 1;
	w.loss = seed % 4 * 10;
	w.doubling = seed % 3 * 10;
	fake_reset();
	fake_is_both_hosts = true;
	fake.left = left;
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
	unsigned count = 40 + seed % (MAX_STEPS - 40);

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

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
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
	printf("ok 1 - rdma_cm simulation: %llu seeds from %llu\n", (unsigned long long)count, (unsigned long long)first);
	return 0;
}
