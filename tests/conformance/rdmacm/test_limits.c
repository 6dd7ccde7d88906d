/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that may have little: descriptors, address space, system calls. What they cannot share goes over
 * the wire, so their connections work as if they had plenty, until the program itself asks for what is not
 * there. A server with one completion queue and a process for each client; all connections are there at the
 * same time.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "../../again.h"
#include "../../kernel.h"
#include "../../seccomp.h"
#include "cm.h"

enum { MOST_CLIENTS = 40, MESSAGE_BYTES = 2000, ROUNDS = 20, LONGEST_PAUSE_US = 100000 };
/* What a program may want for itself, and how many a device takes of these: the program sees them. */
enum { LOW_NUMBERS = 256, NUMBERS_OF_A_DEVICE = 2 };

struct limits {
	int resource;
	rlim_t server, client; /* 0: none */
	unsigned clients;
	bool in_sandbox; /* none of them may call recvmmsg */
};

/* What all processes of a test see. */
static struct shared {
	atomic_uint port;      /* of the server, in network order */
	atomic_uint connected, done; /* done: the server has all acknowledgements */
} *shared;

/* In children, in place of cmocka's assertions. */
#define CHECK(condition)            \
	do {                        \
		if (!(condition)) { \
			fprintf(stderr, "# %d: %s:%d: %s (%s)\n", \
				getpid(), __FILE__, __LINE__, #condition, strerror(errno)); \
			_exit(1);   \
		}                   \
	} while (0)

/* Doubles the pause each time. Otherwise 40 processes that poll often starve the few that work. */
static void pause_longer(unsigned *us)
{
	usleep(*us);
	if (*us < LONGEST_PAUSE_US)
		*us *= 2;
}

static void await(const atomic_uint *count, unsigned least)
{
	unsigned us = 1000;
	while (atomic_load(count) < least)
		pause_longer(&us);
}

static void limit(int resource, rlim_t most)
{
	if (most)
		CHECK(setrlimit(resource, &(struct rlimit){ most, most }) == 0);
}

static struct ibv_wc next_completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	unsigned us = 10;
	int n;
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		pause_longer(&us);
	CHECK(n == 1);
	errno = (int)wc.status;
	CHECK(wc.status == IBV_WC_SUCCESS);
	return wc;
}

/*
 * The acknowledgement of an answer may come after the next request, so a send may wait for each round. A peer
 * on a busy machine may not run for some seconds.
 */
static void make_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { ROUNDS, 4, 1, 1, 0 }
	};
	uint8_t timeout = 19; /* 4.096 us * 2^19, eight times */
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)) ==
	      0);
	CHECK(rdma_create_qp(id, pd, &attr) == 0);
}

static void receive(struct ibv_qp *qp, const struct ibv_mr *mr, void *to, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)to, MESSAGE_BYTES, mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };
	CHECK((errno = ibv_post_recv(qp, &wr, &bad)) == 0);
}

static void send_back(struct ibv_qp *qp, const struct ibv_mr *mr, void *from, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)from, MESSAGE_BYTES, mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = wr_id,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	CHECK((errno = ibv_post_send(qp, &wr, &bad)) == 0);
}

/* ---- the server ---- */

static uint8_t messages[MOST_CLIENTS][MESSAGE_BYTES];
static struct rdma_cm_id *ids[MOST_CLIENTS];

static void accept_all(struct rdma_event_channel *channel, unsigned clients, struct ibv_cq **cq,
		       struct ibv_mr **mr)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct ibv_pd *pd = NULL;
	struct rdma_cm_event *event;
	unsigned asked = 0, there = 0;
	while (there < clients) {
		CHECK(rdma_get_cm_event(channel, &event) == 0);
		bool is_expected = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
				   event->event == RDMA_CM_EVENT_ESTABLISHED;
		if (!is_expected)
			fprintf(stderr, "# %d: %s, status %d, when %u of %u clients were there\n", getpid(),
				rdma_event_str(event->event), event->status, there, clients);
		CHECK(is_expected);
		there += event->event == RDMA_CM_EVENT_ESTABLISHED;
		struct rdma_cm_id *id = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
		CHECK(rdma_ack_cm_event(event) == 0);
		if (!id)
			continue;
		if (!pd) {
			CHECK((pd = ibv_alloc_pd(id->verbs)) &&
			      (*cq = ibv_create_cq(id->verbs, (ROUNDS + 4) * MOST_CLIENTS, NULL, NULL, 0)));
			CHECK(*mr = ibv_reg_mr(pd, messages, sizeof(messages), IBV_ACCESS_LOCAL_WRITE));
		}
		make_qp(id, pd, *cq);
		receive(id->qp, *mr, messages[asked], asked);
		ids[asked++] = id;
		CHECK(rdma_accept(id, &param) == 0);
	}
}

