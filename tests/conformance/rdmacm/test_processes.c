/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections between processes, their deaths and forks. The other process is a child that reports by its
 * exit status.
 */
#include <linux/filter.h>
#include <pthread.h>

#include "../../kernel.h"
#include "../../sanitized.h"
#include "cm.h"

enum { ROCE_PORT = 4791, REJECTIONS = 10, CONSUMER_DEFINED = 28 };

/* In a child: cmocka's assertions belong to the parent. */
#define CHILD_CHECK(condition)      \
	do {                        \
		if (!(condition)) { \
			fprintf(stderr, "# child: %s:%d: %s (%s)\n", \
				__FILE__, __LINE__, #condition, strerror(errno)); \
			_exit(1);   \
		}                   \
	} while (0)

/* LeakSanitizer's question at exit: a child has memory that only its parent knew of. */
static int in_child;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return in_child; }

/* Children start threads, which ThreadSanitizer does not like after a fork of several. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

struct child {
	pid_t pid;
	int to, from; /* pipes */
};

/* Runs body(ip, in, out) in a child, which ends with _exit(0) when body returns. */
static struct child spawn(void (*body)(const char *ip, int in, int out), const char *ip)
{
	int to[2], from[2];

	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		in_child = 1;
		close(to[1]);
		close(from[0]);
		alarm(WAIT_MS * 3 / 1000);
		body(ip, to[0], from[1]);
		_exit(0);
	}
	close(to[0]);
	close(from[1]);
	return (struct child){ .pid = pid, .to = to[1], .from = from[0] };
}

static int reap(struct child *c)
{
	int status;

	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	close(c->to);
	close(c->from);
	return status;
}

static void expect_success(struct child *c)
{
	int status = reap(c);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static __be16 read_port(int fd)
{
	__be16 port = 0;

	assert_true(readable(fd, WAIT_MS));
	assert_int_equal(read(fd, &port, sizeof(port)), sizeof(port));
	return port;
}

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }
	};
}

/* ---- what children do ---- */

static struct rdma_cm_event *child_expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	CHILD_CHECK(rdma_get_cm_event(ch, &event) == 0);
	if (event->event != type)
		fprintf(stderr, "# child: %s, status %d\n", rdma_event_str(event->event), event->status);
	CHILD_CHECK(event->event == type);
	return event;
}

static struct rdma_cm_id *child_listen(struct rdma_event_channel *ch, const char *ip, int out)
{
	struct address a = address(ip, 0);
	struct rdma_cm_id *id;
	__be16 port;

	CHILD_CHECK(ch != NULL);
	CHILD_CHECK(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
	CHILD_CHECK(rdma_bind_addr(id, sockaddr(&a)) == 0);
	CHILD_CHECK(rdma_listen(id, 5) == 0);
	port = rdma_get_src_port(id);
	CHILD_CHECK(write(out, &port, sizeof(port)) == sizeof(port));
	return id;
}

static struct rdma_cm_id *child_accept(struct rdma_event_channel *ch)
{
	struct rdma_conn_param param = { .private_data = "from the child", .private_data_len = 15 };
	struct rdma_cm_event *event = child_expect(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	struct ibv_qp_init_attr attr = qp_attr();

	CHILD_CHECK(strcmp(event->param.conn.private_data, "from the parent") == 0);
	CHILD_CHECK(rdma_create_qp(id, NULL, &attr) == 0);
	CHILD_CHECK(rdma_accept(id, &param) == 0);
	rdma_ack_cm_event(event);
	rdma_ack_cm_event(child_expect(ch, RDMA_CM_EVENT_ESTABLISHED));
	return id;
}

static void serve_one(const char *ip, int in, int out)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *listener = child_listen(ch, ip, out), *id = child_accept(ch);

	rdma_ack_cm_event(child_expect(ch, RDMA_CM_EVENT_DISCONNECTED));
	CHILD_CHECK(rdma_disconnect(id) == 0);
	rdma_destroy_qp(id);
	CHILD_CHECK(rdma_destroy_id(id) == 0);
	CHILD_CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(ch);
}

/* Accepts and waits until it is told to end, one way or the other. */
static void serve_and_wait(const char *ip, int in, int out)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	char how;

	child_listen(ch, ip, out);
	child_accept(ch);
	CHILD_CHECK(read(in, &how, 1) == 1);
	if (how == 'e')
		exit(0); /* without a word to the connection manager */
}

static void see_request_and_wait(const char *ip, int in, int out)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	char c;

	child_listen(ch, ip, out);
	child_expect(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHILD_CHECK(write(out, "r", 1) == 1);
	CHILD_CHECK(read(in, &c, 1) == 1);
}

