/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers that are halted at any moment: stopped for ever, stopped for a second, killed; while data flow, or
 * while connections are made, refused and ended. No call of this side takes longer than if the peer had done
 * nothing, no byte is wrong, then or later, and nothing of the peer is left.
 *
 * The passive end never uses the library. For each trial it starts a process that does, the victim, which
 * ends only by being killed.
 *
 *	active end   -> passive end   a port to connect to; 0: the victim is to listen itself
 *	victim       -> active end    its process number; the port at which it listens, or 0
 *	passive end  -> active end    the victim has ended
 *
 * VERBATIM_TEST_TRIALS says how many trials a case has; then no call may take longer than two seconds, times
 * the load. VERBATIM_TEST_SEED says at which moments.
 */
#include "rc.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
	TRIALS = 12, WARM_UPS = 2, CONNECTIONS = 3, DEPTH = 8, SLOT = 16 * 1024, LONG = 256 * 1024,
	MAX_LIFE = 16,
	SOURCE = DEPTH * SLOT, /* behind the receives: what is sent, */
	RESULT = SOURCE + LONG, /* what is fetched, by each request to a place of its own, */
	TARGET = RESULT + DEPTH * LONG, /* and what the peer writes */
	BYTES = TARGET + LONG,
	MAX_DELAY_US = 30000, MAX_LATE_MS = 50, LONGEST_CALL_MS = 2000, BOUND_MS = 20000, SETTLE_MS = 400,
	PATIENCE_MS = 60000,
	REVOKED = 0x5a, IDLE_US = 100, ACK_TIMEOUT = 14, RETRIES = 2, MAX_DESCRIPTORS = 256,
};

enum halt { FOR_EVER, A_SECOND, KILLED };

/* ---- how long calls take ---- */

static uint64_t longest_ms, limit_ms; /* limit 0: nobody asks */
static const char *longest = "none";

static const char *trials_asked(void) { return getenv("VERBATIM_TEST_TRIALS"); }

/*
 * Others want the processors as well. Among all the other tests, whose load is told late, it is a bound at
 * all.
 */
static void set_limit(void)
{
	double load = 0, processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
	(void)getloadavg(&load, 1);
	limit_ms = (uint64_t)((trials_asked() ? LONGEST_CALL_MS : BOUND_MS) *
			      (load > processors ? load / processors : 1));
}

static void note_time(const char *call, uint64_t begun_ms)
{
	uint64_t took = rc_now_ms() - begun_ms;
	if (took > longest_ms) {
		longest_ms = took;
		longest = call;
	}
	if (limit_ms && took > limit_ms)
		rc_fail_eq(__FILE__, __LINE__, call, (long long)took, (long long)limit_ms);
}

