/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process of another user can do to connections by CM messages, which it can send to a process's inbox
 * and to the names of its listeners. It knows all numbers: this process hears what its own library sends
 * within the host, and makes the stranger's messages of that. Messages to a name come in order, so the
 * request of its own that the stranger sends last, and may send, tells that those before it came to nothing.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "../../again.h"
#include "../../kernel.h"
#include "../stranger.h"
#include "cm.h"

enum { CHILD_SECONDS = 300, BYTES = 8 };
/* Of a message: where its MAD is; of a MAD: its parts, and where most messages have two ids. */
enum { MAD = 64, MESSAGE_BYTES = MAD + 256 };
enum { TID = MAD + 8, ATTRIBUTE = MAD + 16, FROM_ID = MAD + 24, TO_ID = MAD + 28 };
enum { REQ = 0x10, REJ = 0x12, REP = 0x13, RTU = 0x14, DREQ = 0x15 };
enum { REQ_GUID = FROM_ID + 16, REQ_QPN = FROM_ID + 32, REQ_PSN = FROM_ID + 44 };
/* The two ends of a REQ's path, which are GIDs, and those in the header of its private data, for IPv4. */
enum { REQ_FROM_GID = FROM_ID + 56, REQ_TO_GID = REQ_FROM_GID + 16, REQ_DATA = FROM_ID + 140,
       REQ_FROM_IP = REQ_DATA + 16, REQ_TO_IP = REQ_DATA + 32 };
enum { REP_QPN = FROM_ID + 12, REP_XRC_QPN = FROM_ID + 16, REP_PSN = FROM_ID + 20, DREQ_QPN = FROM_ID + 8 };
enum { REJ_INFO_LENGTH = FROM_ID + 9, REJ_REASON = FROM_ID + 10, REJ_INFO = FROM_ID + 12 };
enum { REASON_TIMEOUT = 4, REASON_CONSUMER = 28 };

struct message {
	struct sockaddr_un to;
	socklen_t to_bytes;
	uint8_t bytes[MESSAGE_BYTES];
};

/* ---- numbers in messages ---- */

static uint32_t get(const struct message *m, unsigned at, unsigned bytes)
{
	uint32_t n = 0;
	for (unsigned i = 0; i < bytes; i++)
		n = n << 8 | m->bytes[at + i];
	return n;
}

static void put(struct message *m, unsigned at, unsigned bytes, uint32_t n)
{
	for (unsigned i = bytes; i-- > 0; n >>= 8)
		m->bytes[at + i] = (uint8_t)n;
}

static uint32_t slot_of_id(uint32_t id) { return id >> 20; }
static uint32_t id_in(uint32_t slot, uint32_t index) { return slot << 20 | index; }
static uint32_t qpn_in(uint32_t slot, uint32_t index) { return slot << 12 | index; }

/* ---- what this process's library says ---- */

static pthread_mutex_t heard_lock = PTHREAD_MUTEX_INITIALIZER;
static struct message last_req, last_rep;

static void hear(const struct msghdr *sent)
{
	struct message m = { .to_bytes = sent->msg_namelen };
	uint32_t magic;
	size_t bytes = 0;
	for (size_t i = 0; i < sent->msg_iovlen; i++) {
		if (sent->msg_iov[i].iov_len > sizeof(m.bytes) - bytes)
			return;
		memcpy(m.bytes + bytes, sent->msg_iov[i].iov_base, sent->msg_iov[i].iov_len);
		bytes += sent->msg_iov[i].iov_len;
	}
	memcpy(&magic, m.bytes, sizeof(magic));
	if (bytes != sizeof(m.bytes) || magic != INBOX_MAGIC || m.to_bytes > sizeof(m.to))
		return;
	memcpy(&m.to, sent->msg_name, m.to_bytes);
	pthread_mutex_lock(&heard_lock);
	if (get(&m, ATTRIBUTE, 2) == REQ)
		last_req = m;
	else if (get(&m, ATTRIBUTE, 2) == REP)
		last_rep = m;
	pthread_mutex_unlock(&heard_lock);
}

