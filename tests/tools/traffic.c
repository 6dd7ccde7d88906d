/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Traffic of which each request is known: SENDs, WRITEs, READs and atomics of one queue pair to another, in
 * this process ("one") or a child ("two"; "late": that waits for a line on standard input before it posts
 * receives), or datagrams to a number that no queue pair has ("lost"). Half of each kind is posted one by
 * one, half in lists. Then "traffic" is printed; after a line the queue pairs are destroyed and "gone"
 * is printed; after another it ends. "frames" sends nothing: the device's frames come to a queue pair.
 * "parent": as "one", but then a child opens the device, too, before "traffic" is printed. "starved": one
 * SEND to a child that posts no receive.
 *
 * usage: traffic one|two|late|starved|lost|frames|parent DEVICE rc|uc|ud|raw REQUESTS...
 *        REQUESTS: send|write|read|atomic|flush COUNT BYTES
 */
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

enum { DEPTH = 128, LIST = 8, ROOM = 1 << 20, PORT = 1, GID_INDEX = 0, QKEY = 0x1234, SLOT_QPS = 1 << 12 };

static enum ibv_qp_type type;
static bool flushes; /* requests of that kind are asked for */
static bool starves; /* there is no receive */

struct end {
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah *ah; /* UD alone */
};

struct address {
	uint64_t buffer;
	uint32_t qpn, rkey;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;

static void check(bool good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i] && !context; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	check(context, "device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	check(pd && !ibv_query_gid(context, PORT, GID_INDEX, &gid), "domain and GID");
}

/* What the type asks for on its way to INIT. */
static int init_mask(void)
{
	int mask = IBV_QP_STATE | IBV_QP_PORT;

	return type == IBV_QPT_RAW_PACKET ? mask
	     : mask | IBV_QP_PKEY_INDEX | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
}

static struct end make_end(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD | (flushes ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.send_ops_flags = IBV_QP_EX_WITH_FLUSH };
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC | (flushes ? IBV_ACCESS_FLUSH_GLOBAL : 0);
	struct end e = { 0 };
	void *buffer = aligned_alloc(4096, ROOM);

	check(cq && buffer, "completion queue and memory");
	memset(buffer, 0, ROOM);
	e.mr = ibv_reg_mr(pd, buffer, ROOM, access);
	e.qp = ibv_create_qp_ex(context, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = access,
				    .qkey = QKEY };
	check(e.mr && e.qp && !ibv_modify_qp(e.qp, &attr, init_mask()), "queue pair");
	return e;
}

static struct address address_of(const struct end *e)
{
	return (struct address){ (uintptr_t)e->mr->addr, e->qp->qp_num, e->mr->rkey };
}

/* What each type asks for on its way to RTR and RTS. */
enum {
	TO_RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	RC_TO_RTR = TO_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	TO_RTS = IBV_QP_STATE | IBV_QP_SQ_PSN,
	RC_TO_RTS = TO_RTS | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
};

static void connect_end(struct end *e, uint32_t qpn)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = PORT,
			     .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64 } } };

	if (type == IBV_QPT_UD)
		check((e->ah = ibv_create_ah(pd, &attr.ah_attr)), "address handle");
	check(!ibv_modify_qp(e->qp, &attr, type == IBV_QPT_RC ? RC_TO_RTR : type == IBV_QPT_UC ? TO_RTR :
			     IBV_QP_STATE), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7,
				      .rnr_retry = starves ? 1 : 7, .max_rd_atomic = 16 };
	check(!ibv_modify_qp(e->qp, &attr, type == IBV_QPT_RC ? RC_TO_RTS : TO_RTS), "RTS");
}

/* ---- traffic ---- */

static enum ibv_wr_opcode opcode_of(const char *kind)
{
	return strcmp(kind, "send") == 0 ? IBV_WR_SEND
	     : strcmp(kind, "write") == 0 ? IBV_WR_RDMA_WRITE
	     : strcmp(kind, "read") == 0 ? IBV_WR_RDMA_READ
	     : strcmp(kind, "flush") == 0 ? IBV_WR_FLUSH : IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static void await(struct end *e, unsigned n)
{
	struct ibv_wc wc;

	while (n) {
		int found = ibv_poll_cq(e->qp->send_cq, 1, &wc);
		check(found >= 0 && (!found || wc.status == IBV_WC_SUCCESS), "completion");
		n -= (unsigned)found;
	}
}

static void post_flushes(struct end *e, const struct address *to, uint32_t bytes, unsigned n)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(e->qp);