/* Of the processes that have the RoCE port, the one in second place gets all that comes to it. */
static void steer_to_second(void)
{
	struct sockaddr_in port = { .sin_family = AF_INET, .sin_port = htons(ROCE_PORT) };
	struct sock_filter second = BPF_STMT(BPF_RET | BPF_K, 1);
	struct sock_fprog program = { .len = 1, .filter = &second };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1;

	CHILD_CHECK(setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) == 0);
	CHILD_CHECK(bind(s, (struct sockaddr *)&port, sizeof(port)) == 0);
	CHILD_CHECK(setsockopt(s, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)) == 0);
	close(s);
}

/* What it says comes to itself first, and it ends at once. */
static void reject_and_end(const char *ip, int in, int out)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	child_listen(ch, ip, out);
	struct rdma_cm_event *event = child_expect(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (is_on_wire())
		steer_to_second();
	CHILD_CHECK(rdma_reject(event->id, "not today", 10) == 0);
}

/* ---- the parent's side ---- */

static struct rdma_cm_id *connect_with_qp(struct rdma_event_channel *ch, const char *ip, __be16 port)
{
	struct rdma_cm_id *id = new_resolved(ch, ip, port, RDMA_PS_TCP);
	struct rdma_conn_param param = { .private_data = "from the parent", .private_data_len = 16,
					 .responder_resources = 1, .initiator_depth = 1 };
	struct ibv_qp_init_attr attr = qp_attr();

	assert_ok(rdma_create_qp(id, NULL, &attr));
	assert_ok(rdma_connect(id, &param));
	return id;
}

static struct rdma_cm_id *established(struct rdma_event_channel *ch, const char *ip, __be16 port)
{
	struct rdma_cm_id *id = connect_with_qp(ch, ip, port);
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_ESTABLISHED);

	assert_string_equal(event->param.conn.private_data, "from the child");
	assert_ok(rdma_ack_cm_event(event));
	return id;
}

static void drop(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	assert_ok(rdma_destroy_id(id));
}

static void life_on(const char *ip)
{
	struct child c = spawn(serve_one, ip);
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = established(ch, ip, read_port(c.from));

	assert_ok(rdma_disconnect(id));
	expect_acked(ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	drop(id);
	rdma_destroy_event_channel(ch);
	expect_success(&c);
}

static void processes__whole_life(void **state)
{
	(void)state;
	on_each_address(life_on);
}

/* At the port that the parent tells. */
static struct rdma_cm_id *child_ask(struct rdma_event_channel *ch, const char *ip, int in,
				    enum rdma_port_space ps)
{
	struct rdma_conn_param param = { .private_data = "x", .private_data_len = 1 };
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_id *id;
	struct address to = address(ip, 0);
	__be16 port;

	CHILD_CHECK(read(in, &port, sizeof(port)) == sizeof(port));
	to = with_port(to, port);
	CHILD_CHECK(rdma_create_id(ch, &id, NULL, ps) == 0);
	CHILD_CHECK(rdma_resolve_addr(id, NULL, sockaddr(&to), 2000) == 0);
	rdma_ack_cm_event(child_expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHILD_CHECK(rdma_resolve_route(id, 2000) == 0);
	rdma_ack_cm_event(child_expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED));
	CHILD_CHECK(ps != RDMA_PS_TCP || rdma_create_qp(id, NULL, &attr) == 0);
	CHILD_CHECK(rdma_connect(id, &param) == 0);
	return id;
}

static struct rdma_cm_id *child_connect(struct rdma_event_channel *ch, const char *ip, int in)
{
	struct rdma_cm_id *id = child_ask(ch, ip, in, RDMA_PS_TCP);

	rdma_ack_cm_event(child_expect(ch, RDMA_CM_EVENT_ESTABLISHED));
	return id;
}

static void connect_to_parent(const char *ip, int in, int out)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = child_connect(ch, ip, in);

	rdma_ack_cm_event(child_expect(ch, RDMA_CM_EVENT_DISCONNECTED));
	rdma_destroy_qp(id);
	CHILD_CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(ch);
}

