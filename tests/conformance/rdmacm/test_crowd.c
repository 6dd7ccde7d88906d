/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many connections between two processes, all of them under way at once: connected, used in both directions,
 * closed; and again and again, until it is seen that nothing is left behind: descriptors, threads and memory
 * are what they were after the round before. Queue pair numbers are handed out in turn, each with memory of
 * its own that is touched once: so the resident size is compared in the last round alone.
 *
 * VERBATIM_TEST_CONNECTIONS says how many; ten thousand take some seconds.
 */
#include <dirent.h>
#include <malloc.h>
#include <sys/resource.h>

#include "cm.h"

enum {
	CONNECTIONS = 1000, ROUNDS = 6, MAX_FILES = 200, MESSAGE_BYTES = 64, BATCH = 64,
	SETTLED_MS = 1000,     /* nothing changes any more */
	SLACK_PER_CONNECTION = 8, SLACK_BYTES = 32768,
};

struct end {
	struct rdma_cm_id *id;
	unsigned number;
};

/* One process: the client's or the server's. */
static struct {
	unsigned count, events, released;
	struct rdma_event_channel *channel;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct end *ends;
	uint8_t (*in)[MESSAGE_BYTES], (*out)[MESSAGE_BYTES];
	int to_peer, from_peer; /* pipes */
} me;

static bool in_child;

/* Both processes end the test this way; cmocka's assertions belong to the parent. */
#define CHECK(condition)                                          \
	do {                                                      \
		if (!(condition)) {                               \
			fprintf(stderr, "# %s: %s:%d: %s (%s)\n", \
				in_child ? "server" : "client", __FILE__, __LINE__, \
				#condition, strerror(errno)); \
			if (in_child)                             \
				_exit(1);                         \
			fail();                                   \
		}                                                 \
	} while (0)

static unsigned connections(void)
{
	const char *asked = getenv("VERBATIM_TEST_CONNECTIONS");

	return asked ? (unsigned)atoi(asked) : CONNECTIONS;
}

/* ---- what a process holds ---- */

struct holdings {
	unsigned files, threads;
	size_t heap_bytes, resident_bytes;
};

static unsigned entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned count = 0;

	CHECK(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static size_t resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	CHECK(f && fscanf(f, "%*s %lu", &pages) == 1);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static struct holdings holdings(void)
{
	malloc_trim(0);
	return (struct holdings){ .files = entries("/proc/self/fd"), .threads = entries("/proc/self/task"),
				  .heap_bytes = mallinfo2().uordblks, .resident_bytes = resident_bytes() };
}

/* AddressSanitizer and ThreadSanitizer keep what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEMORY_COUNTS = false };
#else
enum { MEMORY_COUNTS = true };
#endif

static bool is_more_memory(unsigned round, const struct holdings *now, const struct holdings *before)
{
	size_t slack = SLACK_BYTES + SLACK_PER_CONNECTION * (size_t)me.count;

	return MEMORY_COUNTS &&
	       (now->heap_bytes > before->heap_bytes + slack ||
		(round == ROUNDS - 1 && now->resident_bytes > before->resident_bytes + 4 * slack));
}

static bool is_more(unsigned round, const struct holdings *now, const struct holdings *before)
{
	return now->files > before->files || now->threads > before->threads ||
	       is_more_memory(round, now, before);
}

static bool is_same(const struct holdings *a, const struct holdings *b)
{
	return a->files == b->files && a->threads == b->threads && a->heap_bytes == b->heap_bytes;
}

/* Connections are remembered for a while after their end, so that repeated messages are answered. */
static struct holdings holdings_at_rest(void)
{
	struct holdings now = holdings(), last = now;

	for (unsigned ms = 0; ms < SETTLED_MS; ms += 100) {
		usleep(100000);
		now = holdings();
		if (!is_same(&now, &last))
			ms = 0;
		last = now;
	}
	return now;
}

/*
 * The first two rounds allocate what stays. After each later round the process holds no more than before. On
 * a busy machine the library may need longer to forget closed connections, so this waits for that.
 */
static void check_holdings(unsigned round, struct holdings *before)
{
	struct holdings now = holdings_at_rest();

	for (unsigned ms = 0; round >= 2 && is_more(round, &now, before) && ms < WAIT_MS; ms += SETTLED_MS)
		now = holdings_at_rest();
	print_message(
		"# %s, round %u: %u connections; then %u files, %u threads, %zu KiB of heap, %zu KiB resident\n",
		in_child ? "server" : "client", round, me.count, now.files, now.threads, now.heap_bytes >> 10,
		now.resident_bytes >> 10);
	fflush(NULL); /* a child that fails writes nothing later */
	CHECK(round < 2 || !is_more(round, &now, before));
	*before = now;
}

/* ---- both processes ---- */

static void tell(char what)
{
	CHECK(write(me.to_peer, &what, 1) == 1);
}

static void hear(char what)
{
	char heard = 0;

	CHECK(readable(me.from_peer, 2 * WAIT_MS));
	CHECK(read(me.from_peer, &heard, 1) == 1 && heard == what);
}

static void meet(void)
{
	tell('!');
	hear('!');
}

static void set_up(void)
{
	me.count = connections();
	me.channel = rdma_create_event_channel();
	me.ends = calloc(me.count, sizeof(*me.ends));
	me.in = calloc(me.count, sizeof(*me.in));
	me.out = calloc(me.count, sizeof(*me.out));
	CHECK(me.channel && me.ends && me.in && me.out);
}

static void open_device(struct ibv_context *verbs)
{
	if (me.verbs)
		return;
	me.verbs = verbs;
	me.pd = ibv_alloc_pd(verbs);
	me.cq = ibv_create_cq(verbs, 2 * (int)me.count, NULL, NULL, 0);
	CHECK(me.pd && me.cq);
	me.mr = ibv_reg_mr(me.pd, me.in, me.count * sizeof(*me.in), IBV_ACCESS_LOCAL_WRITE);
	CHECK(me.mr);
}

static void make_qp(struct end *end)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1,
					 .cap = { .max_send_wr = 1,
						  .max_recv_wr = 1,
						  .max_send_sge = 1,
						  .max_recv_sge = 1,
						  .max_inline_data = MESSAGE_BYTES } };
	struct ibv_recv_wr wr = { .wr_id = end->number, .num_sge = 1 }, *bad;

	open_device(end->id->verbs);
	attr.send_cq = attr.recv_cq = me.cq;
	CHECK(rdma_create_qp(end->id, me.pd, &attr) == 0);
	struct ibv_sge sge = { (uintptr_t)me.in[end->number], MESSAGE_BYTES, me.mr->lkey };
	wr.sg_list = &sge;
	CHECK(ibv_post_recv(end->id->qp, &wr, &bad) == 0);
}