#define TIMED(call)                                    \
	({                                             \
		uint64_t begun_ms_ = rc_now_ms();      \
		__typeof__(call) result_ = (call);     \
		note_time(#call, begun_ms_);           \
		result_;                               \
	})

/* ---- one side ---- */

/* Of a connection's other end, as private data. */
struct place {
	uint64_t at;
	uint32_t rkey;
} __attribute__((packed));

struct connection {
	struct rdma_cm_id *id; /* NULL: there is none */
	struct ibv_mr *mr;
	uint8_t *buf;
	struct place peer;
	struct request {
		enum ibv_wr_opcode opcode;
		uint32_t at, len;
	} requests[DEPTH];
	unsigned posted, done, life; /* it is ended by this side after so many requests; 0: not */
	bool up, is_leaving;
	bool was_up;           /* when the peer was halted */
};

struct side {
	bool wire, serves, cycles; /* cycles: connections are ended and made again */
	uint64_t rng;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	__be16 port;
	struct connection connections[CONNECTIONS];
	unsigned good;         /* requests that were done */
	bool news;             /* this turn has brought something */
};

static uint8_t pattern[LONG]; /* what both sides send, at any place that begins with LONG */

static void open_side(struct side *s, __be16 port)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	rc_fill(pattern, LONG, 1);
	CHECK((s->channel = rdma_create_event_channel()) != NULL);
	for (int i = 0; i < CONNECTIONS; i++)
		s->connections[i].buf = rc_map(BYTES);
	s->port = port;
	if (!s->serves)
		return;
	CHECK_EQ(rdma_create_id(s->channel, &s->listener, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_bind_addr(s->listener, (struct sockaddr *)&any), 0);
	CHECK_EQ(rdma_listen(s->listener, CONNECTIONS), 0);
	s->port = rdma_get_src_port(s->listener);
}

/* Every byte that the peer wrote is as it was or as it was sent. */
static void check_bytes(const struct connection *c)
{
	for (unsigned i = 0; i < LONG; i++)
		if (c->buf[TARGET + i] != pattern[i] && c->buf[TARGET + i])
			rc_fail_eq(__FILE__, __LINE__, "a byte that was written", c->buf[TARGET + i],
				   pattern[i]);
}

static void deregister(struct connection *c)
{
	if (!c->mr)
		return;
	CHECK_EQ(TIMED(ibv_dereg_mr(c->mr)), 0);
	c->mr = NULL;
	check_bytes(c);
	rc_set(c->buf, BYTES, REVOKED);
}

/* Whatever this side was doing with it, in one of several orders. */
static void drop(struct side *s, struct connection *c)
{
	uint32_t how = rc_below(&s->rng, 8);
	struct rdma_cm_id *id = c->id;
	if (how & 1)
		(void)TIMED(rdma_disconnect(id));
	if (how & 2)
		deregister(c);
	if (id->qp && how & 4)
		(void)TIMED(rc_to(id->qp, IBV_QPS_ERR));
	if (id->qp)
		TIMED((rdma_destroy_qp(id), 0));
	deregister(c);
	CHECK_EQ(TIMED(rdma_destroy_id(id)), 0);
	*c = (struct connection){ .buf = c->buf };
}

static void close_side(struct side *s)
{
	if (s->listener)
		CHECK_EQ(TIMED(rdma_destroy_id(s->listener)), 0);
	TIMED((rdma_destroy_event_channel(s->channel), 0));
}

static bool make_resources(struct side *s, struct connection *c)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
	uint8_t timeout = ACK_TIMEOUT;
	if (s->wire)
		CHECK_EQ(rdma_set_option(c->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
					 sizeof(timeout)),
			 0);
	if (TIMED(rdma_create_qp(c->id, NULL, &attr)))
		return false; /* the request has been withdrawn */
	memset(c->buf, 0, BYTES);
	memcpy(c->buf + SOURCE, pattern, LONG);
	c->mr = TIMED(ibv_reg_mr(c->id->pd, c->buf, BYTES,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	CHECK(c->mr != NULL);
	return true;
}

static void receive(struct connection *c, uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)c->buf + slot * SLOT, SLOT, c->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;
	(void)TIMED(ibv_post_recv(c->id->qp, &wr, &bad));
}

/* Accepts, or connects. */
static bool agree(struct side *s, struct connection *c,
		  int (*call)(struct rdma_cm_id *id, struct rdma_conn_param *param))
{
	if (!make_resources(s, c))
		return false;
	struct place own = { (uintptr_t)c->buf, c->mr->rkey };
	struct rdma_conn_param param = { .private_data = &own,
					 .private_data_len = sizeof(own),
					 .responder_resources = 4,
					 .initiator_depth = 4,
					 .retry_count = RETRIES,
					 .rnr_retry_count = 7 };
	for (uint64_t slot = 0; slot < DEPTH; slot++)
		receive(c, slot);
	return !TIMED(call(c->id, &param));
}

static struct connection *free_connection(struct side *s)
{
	for (int i = 0; i < CONNECTIONS; i++)
		if (!s->connections[i].id)
			return &s->connections[i];
	return NULL;
}

static void be_asked(struct side *s, struct rdma_cm_id *id, const struct place *peer)
{
	struct connection *c = free_connection(s);
	if (!c || rc_below(&s->rng, 8) == 0) {
		(void)TIMED(rdma_reject(id, NULL, 0));
		CHECK_EQ(TIMED(rdma_destroy_id(id)), 0);
		return;
	}
	c->id = id;
	id->context = c;
	c->peer = *peer;
	if (!agree(s, c, rdma_accept))
		drop(s, c);
}

static void ask(struct side *s)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = s->port };
	struct connection *c = free_connection(s);
	if (!c || s->serves)
		return;
	CHECK_EQ(TIMED(rdma_create_id(s->channel, &c->id, c, RDMA_PS_TCP)), 0);
	if (TIMED(rdma_resolve_addr(c->id, NULL, (struct sockaddr *)&to, 2000)))
		drop(s, c);
}