/* The parent accepts the connection of a child that waits for the listener's port. */
static struct rdma_cm_id *accept_child(struct rdma_event_channel *ch, struct rdma_cm_id *listener,
				       const struct child *c)
{
	__be16 port = rdma_get_src_port(listener);
	struct ibv_qp_init_attr attr = qp_attr();

	assert_int_equal(write(c->to, &port, sizeof(port)), sizeof(port));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	assert_ok(rdma_create_qp(id, NULL, &attr));
	assert_ok(rdma_accept(id, NULL));
	assert_ok(rdma_ack_cm_event(event));
	expect_acked(ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	return id;
}

/*
 * The child inherits a listener and an established connection, uses neither, and ends: the parent's stay
 * whole.
 */
static void fork__child_has_its_own_manager(void **state)
{
	struct child peer = spawn(serve_one, "127.0.0.1");
	struct rdma_event_channel *ch = new_channel(), *listen_ch = new_channel();
	struct rdma_cm_id *kept = established(ch, "127.0.0.1", read_port(peer.from));
	struct rdma_cm_id *listener = new_listener(listen_ch, "127.0.0.1", RDMA_PS_TCP, 5);
	struct child c = spawn(connect_to_parent, "127.0.0.1");

	(void)state;
	struct rdma_cm_id *id = accept_child(listen_ch, listener, &c);
	assert_ok(rdma_disconnect(id));
	expect_success(&c);
	expect_acked(listen_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	drop(id);
	assert_ok(rdma_destroy_id(listener));

	assert_false(readable(ch->fd, 0));
	assert_ok(rdma_disconnect(kept));
	expect_acked(ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect_success(&peer);
	drop(kept);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(listen_ch);
}

static void connect_to_parent_by_udp(const char *ip, int in, int out)
{
	setenv("VERBATIM_LOCAL", "off", 1);
	connect_to_parent(ip, in, out);
}

static atomic_bool polling_ends;

static void *poll_in_vain(void *cq)
{
	struct ibv_wc wc;

	while (!polling_ends)
		ibv_poll_cq(cq, 1, &wc);
	return NULL;
}

/*
 * One thread does nothing but poll for a local connection; what comes over the network is heard nevertheless.
 */
static void listener__hears_the_network_while_a_thread_polls(void **state)
{
	struct child peer = spawn(serve_one, "127.0.0.1");
	struct rdma_event_channel *ch = new_channel(), *listen_ch = new_channel();
	struct rdma_cm_id *busy = established(ch, "127.0.0.1", read_port(peer.from));
	struct rdma_cm_id *listener = new_listener(listen_ch, "127.0.0.1", RDMA_PS_TCP, 5);
	struct child c = spawn(connect_to_parent_by_udp, "127.0.0.1");
	__be16 port = rdma_get_src_port(listener);
	pthread_t poller;

	(void)state;
	polling_ends = false;
	assert_int_equal(pthread_create(&poller, NULL, poll_in_vain, busy->send_cq), 0);
	assert_int_equal(write(c.to, &port, sizeof(port)), sizeof(port));
	struct rdma_cm_event *event = expect(listen_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	assert_ok(rdma_ack_cm_event(event));
	polling_ends = true;
	assert_int_equal(pthread_join(poller, NULL), 0);
	struct ibv_qp_init_attr attr = qp_attr();
	assert_ok(rdma_create_qp(id, NULL, &attr));
	assert_ok(rdma_accept(id, NULL));
	expect_acked(listen_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_ok(rdma_disconnect(id));
	expect_acked(listen_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect_success(&c);
	drop(id);
	assert_ok(rdma_destroy_id(listener));
	assert_ok(rdma_disconnect(busy));
	expect_acked(ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect_success(&peer);
	drop(busy);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(listen_ch);
}

/* A child destroys what it inherited: nothing reaches the parent's peer. */
static void destroy_inherited(const char *ip, int in, int out)
{
	struct rdma_cm_id *id;

	CHILD_CHECK(read(in, &id, sizeof(id)) == sizeof(id));
	CHILD_CHECK(rdma_destroy_id(id) == 0);
	exit(0);
}

static void fork__child_cannot_end_the_parents_connection(void **state)
{
	struct child peer = spawn(serve_one, "127.0.0.1");
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = established(ch, "127.0.0.1", read_port(peer.from));
	struct child c = spawn(destroy_inherited, "127.0.0.1");

	(void)state;
	assert_int_equal(write(c.to, &id, sizeof(id)), sizeof(id));
	expect_success(&c);
	assert_false(readable(ch->fd, 50));
	assert_ok(rdma_disconnect(id));
	expect_acked(ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect_success(&peer);
	drop(id);
	rdma_destroy_event_channel(ch);
}

/* An event waits while the child destroys its id. The parent then takes it, without waiting for ever. */
static void fork__child_cannot_block_the_parent(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address a = address("127.0.0.1", 7);
	struct rdma_cm_event *event;

	(void)state;
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&a), 100));
	struct child c = spawn(destroy_inherited, "127.0.0.1");
	assert_int_equal(write(c.to, &id, sizeof(id)), sizeof(id));
	expect_success(&c);
	alarm(WAIT_MS / 1000);
	assert_ok(rdma_get_cm_event(ch, &event));
	alarm(0);
	assert_int_equal(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

struct late {
	struct rdma_event_channel *destroyed;
	int in;
};

static void *take_from_destroyed(void *arg)
{
	struct late *late = arg;
	struct rdma_cm_event *event;
	char c;

	CHILD_CHECK(read(late->in, &c, 1) == 1);
	rdma_get_cm_event(late->destroyed, &event);
	CHILD_CHECK(!"it has returned");
	return NULL;
}

/*
 * The main thread exits. Meanwhile another thread, once the parent tells it to, calls rdma_get_cm_event on a
 * destroyed channel.
 */
static void connect_and_end(const char *ip, int in, int out)
{
	static struct late late;
	pthread_t thread;

	setenv("VERBATIM_LOCAL", "off", 1); /* the end waits: the parent answers its DREQ late */
	child_connect(rdma_create_event_channel(), ip, in);
	late = (struct late){ .destroyed = rdma_create_event_channel(), .in = in };
	rdma_destroy_event_channel(late.destroyed);
	CHILD_CHECK(pthread_create(&thread, NULL, take_from_destroyed, &late) == 0);
	exit(0);
}

static void ending__a_late_thread_does_not_change_the_status(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP(SANITIZERS_REFUSE_FAULTS);
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(ch, "127.0.0.1", RDMA_PS_TCP, 5);
	struct child c = spawn(connect_and_end, "127.0.0.1");
	struct rdma_cm_id *id = accept_child(ch, listener, &c);
	expect_acked(ch, RDMA_CM_EVENT_DISCONNECTED, 0); /* its end has begun */
	assert_int_equal(write(c.to, "l", 1), 1);
	expect_success(&c);
	drop(id);
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}

static void peer_ends(char how)
{
	struct child c = spawn(serve_and_wait, "127.0.0.1");
	struct rdma_event_channel *ch = new_channel();
	__be16 port = read_port(c.from);
	struct rdma_cm_id *id = established(ch, "127.0.0.1", port);

	if (how == 'k')
		assert_int_equal(kill(c.pid, SIGKILL), 0);
	else
		assert_int_equal(write(c.to, &how, 1), 1);
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_DISCONNECTED);
	assert_ptr_equal(event->id, id);
	assert_int_equal(event->status, 0);
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_disconnect(id));
	drop(id);
	reap(&c);

	/* its port is free again, and nobody is there */
	id = connect_with_qp(ch, "127.0.0.1", port);
	expect_acked(ch, RDMA_CM_EVENT_REJECTED, 8);
	drop(id);
	rdma_destroy_event_channel(ch);
}

static void peer__killed_while_connected(void **state)
{
	(void)state;
	peer_ends('k');
}

static void peer__exits_while_connected(void **state)
{
	(void)state;
	peer_ends('e');
}

static void peer__ends_at_once_while_connected(void **state)
{
	(void)state;
	peer_ends('_');
}

/* The request is repeated to a port that is gone. */
static void peer__killed_before_it_answers(void **state)
{
	struct child c = spawn(see_request_and_wait, "127.0.0.1");
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = connect_with_qp(ch, "127.0.0.1", read_port(c.from));
	char seen;

	(void)state;
	assert_true(readable(c.from, WAIT_MS));
	assert_int_equal(read(c.from, &seen, 1), 1);
	assert_int_equal(kill(c.pid, SIGKILL), 0);
	reap(&c);
	struct rdma_cm_event *event = next_event(ch);
	assert_true(event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_UNREACHABLE);
	assert_int_not_equal(event->status, 0);
	assert_ok(rdma_ack_cm_event(event));
	drop(id);
	rdma_destroy_event_channel(ch);
}

static void connect_and_ask(const char *ip, int in, int out)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	char c;

	child_connect(ch, ip, in);
	child_ask(ch, ip, in, RDMA_PS_TCP);
	child_ask(ch, ip, in, RDMA_PS_UDP);
	CHILD_CHECK(read(in, &c, 1) == 1);
}

/* The id of a request that the child makes at a listener; nothing is done with it. */
static struct rdma_cm_id *asked(struct rdma_event_channel *ch, struct rdma_cm_id *listener,
				const struct child *c)
{
	__be16 port = rdma_get_src_port(listener);

	assert_int_equal(write(c->to, &port, sizeof(port)), sizeof(port));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	assert_ptr_equal(event->listen_id, listener);
	assert_ok(rdma_ack_cm_event(event));
	return id;
}

/* That is told of the connection alone: the requests' ids have the listeners' contexts still. */
static void peer__killed_with_requests_that_nobody_has_touched(void **state)
{
	struct child c = spawn(connect_and_ask, "127.0.0.1");
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(ch, "127.0.0.1", RDMA_PS_TCP, 5),
			  *of_datagrams = new_listener(ch, "127.0.0.1", RDMA_PS_UDP, 5),
			  *connected = accept_child(ch, listener, &c), *request = asked(ch, listener, &c),
			  *of_datagram = asked(ch, of_datagrams, &c);

	(void)state;
	assert_int_equal(kill(c.pid, SIGKILL), 0);
	reap(&c);
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_DISCONNECTED);
	assert_ptr_equal(event->id, connected);
	assert_ok(rdma_ack_cm_event(event));
	assert_false(readable(ch->fd, 0));
	assert_ok(rdma_destroy_id(request));
	assert_ok(rdma_destroy_id(of_datagram));
	drop(connected);
	assert_ok(rdma_destroy_id(listener));
	assert_ok(rdma_destroy_id(of_datagrams));
	rdma_destroy_event_channel(ch);
}

/* Its answer does not end with it. The listener is there for the RoCE port: this process has it first. */
static void peer__ends_once_it_has_rejected(void **state)
{
	if (!kernel_steers())
		SKIP(NO_STEERING);
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(ch, "127.0.0.1", RDMA_PS_TCP, 5);

	(void)state;
	for (unsigned i = 0; i < REJECTIONS; i++) {
		struct child c = spawn(reject_and_end, "127.0.0.1");
		struct rdma_cm_id *id = connect_with_qp(ch, "127.0.0.1", read_port(c.from));
		struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_REJECTED);
		assert_int_equal(event->status, CONSUMER_DEFINED);
		assert_string_equal(event->param.conn.private_data, "not today");
		assert_ok(rdma_ack_cm_event(event));
		expect_success(&c);
		drop(id);
	}
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}

static void hold_port(const char *ip, int in, int out)
{
	char c;

	child_listen(rdma_create_event_channel(), ip, out);
	CHILD_CHECK(read(in, &c, 1) == 1);
}

static void port__belongs_to_one_process(void **state)
{
	struct child c = spawn(hold_port, "127.0.0.1");
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address a = with_port(address("127.0.0.1", 0), read_port(c.from));

	(void)state;
	assert_refused(EADDRINUSE, rdma_bind_addr(id, sockaddr(&a)));
	assert_int_equal(kill(c.pid, SIGKILL), 0);
	reap(&c);
	assert_ok(rdma_bind_addr(id, sockaddr(&a)));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* An event loop of poll(2) and a non-blocking channel. */
static void channel__nonblocking_with_poll(void **state)
{
	struct child c = spawn(serve_one, "127.0.0.1");
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_event *event;

	(void)state;
	set_nonblocking(ch->fd);
	assert_refused(EAGAIN, rdma_get_cm_event(ch, &event));
	struct rdma_cm_id *id = established(ch, "127.0.0.1", read_port(c.from)); /* waits by poll */
	assert_refused(EAGAIN, rdma_get_cm_event(ch, &event));
	assert_ok(rdma_disconnect(id));
	expect_acked(ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	drop(id);
	rdma_destroy_event_channel(ch);
	expect_success(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes__whole_life),
		cmocka_unit_test(fork__child_has_its_own_manager),
		cmocka_unit_test(fork__child_cannot_end_the_parents_connection),
		cmocka_unit_test(fork__child_cannot_block_the_parent),
		cmocka_unit_test(listener__hears_the_network_while_a_thread_polls),
		cmocka_unit_test(peer__exits_while_connected),
		cmocka_unit_test(peer__killed_while_connected),
		cmocka_unit_test(peer__ends_at_once_while_connected),
		cmocka_unit_test(peer__killed_before_it_answers),
		cmocka_unit_test(peer__killed_with_requests_that_nobody_has_touched),
		cmocka_unit_test(peer__ends_once_it_has_rejected),
		cmocka_unit_test(ending__a_late_thread_does_not_change_the_status),
		cmocka_unit_test(port__belongs_to_one_process),
		cmocka_unit_test(channel__nonblocking_with_poll),
	};

	enter_own_network();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