/* The libraries' call, too. */
__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	if (m->msg_name)
		hear(m);
	return syscall(SYS_sendmsg, fd, m, flags);
}

static struct message heard(const struct message *last)
{
	pthread_mutex_lock(&heard_lock);
	struct message m = *last;
	pthread_mutex_unlock(&heard_lock);
	assert_int_not_equal(m.to_bytes, 0);
	return m;
}

/* ---- the stranger ---- */

/* Sends what it is told to, from a slot of its own that it keeps as long as the victim wants. */
static void be_a_stranger(int sock)
{
	struct message m;
	ssize_t n;
	int fd;
	alarm(CHILD_SECONDS);
	if (setresuid(OTHER_USER, OTHER_USER, OTHER_USER))
		_exit(NOT_POSSIBLE);
	uint32_t own = take_slot(&fd);
	if (!own || write(sock, &own, sizeof(own)) != sizeof(own))
		_exit(1);
	while ((n = read(sock, &m, sizeof(m))) == sizeof(m))
		if (sendto(fd, m.bytes, sizeof(m.bytes), 0, (struct sockaddr *)&m.to, m.to_bytes) < 0)
			_exit(2);
	_exit(n != 0);
}

struct stranger {
	pid_t pid;
	int sock;
	uint32_t slot;
};

/* False: this process cannot become another user. */
static bool start_stranger(struct stranger *s)
{
	int pair[2], status;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	s->pid = fork();
	assert_int_not_equal(s->pid, -1);
	if (s->pid == 0) {
		close(pair[0]);
		be_a_stranger(pair[1]);
	}
	close(pair[1]);
	s->sock = pair[0];
	if (read(s->sock, &s->slot, sizeof(s->slot)) == sizeof(s->slot))
		return true;
	close(s->sock);
	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), NOT_POSSIBLE);
	return false;
}

static void end_stranger(struct stranger *s)
{
	int status;
	close(s->sock);
	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	assert_int_equal(status, 0);
}

static void say(const struct stranger *s, struct message m, const struct message *whither)
{
	m.to = whither->to;
	m.to_bytes = whither->to_bytes;
	assert_int_equal(write(s->sock, &m, sizeof(m)), sizeof(m));
}

/* ---- its messages ---- */

/* What was heard when a connection was made: its client's request, and its server's answer. */
struct connection {
	struct message req, rep;
};

/* As one end of a connection would say it to the other, with the transaction's id and nothing else. */
static struct message blank(const struct message *heard, unsigned attribute, uint32_t from, uint32_t to)
{
	struct message m = *heard;
	put(&m, ATTRIBUTE, 2, attribute);
	memset(m.bytes + FROM_ID, 0, sizeof(m.bytes) - FROM_ID);
	put(&m, FROM_ID, 4, from);
	put(&m, TO_ID, 4, to);
	return m;
}

static struct message reject(const struct message *heard, uint32_t from, uint32_t to, unsigned reason)
{
	struct message m = blank(heard, REJ, from, to);
	put(&m, REJ_REASON, 2, reason);
	return m;
}

/* Where the victim takes CM messages: at the listener's name and at its inbox. */
struct victim {
	struct message port, inbox;
};

static void say_everywhere(const struct stranger *s, const struct victim *v, struct message m)
{
	say(s, m, &v->port);
	say(s, m, &v->inbox);
}

static void request(const struct stranger *s, const struct victim *v, const struct message *like, uint32_t id,
		    uint32_t qpn)
{
	struct message m = *like;
	put(&m, FROM_ID, 4, id);
	put(&m, REQ_QPN, 3, qpn);
	say_everywhere(s, v, m);
}