static void post_send(const struct end *end)
{
	struct ibv_sge sge = { (uintptr_t)me.out[end->number], MESSAGE_BYTES, 0 };
	struct ibv_send_wr wr = { .wr_id = end->number,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_INLINE,
				  .sg_list = &sge,
				  .num_sge = 1 },
			   *bad;

	CHECK(ibv_post_send(end->id->qp, &wr, &bad) == 0);
}

static void take_down(struct end *end)
{
	rdma_destroy_qp(end->id);
	CHECK(rdma_destroy_id(end->id) == 0);
	end->id = NULL;
	me.released++;
}

/* On a busy machine the peer's program may disconnect later than all repetitions of a DREQ. */
static bool is_unanswered_end(const struct rdma_cm_event *event)
{
	return event->event == RDMA_CM_EVENT_DISCONNECTED && event->status == -ETIMEDOUT;
}

static struct rdma_cm_event *take_event(void)
{
	struct rdma_cm_event *event;

	CHECK(readable(me.channel->fd, 2 * WAIT_MS));
	CHECK(rdma_get_cm_event(me.channel, &event) == 0);
	if (event->status)
		fprintf(stderr, "# %s: %d\n", rdma_event_str(event->event), event->status);
	CHECK(event->status == 0 || is_unanswered_end(event));
	return event;
}

/* The messages of `count` ends, each with what follows from it. */
static void take_completions(unsigned count, void (*received)(struct end *))
{
	struct ibv_wc wc[BATCH];
	unsigned sent = 0, came = 0;

	while (sent < count || came < count) {
		int n = ibv_poll_cq(me.cq, BATCH, wc);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			CHECK(wc[i].status == IBV_WC_SUCCESS);
			if (!(wc[i].opcode & IBV_WC_RECV)) {
				sent++;
				continue;
			}
			CHECK(wc[i].byte_len == MESSAGE_BYTES);
			came++;
			received(&me.ends[wc[i].wr_id]);
		}
	}
}

static void tear_down_process(void)
{
	CHECK(ibv_destroy_cq(me.cq) == 0 && ibv_dereg_mr(me.mr) == 0 && ibv_dealloc_pd(me.pd) == 0);
	rdma_destroy_event_channel(me.channel);
	free(me.ends);
	free(me.in);
	free(me.out);
	memset(&me, 0, sizeof(me));
}

/* ---- the server ---- */

static struct end *free_end(void)
{
	for (unsigned i = 0; i < me.count; i++) {
		unsigned number = (me.events + i) % me.count;
		if (!me.ends[number].id)
			return &me.ends[number];
	}
	return NULL;
}

static void accept_one(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct end *end = free_end();

	CHECK(end); /* more requests than connections were asked for */
	*end = (struct end){ .id = id, .number = (unsigned)(end - me.ends) };
	id->context = end;
	make_qp(end);
	CHECK(rdma_accept(id, &param) == 0);
}

/* Returns the next event of which nothing is left to do. */
static enum rdma_cm_event_type serve_event(void)
{
	struct rdma_cm_event *event = take_event();
	enum rdma_cm_event_type type = event->event;
	struct rdma_cm_id *id = event->id;

	CHECK(rdma_ack_cm_event(event) == 0);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		accept_one(id);
	if (type == RDMA_CM_EVENT_DISCONNECTED) {
		CHECK(rdma_disconnect(id) == 0);
		take_down(id->context);
	}
	me.events++;
	return type;
}