static void be_up(struct side *s, struct connection *c, const struct place *peer)
{
	if (!s->serves)
		c->peer = *peer;
	c->up = true;
	c->life = s->cycles && rc_below(&s->rng, 2) ? 1 + rc_below(&s->rng, MAX_LIFE) : 0;
}

static void take_event(struct side *s)
{
	struct rdma_cm_event *event;
	struct place peer = { 0 };
	s->news = true;
	CHECK_EQ(TIMED(rdma_get_cm_event(s->channel, &event)), 0);
	enum rdma_cm_event_type type = event->event;
	struct rdma_cm_id *id = event->id;
	if (event->param.conn.private_data && event->param.conn.private_data_len >= sizeof(peer))
		memcpy(&peer, event->param.conn.private_data, sizeof(peer));
	CHECK_EQ(TIMED(rdma_ack_cm_event(event)), 0);
	struct connection *c = id->context;
	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		be_asked(s, id, &peer);
		break;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		CHECK_EQ(TIMED(rdma_resolve_route(id, 2000)), 0);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		CHECK(agree(s, c, rdma_connect));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		be_up(s, c, &peer);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		drop(s, c);
	}
}

/* ---- traffic ---- */

static uint8_t *result_of(const struct connection *c, const struct request *r)
{
	return c->buf + RESULT + (r - c->requests) * LONG;
}

static void post_some(struct side *s, struct connection *c)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ };
	while (c->posted - c->done < DEPTH) {
		struct request *r = &c->requests[c->posted % DEPTH];
		r->opcode = opcodes[rc_below(&s->rng, 3)];
		r->len =
			1 + rc_below(&s->rng,
				     r->opcode == IBV_WR_SEND_WITH_IMM || rc_below(&s->rng, 2) ? SLOT : LONG);
		r->at = rc_below(&s->rng, LONG - r->len + 1);
		bool fetches = r->opcode == IBV_WR_RDMA_READ;
		uint8_t *from = fetches ? result_of(c, r) : c->buf + SOURCE + r->at;
		uint64_t there = r->at + (fetches ? SOURCE : TARGET);
		struct ibv_sge sge = { (uintptr_t)from, r->len, c->mr->lkey };
		struct ibv_send_wr wr = { .opcode = r->opcode,
					  .imm_data = htonl(r->at),
					  .sg_list = &sge,
					  .num_sge = 1,
					  .wr.rdma = { c->peer.at + there, c->peer.rkey } },
				   *bad;
		if (TIMED(ibv_post_send(c->id->qp, &wr, &bad)))
			return;
		c->posted++;
	}
}

static void finish_request(struct side *s, struct connection *c)
{
	const struct request *r = &c->requests[c->done++ % DEPTH];
	s->good++;
	s->news = true;
	if (r->opcode == IBV_WR_RDMA_READ)
		CHECK(memcmp(result_of(c, r), pattern + r->at, r->len) == 0);
}