/* REQs whose id or queue pair is somebody else's: the client's, or those of a third process. */
static void request_as_others(const struct stranger *s, const struct victim *v, const struct connection *c,
			      uint32_t third)
{
	uint32_t id = get(&c->req, FROM_ID, 4), qpn = get(&c->req, REQ_QPN, 3);
	request(s, v, &c->req, id, qpn + 1);
	request(s, v, &c->req, id, qpn_in(s->slot, 9));
	request(s, v, &c->req, id_in(s->slot, 9), qpn);
	request(s, v, &c->req, id_in(third, 9), qpn_in(third, 9));
	request(s, v, &c->req, id_in(third, 9), qpn_in(s->slot, 9));
	request(s, v, &c->req, id_in(s->slot, 9), qpn_in(third, 9));
}

/* REQs of the stranger's own queue pair, which say that they are from or for another address. */
static void request_for_others(const struct stranger *s, const struct victim *v, const struct connection *c)
{
	static const unsigned at[] = { REQ_FROM_GID + 12, REQ_TO_GID + 12, REQ_FROM_IP, REQ_TO_IP };
	for (unsigned i = 0; i < sizeof(at) / sizeof(*at); i++) {
		struct message m = c->req;
		assert_int_equal(get(&m, at[i], 4), INADDR_LOOPBACK);
		put(&m, at[i], 4, 0xc0000201); /* 192.0.2.1 */
		request(s, v, &m, id_in(s->slot, 10 + i), qpn_in(s->slot, 10 + i));
	}
}

/* Each end's words to the other. */
static void end_connection(const struct stranger *s, const struct victim *v, const struct connection *c)
{
	uint32_t ids[2] = { get(&c->req, FROM_ID, 4), get(&c->rep, FROM_ID, 4) };
	uint32_t qpns[2] = { get(&c->req, REQ_QPN, 3), get(&c->rep, REP_QPN, 3) };
	for (int from = 0; from < 2; from++) {
		struct message dreq = blank(&c->req, DREQ, ids[from], ids[!from]);
		put(&dreq, DREQ_QPN, 3, qpns[!from]);
		say_everywhere(s, v, dreq);
		say_everywhere(s, v, reject(&c->req, ids[from], ids[!from], REASON_CONSUMER));
	}
}

/* To a client that has asked, and to its server that has not answered yet. */
static void answer_request(const struct stranger *s, const struct victim *v, const struct message *req)
{
	uint32_t client = get(req, FROM_ID, 4), slot = slot_of_id(client);
	struct message gone = reject(req, client, 0, REASON_TIMEOUT);
	for (int own_qp = 0; own_qp < 2; own_qp++) {
		struct message rep = blank(req, REP, id_in(own_qp ? slot : s->slot, 8), client);
		put(&rep, REP_QPN, 3, qpn_in(own_qp ? s->slot : slot, 8));
		say_everywhere(s, v, rep);
	}
	struct message xrc = blank(req, REP, id_in(s->slot, 8), client);
	put(&xrc, REP_QPN, 3, qpn_in(s->slot, 8));
	put(&xrc, REP_XRC_QPN, 3, qpn_in(slot, 8));
	say_everywhere(s, v, xrc);
	say_everywhere(s, v, reject(req, id_in(slot, 8), client, REASON_CONSUMER));
	put(&gone, REJ_INFO_LENGTH, 1, 8 << 1);
	memcpy(gone.bytes + REJ_INFO, req->bytes + REQ_GUID, 8);
	say_everywhere(s, v, gone);
}

/* To a server that has answered and hears nothing yet. */
static void confirm(const struct stranger *s, const struct victim *v, const struct connection *c)
{
	uint32_t client = get(&c->req, FROM_ID, 4), server = get(&c->rep, FROM_ID, 4);
	say_everywhere(s, v, blank(&c->req, RTU, client, server));
	say_everywhere(s, v, reject(&c->req, client, server, REASON_CONSUMER));
}

/* ---- connections ---- */

static struct connection heard_connection(void)
{
	return (struct connection){ heard(&last_req), heard(&last_rep) };
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1,
					 .cap = { 4, 4, 1, 1, BYTES } };
	assert_ok(rdma_create_qp(id, NULL, &attr));
}