static unsigned low_numbers(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < LOW_NUMBERS; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* The server's own channel, and all devices, which rdma_cm opens. */
static unsigned numbers_of_a_server(void)
{
	int devices;
	struct ibv_device **list = ibv_get_device_list(&devices);
	CHECK(list);
	ibv_free_device_list(list);
	return 1 + NUMBERS_OF_A_DEVICE * (unsigned)devices;
}

/* A descriptor of the library's has a low number for a moment, until it is raised. */
static bool have_few_numbers(unsigned most)
{
	for (int ms = 0; low_numbers() > most; ms++)
		if (ms == WAIT_MS || usleep(1000))
			return false;
	return true;
}

/* Sends each message back, until all clients have what they want. */
static void serve(const struct limits *limits)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct ibv_cq *cq = NULL;
	struct ibv_mr *mr = NULL;
	unsigned before = low_numbers();
	limit(limits->resource, limits->server);
	CHECK(channel = rdma_create_event_channel());
	CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0 &&
	      rdma_listen(listener, MOST_CLIENTS) == 0);
	atomic_store(&shared->port, rdma_get_src_port(listener));
	accept_all(channel, limits->clients, &cq, &mr);
	atomic_store(&shared->connected, limits->clients);
	for (unsigned received = 0, sent = 0; sent < limits->clients * ROUNDS;) {
		struct ibv_wc wc = next_completion(cq);
		if (wc.opcode == IBV_WC_SEND) {
			sent++;
			continue;
		}
		received++;
		send_back(ids[wc.wr_id]->qp, mr, messages[wc.wr_id], wc.wr_id);
		receive(ids[wc.wr_id]->qp, mr, messages[wc.wr_id], wc.wr_id);
	}
	CHECK(limits->server || have_few_numbers(before + numbers_of_a_server()));
	atomic_store(&shared->done, 1);
	_exit(0);
}

/* ---- a client ---- */

static void talk(struct rdma_cm_id *id, struct ibv_cq *cq, const struct ibv_mr *mr, uint8_t *in, uint8_t *out)
{
	for (int round = 0; round < ROUNDS; round++) {
		memset(out, getpid() + round, MESSAGE_BYTES);
		receive(id->qp, mr, in, 0);
		send_back(id->qp, mr, out, 1);
		next_completion(cq);
		next_completion(cq);
		CHECK(memcmp(in, out, MESSAGE_BYTES) == 0);
	}
}

static void be_a_client(const struct limits *limits)
{
	static uint8_t bytes[2][MESSAGE_BYTES];
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct sockaddr_in server = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	limit(limits->resource, limits->client);
	await(&shared->port, 1);
	server.sin_port = (in_port_t)atomic_load(&shared->port);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&server, WAIT_MS) == 0 &&
	      rdma_resolve_route(id, WAIT_MS) == 0);
	CHECK((pd = ibv_alloc_pd(id->verbs)) && (cq = ibv_create_cq(id->verbs, ROUNDS + 4, NULL, NULL, 0)));
	CHECK(mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE));
	make_qp(id, pd, cq);
	CHECK(rdma_connect(id, &param) == 0);
	await(&shared->connected, limits->clients);
	talk(id, cq, mr, bytes[0], bytes[1]);
	await(&shared->done, 1);
	_exit(0);
}

/* ---- both ---- */

/* Their standard errors, where somebody reads these; [0]: the server's. */
static FILE *words[MOST_CLIENTS + 1];

static pid_t start(void (*be)(const struct limits *), const struct limits *limits, FILE *said)
{
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	alarm(300);
	CHECK(!said || dup2(fileno(said), STDERR_FILENO) >= 0);
	CHECK(!limits->in_sandbox || forbid(SYS_recvmmsg));
	be(limits);
	_exit(1);
}

/* Leaves no one running that waits for who has failed. */
static void connect_under(const struct limits *limits)
{
	pid_t pids[MOST_CLIENTS + 1];
	bool failed = false;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	for (unsigned i = 0; i <= limits->clients; i++)
		pids[i] = start(i ? be_a_client : serve, limits, words[i]);
	for (unsigned left = limits->clients + 1; left; left--) {
		int status;
		pid_t pid = waitpid(-1, &status, 0);
		assert_true(pid > 0);
		for (unsigned i = 0; i <= limits->clients; i++) {
			if (pids[i] == pid)
				pids[i] = 0;
			else if (status && !failed && pids[i])
				kill(pids[i], SIGKILL);
		}
		failed |= status != 0;
	}
	munmap(shared, sizeof(*shared));
	assert_false(failed);
}

#define GIBIBYTE (1ull << 30)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = true }; /* which takes more address space than that */
#else
enum { IS_SANITIZED = false };
#endif