static void take_message(struct side *s, struct connection *c, const struct ibv_wc *wc)
{
	s->news = true;
	uint32_t at = ntohl(wc->imm_data);
	CHECK(at <= LONG && wc->byte_len <= LONG - at);
	CHECK(memcmp(c->buf + wc->wr_id * SLOT, pattern + at, wc->byte_len) == 0);
	receive(c, wc->wr_id);
}

/* False: the connection has failed. */
static bool take_completions(struct side *s, struct connection *c)
{
	struct ibv_wc wc;
	while (TIMED(ibv_poll_cq(c->id->send_cq, 1, &wc)) == 1) {
		if (wc.status != IBV_WC_SUCCESS)
			return false;
		finish_request(s, c);
	}
	while (TIMED(ibv_poll_cq(c->id->recv_cq, 1, &wc)) == 1) {
		if (wc.status != IBV_WC_SUCCESS)
			return false;
		take_message(s, c, &wc);
	}
	return true;
}

static void leave(struct side *s, struct connection *c)
{
	c->is_leaving = true;
	if (rc_below(&s->rng, 2) || TIMED(rdma_disconnect(c->id)))
		drop(s, c);
}

static void work(struct side *s, struct connection *c)
{
	post_some(s, c);
	if (!take_completions(s, c))
		drop(s, c);
	else if (c->life && c->done >= c->life && !c->is_leaving)
		leave(s, c);
}

static void turn(struct side *s)
{
	s->news = false;
	while (rc_readable(s->channel->fd, 0))
		take_event(s);
	ask(s);
	for (int i = 0; i < CONNECTIONS; i++)
		if (s->connections[i].up)
			work(s, &s->connections[i]);
	if (!s->news)
		usleep(IDLE_US);
}

static bool any(const struct side *s, bool (*is_so)(const struct connection *c))
{
	for (int i = 0; i < CONNECTIONS; i++)
		if (is_so(&s->connections[i]))
			return true;
	return false;
}

static bool is_up(const struct connection *c) { return c->up; }
static bool was_up(const struct connection *c) { return c->was_up; }

/* ---- the victim, and who starts it ---- */

static _Noreturn void be_victim(struct end *e, uint64_t port, bool cycles, uint64_t seed)
{
	struct side s = { .wire = e->wire, .serves = !port, .cycles = cycles, .rng = rc_hash(seed) };
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_side(&s, (__be16)port);
	tell(e, (uint64_t)getpid());
	tell(e, s.serves ? s.port : 0);
	for (;;)
		turn(&s);
}

static void start_victims(struct end *e, bool cycles, unsigned trials)
{
	for (unsigned trial = 0; trial < trials; trial++) {
		rc_start_watchdog();
		uint64_t port = hear(e);
		int pid = fork();
		CHECK(pid >= 0);
		if (!pid)
			be_victim(e, port, cycles, e->seed * 1000 + trial);
		int status = rc_reap(pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		tell(e, 1);
	}
}

/* ---- what a process holds ---- */

struct holdings {
	unsigned descriptors, threads, mappings, names;
};

/* What a descriptor is of; empty: there is none. */
static const char *target_of(int fd)
{
	static char path[32], target[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = 0;
	return target;
}

/* Made when first needed, some for each family, and kept for the process's life. */
static bool is_for_life(int fd)
{
	int family;
	socklen_t bytes = sizeof(family);
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes))
		return strstr(target_of(fd), "userfaultfd");
	return family != AF_UNIX;
}

static unsigned count_descriptors(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < MAX_DESCRIPTORS; fd++)
		n += target_of(fd)[0] && !is_for_life(fd);
	return n;
}