	ibv_wr_start(ex);
	for (unsigned i = 0; i < n; i++) {
		ex->wr_flags = 0;
		ibv_wr_flush(ex, to->rkey, to->buffer, bytes, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	}
	check(!ibv_wr_complete(ex), "flushes");
	await(e, n);
}

static void post(struct end *e, const struct address *to, enum ibv_wr_opcode opcode, uint32_t bytes,
		 unsigned n)
{
	struct ibv_sge piece = { .addr = (uintptr_t)e->mr->addr, .length = bytes, .lkey = e->mr->lkey };
	struct ibv_send_wr list[LIST], *bad;

	for (unsigned i = 0; i < n; i++) {
		list[i] = (struct ibv_send_wr){ .opcode = opcode, .sg_list = &piece, .num_sge = 1,
						.next = i + 1 < n ? &list[i + 1] : NULL };
		if (type == IBV_QPT_UD) {
			list[i].wr.ud.ah = e->ah;
			list[i].wr.ud.remote_qpn = to->qpn;
			list[i].wr.ud.remote_qkey = QKEY;
		} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			list[i].wr.atomic.remote_addr = to->buffer;
			list[i].wr.atomic.rkey = to->rkey;
			list[i].wr.atomic.compare_add = 1;
		} else {
			list[i].wr.rdma.remote_addr = to->buffer;
			list[i].wr.rdma.rkey = to->rkey;
		}
	}
	check(!ibv_post_send(e->qp, list, &bad), "post_send");
	await(e, n);
}

static void post_in_vain(struct end *e)
{
	struct ibv_sge piece = { .addr = (uintptr_t)e->mr->addr, .length = 8, .lkey = e->mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &piece, .num_sge = 1 }, *bad;
	struct ibv_wc wc;
	int found;

	check(!ibv_post_send(e->qp, &wr, &bad), "post_send");
	while ((found = ibv_poll_cq(e->qp->send_cq, 1, &wc)) == 0)
		;
	check(found == 1 && wc.status == IBV_WC_RNR_RETRY_EXC_ERR, "a completion with an error");
}

static void post_receives(struct end *e, unsigned n)
{
	struct ibv_sge piece = { .addr = (uintptr_t)e->mr->addr, .length = ROOM, .lkey = e->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &piece, .num_sge = 1 }, *bad;

	while (n--)
		check(!ibv_post_recv(e->qp, &wr, &bad), "post_recv");
}

/* One by one, then in lists. receiver: in this process, or NULL: in another, which takes as many. */
static void run(struct end *e, const struct address *to, struct end *receiver, const char *kind,
		unsigned count, uint32_t bytes)
{
	enum ibv_wr_opcode opcode = opcode_of(kind);

	for (unsigned done = 0, n; done < count; done += n) {
		n = done < count / 2 ? 1 : count - done < LIST ? count - done : LIST;
		if (receiver && opcode == IBV_WR_SEND)
			post_receives(receiver, n);
		if (opcode == IBV_WR_FLUSH)
			post_flushes(e, to, bytes, n);
		else
			post(e, to, opcode, bytes, n);
		if (receiver && opcode == IBV_WR_SEND)
			await(receiver, n);
	}
}

static void run_all(struct end *e, const struct address *to, struct end *receiver, char **words)
{
	for (; *words; words += 3)
		run(e, to, receiver, words[0], (unsigned)atoi(words[1]), (uint32_t)atoi(words[2]));
}

static unsigned count_sends(char **words)
{
	unsigned n = 0;

	for (; *words; words += 3)
		n += opcode_of(words[0]) == IBV_WR_SEND ? (unsigned)atoi(words[1]) : 0;
	return n;
}

/* ---- the two ways ---- */

static void await_line(void)
{
	char line[16];

	check(fgets(line, sizeof(line), stdin), "standard input");
}

static void tell(const char *word)
{
	puts(word);
	fflush(stdout);
}

struct pair {
	struct end a, b;
};

/* Traffic within this process. is_lost: nobody gets what is sent. */
static struct pair make_traffic(char **words, bool is_lost)
{
	struct pair p = { make_end(), make_end() };
	struct address there = address_of(&p.b);