static void limits__of_descriptors_with_many_clients(void **state)
{
	connect_under(&(struct limits){ RLIMIT_NOFILE, 64, 0, MOST_CLIENTS });
}
static void limits__of_descriptors(void **state)
{
	connect_under(&(struct limits){ RLIMIT_NOFILE, 32, 32, 1 });
}
static void limits__of_the_clients_descriptors(void **state)
{
	connect_under(&(struct limits){ RLIMIT_NOFILE, 0, 32, 8 });
}
/* librspreload's netcat could not use number 17. */
static void limits__none_low_numbers_are_the_programs(void **state)
{
	connect_under(&(struct limits){ RLIMIT_NOFILE, 0, 0, 8 });
}

static void limits__of_address_space(void **state)
{
	const rlim_t most[] = { GIBIBYTE, 2 * GIBIBYTE, 20 * GIBIBYTE, 50 * GIBIBYTE };
	for (unsigned i = 0; i < sizeof(most) / sizeof(most[0]) && !IS_SANITIZED; i++) {
		connect_under(&(struct limits){ RLIMIT_AS, most[i], most[i], 2 });
		connect_under(&(struct limits){ RLIMIT_AS, most[i], 0, 2 });
		connect_under(&(struct limits){ RLIMIT_AS, 0, most[i], 2 });
	}
}

static bool can_forbid(void)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(!forbid(SYS_recvmmsg));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status == 0;
}

static void limits__of_system_calls(void **state)
{
	if (!can_forbid())
		SKIP("no seccomp here");
	connect_under(&(struct limits){ .clients = 2, .in_sandbox = true });
}

/* ---- what is said about it ---- */

/* A process prints one of the first two if it runs short itself, and the third if a peer refuses a link. */
static const char no_descriptors[] = "memory is not shared with all processes",
		  no_room[] = "no address space is left",
		  turned_away[] = "no memory is shared with process";

/* How often a process has said `what`. No process says a wrong sentence, or a right one twice. */
static unsigned times_said(FILE *said, const char *what)
{
	static const char *const wrong[] = { "this version", "process has ended", "has gone" };
	static const char *const right[] = { no_descriptors, no_room, turned_away };
	unsigned times = 0, each[3] = { 0 };
	char line[1024];
	rewind(said);
	while (fgets(line, sizeof(line), said)) {
		print_message("# %s", line);
		times += strstr(line, what) != NULL;
		for (unsigned i = 0; i < 3; i++) {
			assert_null(strstr(line, wrong[i]));
			each[i] += strstr(line, right[i]) != NULL;
			assert_true(each[i] <= 1);
		}
	}
	return times;
}

/* Whoever is limited says what it lacks, once, and nobody else does. */
static void connect_and_listen(const struct limits *limits, const char *what)
{
	for (unsigned i = 0; i <= limits->clients; i++)
		assert_non_null(words[i] = tmpfile());
	connect_under(limits);
	for (unsigned i = 0; i <= limits->clients; i++) {
		rlim_t most = i ? limits->client : limits->server;
		print_message("# %s %u:\n", i ? "client" : "server", i);
		assert_int_equal(times_said(words[i], what), most != 0);
		fclose(words[i]);
		words[i] = NULL;
	}
}

static void want_of_descriptors_is_told_once(void **state)
{
	connect_and_listen(&(struct limits){ RLIMIT_NOFILE, 64, 0, MOST_CLIENTS }, no_descriptors);
}

static void want_of_address_space_is_told_once(void **state)
{
	if (IS_SANITIZED)
		return;
	connect_and_listen(&(struct limits){ RLIMIT_AS, 2 * GIBIBYTE, 2 * GIBIBYTE, 2 }, no_room);
	connect_and_listen(&(struct limits){ RLIMIT_AS, 2 * GIBIBYTE, 0, 2 }, no_room);
	connect_and_listen(&(struct limits){ RLIMIT_AS, 0, 2 * GIBIBYTE, 2 }, no_room);
}

/* The library looks for VERBATIM_DEBUG when it is loaded: so this is a run of its own. */
static void limits__are_explained_once(void **state)
{
	int status;
	if (is_on_wire())
		SKIP("nobody wants to share memory here");
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(STDERR_FILENO, STDOUT_FILENO); /* one plan is enough there */
		setenv("VERBATIM_DEBUG", "1", 1);
		run_again("explained");
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest explained[] = {
		cmocka_unit_test(want_of_descriptors_is_told_once),
		cmocka_unit_test(want_of_address_space_is_told_once),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits__of_descriptors_with_many_clients),
		cmocka_unit_test(limits__of_descriptors),
		cmocka_unit_test(limits__of_the_clients_descriptors),
		cmocka_unit_test(limits__none_low_numbers_are_the_programs),
		cmocka_unit_test(limits__of_address_space),
		cmocka_unit_test(limits__of_system_calls),
		cmocka_unit_test(limits__are_explained_once),
	};

	if (argc == 2 && !strcmp(argv[1], "explained"))
		return cmocka_run_group_tests(explained, NULL, NULL);
	enter_own_network();
	return cmocka_run_group_tests_name("rdmacm_limits", tests, NULL, NULL);
}