static unsigned count_threads(void)
{
	unsigned n = 0;
	DIR *folder = opendir("/proc/self/task");
	CHECK(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

static unsigned lines_with(const char *path, const char *text)
{
	char line[4096];
	unsigned n = 0;
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return n;
}

/* Of mappings those that are shared and read-only from their beginning, as what peers show is. */
static struct holdings holdings(void)
{
	return (struct holdings){ count_descriptors(), count_threads(),
				  lines_with("/proc/self/maps", "r--s 00000000"),
				  lines_with("/proc/net/unix", "@verbatim") };
}

static void tell_holdings(const struct holdings *h)
{
	fprintf(stderr, "# %u descriptors, %u threads, %u mappings, %u names\n", h->descriptors, h->threads,
		h->mappings, h->names);
	for (int fd = 0; fd < MAX_DESCRIPTORS; fd++)
		if (target_of(fd)[0])
			fprintf(stderr, "# descriptor %d: %s\n", fd, target_of(fd));
}

static struct holdings most_of(const struct holdings *a, const struct holdings *b)
{
	struct holdings m = *a;
	m.descriptors = b->descriptors > m.descriptors ? b->descriptors : m.descriptors;
	m.threads = b->threads > m.threads ? b->threads : m.threads;
	m.mappings = b->mappings > m.mappings ? b->mappings : m.mappings;
	m.names = b->names > m.names ? b->names : m.names;
	return m;
}

static bool fits(const struct holdings *now, const struct holdings *most)
{
	struct holdings both = most_of(now, most);
	return !memcmp(&both, most, sizeof(both));
}

/*
 * The first trials make what stays. Links end some time after their processes, and connections are remembered
 * for a while.
 */
static void check_holdings(unsigned trial, struct holdings *most)
{
	struct holdings now;
	if (trial < WARM_UPS)
		rc_pause_ms(SETTLE_MS);
	now = holdings();
	for (uint64_t end = rc_now_ms() + PATIENCE_MS;
	     trial >= WARM_UPS && !fits(&now, most) && rc_now_ms() < end;) {
		rc_pause_ms(20);
		now = holdings();
	}
	if (trial < WARM_UPS)
		*most = most_of(most, &now);
	if (!fits(&now, most)) {
		tell_holdings(most);
		tell_holdings(&now);
		rc_fail(__FILE__, __LINE__, "nothing of the peer is left");
	}
}

/* ---- trials ---- */

struct halter {
	int pid;
	enum halt halt;
	unsigned delay_us;
	pthread_t thread;
	atomic_bool halted, resumed;
};

static void *run_halter(void *arg)
{
	struct halter *h = arg;
	usleep(h->delay_us);
	CHECK_EQ(kill(h->pid, h->halt == KILLED ? SIGKILL : SIGSTOP), 0);
	atomic_store(&h->halted, true);
	if (h->halt != A_SECOND)
		return NULL;
	rc_pause_ms(1000);
	CHECK_EQ(kill(h->pid, SIGCONT), 0);
	atomic_store(&h->resumed, true);
	return NULL;
}

static void run_until_halted(struct side *s, struct halter *h)
{
	for (uint64_t end = rc_now_ms() + PATIENCE_MS; !s->cycles && !any(s, is_up); turn(s))
		CHECK(rc_now_ms() < end);
	CHECK(!pthread_create(&h->thread, NULL, run_halter, h));
	while (!atomic_load(&h->halted))
		turn(s);
	for (int i = 0; i < CONNECTIONS; i++)
		s->connections[i].was_up = s->connections[i].up;
}

static void run_for(struct side *s, unsigned ms)
{
	for (uint64_t end = rc_now_ms() + ms; rc_now_ms() < end;)
		turn(s);
}

/* Without a word of this side: what was stopped for a second goes on, and what was killed ends by itself. */
static void be_patient(struct side *s, struct halter *h)
{
	uint64_t end = rc_now_ms() + PATIENCE_MS;
	while (h->halt == A_SECOND && !atomic_load(&h->resumed))
		turn(s);
	for (unsigned good = s->good; h->halt == A_SECOND && s->good == good; turn(s))
		CHECK(rc_now_ms() < end);
	for (; h->halt == KILLED && any(s, was_up); turn(s))
		CHECK(rc_now_ms() < end);
}

static void drop_all(struct side *s)
{
	for (int i = 0; i < CONNECTIONS; i++)
		if (s->connections[i].id)
			drop(s, &s->connections[i]);
}

/* What a peer that runs again still had in hand comes to nothing. */
static void end_victim(struct end *e, struct side *s, struct halter *h)
{
	if (h->halt != KILLED) {
		kill(h->pid, SIGCONT);
		rc_pause_ms(20);
		CHECK_EQ(kill(h->pid, SIGKILL), 0);
	}
	CHECK_EQ(hear(e), 1);
	for (int i = 0; i < CONNECTIONS; i++) {
		uint8_t *buf = s->connections[i].buf;
		if (rc_byte(buf))
			VERIFY_BYTE(buf, BYTES, REVOKED);
		munmap(buf, BYTES);
	}
}

static void one_trial(struct end *e, uint64_t *rng, enum halt halt, bool serves, bool cycles)
{
	struct side s = { .wire = e->wire, .serves = serves, .cycles = cycles, .rng = rc_random(rng) };
	struct halter h = { .halt = halt, .delay_us = rc_below(rng, MAX_DELAY_US) };
	bool has_patience = halt != FOR_EVER && rc_below(rng, 2) && !(halt == KILLED && e->wire && cycles);
	set_limit();
	open_side(&s, 0);
	tell(e, serves ? s.port : 0);
	h.pid = (int)hear(e);
	uint64_t port = hear(e);
	if (!serves)
		s.port = (__be16)port;
	run_until_halted(&s, &h);
	if (has_patience)
		be_patient(&s, &h);
	else
		run_for(&s, rc_below(rng, MAX_LATE_MS));
	drop_all(&s);
	close_side(&s);
	CHECK(!pthread_join(h.thread, NULL));
	end_victim(e, &s, &h);
}

static void run_trials(struct end *e, enum halt halt, bool cycles)
{
	const char *asked = trials_asked();
	unsigned trials = asked ? (unsigned)atoi(asked) : rc_times(TRIALS);
	struct holdings most = { 0 };
	uint64_t rng = rc_hash(e->seed + (uint64_t)halt * 2 + cycles);
	if (e->passive) {
		start_victims(e, cycles, trials);
		return;
	}
	for (unsigned trial = 0; trial < trials; trial++) {
		rc_start_watchdog();
		one_trial(e, &rng, halt, trial % 2, cycles);
		check_holdings(trial, &most);
	}
	printf("# %u trials, the longest call took %llu ms: %s\n", trials, (unsigned long long)longest_ms,
	       longest);
}

static void stopped__for_ever_with_data(struct end *e) { run_trials(e, FOR_EVER, false); }
static void stopped__for_ever_while_connecting(struct end *e) { run_trials(e, FOR_EVER, true); }
static void stopped__for_a_second_with_data(struct end *e) { run_trials(e, A_SECOND, false); }
static void stopped__for_a_second_while_connecting(struct end *e) { run_trials(e, A_SECOND, true); }
static void killed__with_data(struct end *e) { run_trials(e, KILLED, false); }
static void killed__while_connecting(struct end *e) { run_trials(e, KILLED, true); }

static const struct body bodies[] = {
	BODY_IN(stopped__for_ever_with_data, PROCESSES_ONLY),
	BODY_IN(stopped__for_ever_while_connecting, PROCESSES_ONLY),
	BODY_IN(stopped__for_a_second_with_data, PROCESSES_ONLY),
	BODY_IN(stopped__for_a_second_while_connecting, PROCESSES_ONLY),
	BODY_IN(killed__with_data, PROCESSES_ONLY),
	BODY_IN(killed__while_connecting, PROCESSES_ONLY),
};

RC_MAIN(bodies)