static struct rdma_cm_id *take_request(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	assert_ok(rdma_ack_cm_event(event));
	return id;
}

/* With queue pairs, and established. */
static void connect_for_data(struct pair *p)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	make_qp(p->client);
	assert_ok(rdma_connect(p->client, &param));
	p->server = take_request(p->server_ch);
	make_qp(p->server);
	assert_ok(rdma_accept(p->server, &param));
	expect_acked(p->client_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect_acked(p->server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
}

/* As far as a client's request. */
static struct pair ask(const struct pair *at)
{
	struct rdma_conn_param param = some_param();
	struct pair p = { .server_ch = at->server_ch, .client_ch = at->client_ch };
	p.client = new_resolved(p.client_ch, "127.0.0.1", rdma_get_src_port(at->listener), RDMA_PS_TCP);
	assert_ok(rdma_connect(p.client, &param));
	p.server = take_request(p.server_ch);
	return p;
}

static void accept_asked(const struct pair *p)
{
	struct rdma_conn_param param = some_param();
	assert_ok(rdma_accept(p->server, &param));
	expect_acked(p->client_ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
}

static void establish(const struct pair *p)
{
	assert_ok(rdma_establish(p->client));
	expect_acked(p->server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static void destroy_ends(const struct pair *p)
{
	assert_ok(rdma_destroy_id(p->client));
	assert_ok(rdma_destroy_id(p->server));
}

static void await_success(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n, tries = WAIT_MS;
	while (!(n = ibv_poll_cq(cq, 1, &wc)) && tries--)
		usleep(1000);
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void exchange(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
	uint8_t out[BYTES] = "data", in[BYTES] = "";
	struct ibv_mr *mr = rdma_reg_msgs(to, in, sizeof(in));
	assert_non_null(mr);
	assert_ok(rdma_post_recv(to, NULL, in, sizeof(in), mr));
	assert_ok(rdma_post_send(from, NULL, out, sizeof(out), NULL, IBV_SEND_INLINE));
	await_success(from->send_cq);
	await_success(to->recv_cq);
	assert_memory_equal(in, out, sizeof(in));
	assert_ok(rdma_dereg_mr(mr));
}

/* ---- both ---- */

/* One at each place, and nothing else. */
static void meet_requests(const struct stranger *s, const struct victim *v, const struct message *like,
			  const struct pair *p)
{
	struct rdma_cm_id *ids[2];
	uint32_t sum = 0;
	for (uint32_t i = 1; i <= 2; i++) {
		struct message m = *like;
		put(&m, FROM_ID, 4, id_in(s->slot, i));
		put(&m, REQ_QPN, 3, qpn_in(s->slot, i));
		say(s, m, i == 1 ? &v->port : &v->inbox);
	}
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *event = expect(p->server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		ids[i] = event->id;
		sum += event->param.conn.qp_num;
		assert_int_equal(event->param.conn.qp_num >> 12, s->slot);
		assert_in_range(event->param.conn.qp_num & 0xfff, 1, 2);
		assert_ok(rdma_ack_cm_event(event));
	}
	assert_int_equal(sum, qpn_in(s->slot, 1) + qpn_in(s->slot, 2));
	assert_false(readable(p->server_ch->fd, 0));
	assert_false(readable(p->client_ch->fd, 0));
	for (int i = 0; i < 2; i++)
		assert_ok(rdma_destroy_id(ids[i]));
}

static void stranger__cannot_speak_for_peers(void **state)
{
	struct stranger s;
	int fd;
	if (!start_stranger(&s))
		SKIP(NO_OTHER_USER);
	uint32_t third = take_slot(&fd); /* a process that has nothing to do with it */
	assert_int_not_equal(third, 0);
	struct pair connected = listening_pair("127.0.0.1", RDMA_PS_TCP);
	connect_for_data(&connected);
	struct connection c = heard_connection();
	struct pair asked = ask(&connected);
	struct message asking = heard(&last_req);
	struct pair accepted = ask(&connected);
	accept_asked(&accepted);
	struct connection half = heard_connection();

	struct victim v = { c.req, c.rep };
	request_as_others(&s, &v, &c, third);
	request_for_others(&s, &v, &c);
	end_connection(&s, &v, &c);
	answer_request(&s, &v, &asking);
	confirm(&s, &v, &half);
	meet_requests(&s, &v, &c.req, &connected);

	exchange(connected.client, connected.server);
	exchange(connected.server, connected.client);
	accept_asked(&asked);
	establish(&asked);
	establish(&accepted);
	end_stranger(&s);
	close(fd);
	destroy_ends(&asked);
	destroy_ends(&accepted);
	rdma_destroy_qp(connected.client);
	rdma_destroy_qp(connected.server);
	destroy_pair(&connected);
}

/* ---- numbers that nobody can foretell ---- */

/* Of a process's first connection; indexes are ids without their slots. */
struct numbers {
	uint32_t client_index, client_psn, transaction, server_index, server_psn;
};

static struct numbers numbers_of_connection(void)
{
	struct pair p = connected_pair("127.0.0.1");
	struct message req = heard(&last_req), rep = heard(&last_rep);
	struct numbers n = { .client_index = get(&req, FROM_ID, 4) & 0xfffff,
			     .client_psn = get(&req, REQ_PSN, 3),
			     .transaction = get(&req, TID, 4) ^ get(&req, TID + 4, 4),
			     .server_index = get(&rep, FROM_ID, 4) & 0xfffff,
			     .server_psn = get(&rep, REP_PSN, 3) };
	destroy_pair(&p);
	return n;
}

/* In a process of its own, a run of this program: what fails there ends that run. */
static struct numbers numbers_of_process(void)
{
	struct numbers n;
	char fd[16];
	int pair[2], status;
	assert_int_equal(pipe(pair), 0);
	fflush(NULL);
	pid_t pid = fork();
	assert_int_not_equal(pid, -1);
	if (pid == 0) {
		snprintf(fd, sizeof(fd), "%d", pair[1]);
		dup2(STDERR_FILENO, STDOUT_FILENO); /* one plan is enough there */
		alarm(CHILD_SECONDS);
		run_again(fd);
		_exit(1);
	}
	close(pair[1]);
	assert_int_equal(read(pair[0], &n, sizeof(n)), sizeof(n));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(pair[0]);
	return n;
}

static int numbers_go_to;

static void tell_numbers(void **state)
{
	struct numbers n = numbers_of_connection();
	assert_int_equal(write(numbers_go_to, &n, sizeof(n)), sizeof(n));
}

/* That one of them is alike everywhere by chance is less than one in 2^57. */
static void numbers__differ_from_process_to_process(void **state)
{
	enum { PROCESSES = 4 };
	struct numbers first = numbers_of_process(), others = { 0 };
	for (int i = 1; i < PROCESSES; i++) {
		struct numbers n = numbers_of_process();
		others.client_index += n.client_index != first.client_index;
		others.client_psn += n.client_psn != first.client_psn;
		others.transaction += n.transaction != first.transaction;
		others.server_index += n.server_index != first.server_index;
		others.server_psn += n.server_psn != first.server_psn;
	}
	assert_true(others.client_index > 0);
	assert_true(others.client_psn > 0);
	assert_true(others.transaction > 0);
	assert_true(others.server_index > 0);
	assert_true(others.server_psn > 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest one[] = { cmocka_unit_test(tell_numbers) };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stranger__cannot_speak_for_peers),
		cmocka_unit_test(numbers__differ_from_process_to_process),
	};
	if (argc == 2) {
		numbers_go_to = atoi(argv[1]);
		return cmocka_run_group_tests(one, NULL, NULL);
	}
	return cmocka_run_group_tests_name("rdmacm_strangers", tests, NULL, NULL);
}