	if (is_lost)
		there.qpn = (there.qpn + SLOT_QPS) & 0xffffff; /* the host has no other process */
	connect_end(&p.a, p.b.qp->qp_num);
	connect_end(&p.b, p.a.qp->qp_num);
	run_all(&p.a, &there, is_lost ? NULL : &p.b, words);
	return p;
}

static void do_one(char **words, bool is_lost)
{
	struct pair p = make_traffic(words, is_lost);

	tell("traffic");
	await_line();
	check(!ibv_destroy_qp(p.a.qp) && !ibv_destroy_qp(p.b.qp), "destroy_qp");
	tell("gone");
	await_line();
}

/* After its traffic it has a child, with a device of its own. */
static void do_parent(const char *device, char **words)
{
	make_traffic(words, false);
	pid_t child = fork();
	check(child >= 0, "fork");
	if (child) {
		waitpid(child, NULL, 0);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	context = NULL;
	open_device(device);
	tell("traffic");
	await_line();
}

/* It posts no receive for them. */
static void do_frames(void)
{
	struct ibv_flow_attr all = { .type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(all), .port = PORT };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct end e = make_end();
	struct ibv_flow *flow = ibv_create_flow(e.qp, &all);

	check(flow && !ibv_modify_qp(e.qp, &attr, IBV_QP_STATE), "rule for frames");
	tell("traffic");
	await_line();
	check(!ibv_destroy_flow(flow) && !ibv_destroy_qp(e.qp), "destroy_qp");
	tell("gone");
}

static void swap(int s, const void *ours, void *theirs, size_t bytes)
{
	check(write(s, ours, bytes) == (ssize_t)bytes && read(s, theirs, bytes) == (ssize_t)bytes, "the other");
}

/* is_late: the receiver waits for a line before it posts its first receives. */
static void do_two(const char *device, char **words, bool is_late)
{
	struct address here, there;
	int s[2];
	char word = 0;

	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, s), "socketpair");
	pid_t child = fork();
	check(child >= 0, "fork");
	if (!child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_device(device);
	struct end e = make_end();
	here = address_of(&e);
	swap(s[!child], &here, &there, sizeof(here));
	connect_end(&e, there.qpn);
	unsigned sends = starves ? 0 : count_sends(words);
	if (!child && sends) {
		if (is_late) {
			swap(s[1], &word, &word, 1);
			await_line();
		}
		post_receives(&e, sends);
		if (!is_late)
			swap(s[1], &word, &word, 1);
		await(&e, sends);
	}
	if (child && sends)
		swap(s[0], &word, &word, 1);
	if (starves)
		swap(s[!child], &word, &word, 1);
	if (child && starves)
		post_in_vain(&e);
	else if (child)
		run_all(&e, &there, NULL, words);
	swap(s[!child], &word, &word, 1);
	if (child) {
		tell("traffic");
		await_line();
	}
	swap(s[!child], &word, &word, 1);
	check(!ibv_destroy_qp(e.qp), "destroy_qp");
	swap(s[!child], &word, &word, 1);
	if (child) {
		tell("gone");
		await_line();
	}
	swap(s[!child], &word, &word, 1);
}

static enum ibv_qp_type type_of(const char *word)
{
	return strcmp(word, "rc") == 0 ? IBV_QPT_RC
	     : strcmp(word, "uc") == 0 ? IBV_QPT_UC
	     : strcmp(word, "ud") == 0 ? IBV_QPT_UD
				       : IBV_QPT_RAW_PACKET;
}

int main(int argc, char **argv)
{
	if (argc < 7 || (argc - 4) % 3)
		return 2;
	type = type_of(argv[3]);
	for (char **word = argv + 4; *word; word += 3)
		flushes |= strcmp(*word, "flush") == 0;
	starves = strcmp(argv[1], "starved") == 0;
	bool is_late = strcmp(argv[1], "late") == 0, is_lost = strcmp(argv[1], "lost") == 0;
	if (is_late || starves || strcmp(argv[1], "two") == 0) {
		do_two(argv[2], argv + 4, is_late);
		return 0;
	}
	open_device(argv[2]);
	if (strcmp(argv[1], "frames") == 0)
		do_frames();
	else if (strcmp(argv[1], "parent") == 0)
		do_parent(argv[2], argv + 4);
	else
		do_one(argv + 4, is_lost);
	return 0;
}