static void serve_events(enum rdma_cm_event_type counted)
{
	for (unsigned n = 0; n < me.count;)
		n += serve_event() == counted;
}

static void echo(struct end *end)
{
	memcpy(me.out[end->number], me.in[end->number], MESSAGE_BYTES);
	me.out[end->number][0] ^= 0xff;
	post_send(end);
}

static void serve(const char *ip)
{
	struct holdings before = { 0 };
	struct rdma_cm_id *listener;
	struct address a = address(ip, 0);

	set_up();
	CHECK(rdma_create_id(me.channel, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, sockaddr(&a)) == 0 && rdma_listen(listener, 0) == 0);
	__be16 port = rdma_get_src_port(listener);
	CHECK(write(me.to_peer, &port, sizeof(port)) == sizeof(port));
	for (unsigned round = 0; round < ROUNDS; round++) {
		serve_events(RDMA_CM_EVENT_ESTABLISHED);
		meet();
		take_completions(me.count, echo);
		meet();
		serve_events(RDMA_CM_EVENT_DISCONNECTED);
		check_holdings(round, &before);
		meet();
	}
	CHECK(rdma_destroy_id(listener) == 0);
	tear_down_process();
}

/* ---- the client ---- */

static void start_all(const char *ip, __be16 port)
{
	struct address to = with_port(address(ip, 0), port);

	for (unsigned i = 0; i < me.count; i++) {
		me.ends[i].number = i;
		CHECK(rdma_create_id(me.channel, &me.ends[i].id, &me.ends[i], RDMA_PS_TCP) == 0);
		CHECK(rdma_resolve_addr(me.ends[i].id, NULL, sockaddr(&to), 2000) == 0);
	}
}

/* True: connected. */
static bool advance(void)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_event *event = take_event();
	enum rdma_cm_event_type type = event->event;
	struct rdma_cm_id *id = event->id;

	CHECK(rdma_ack_cm_event(event) == 0);
	if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
		CHECK(rdma_resolve_route(id, 2000) == 0);
	} else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
		make_qp(id->context);
		CHECK(rdma_connect(id, &param) == 0);
	} else {
		CHECK(type == RDMA_CM_EVENT_ESTABLISHED);
	}
	return type == RDMA_CM_EVENT_ESTABLISHED;
}

static void connect_all(const char *ip, __be16 port)
{
	start_all(ip, port);
	for (unsigned n = 0; n < me.count;)
		n += advance();
}

static void verify(struct end *end)
{
	me.out[end->number][0] ^= 0xff;
	CHECK(memcmp(me.in[end->number], me.out[end->number], MESSAGE_BYTES) == 0);
}

static void talk(unsigned round)
{
	for (unsigned i = 0; i < me.count; i++) {
		for (unsigned b = 0; b < MESSAGE_BYTES; b++)
			me.out[i][b] = (uint8_t)(i * 31 + b * 7 + (i >> 8) + round);
		post_send(&me.ends[i]);
	}
	take_completions(me.count, verify);
}

static void disconnect_all(void)
{
	for (unsigned i = 0; i < me.count; i++)
		CHECK(rdma_disconnect(me.ends[i].id) == 0);
	for (unsigned n = 0; n < me.count;) {
		struct rdma_cm_event *event = take_event();
		struct end *end = event->id->context;
		bool is_end = event->event == RDMA_CM_EVENT_DISCONNECTED;

		CHECK(is_end || event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT);
		CHECK(rdma_ack_cm_event(event) == 0);
		if (is_end)
			take_down(end);
		n += is_end;
	}
}

static void ask(const char *ip)
{
	struct holdings before = { 0 };
	__be16 port = 0;

	set_up();
	CHECK(readable(me.from_peer, WAIT_MS));
	CHECK(read(me.from_peer, &port, sizeof(port)) == sizeof(port));
	for (unsigned round = 0; round < ROUNDS; round++) {
		connect_all(ip, port);
		meet();
		talk(round);
		meet();
		disconnect_all();
		check_holdings(round, &before);
		meet();
	}
	tear_down_process();
}

/* LeakSanitizer's question at exit: a child has memory that only its parent knew of. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return in_child; }

/* Children start threads, which ThreadSanitizer does not like after a fork of several. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static void crowd__leaves_nothing_behind(void **state)
{
	const struct rlimit few = { MAX_FILES, MAX_FILES };
	int there[2], back[2], status;

	assert_int_equal(pipe(there), 0);
	assert_int_equal(pipe(back), 0);
	/* connections have no descriptors of their own */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		in_child = true;
		me.from_peer = there[0];
		me.to_peer = back[1];
		serve("127.0.0.1");
		_exit(0);
	}
	me.from_peer = back[0];
	me.to_peer = there[1];
	ask("127.0.0.1");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crowd__leaves_nothing_behind),
	};

	/*
	 * One heap for all threads: it is counted whole, and what is free of it goes back, where others keep
	 * what changes from round to round.
	 */
	mallopt(M_ARENA_MAX, 1);
	enter_own_network();
	return cmocka_run_group_tests_name("rdmacm_crowd", tests, NULL, NULL);
}
