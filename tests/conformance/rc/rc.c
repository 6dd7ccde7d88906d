/* SPDX-License-Identifier: BSD-2-Clause */
/* The ends: objects, connection, work and data. The cases and paths are in run.c. */
#include "rc.h"

#include "../../kernel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

bool rc_is_long(void) { return getenv("VERBATIM_TEST_LONG") && !SANITIZED; }

unsigned rc_times(unsigned n) { return rc_is_long() ? n : (n + 3) / 4; }

enum { PATIENCE_MS = 60000 };

static uint64_t deadline(void)
{
	return rc_now_ms() + PATIENCE_MS * (SANITIZED ? 3 : 1);
}

uint64_t rc_now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void rc_pause_ms(unsigned ms)
{
	usleep(ms * 1000);
}

struct rlimit rc_use_up_descriptors(void)
{
	struct rlimit before, none;
	int lowest = dup(STDIN_FILENO);
	CHECK(lowest >= 0);
	close(lowest);
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){ .rlim_cur = lowest, .rlim_max = before.rlim_max };
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	return before;
}

/* ---- objects ---- */

struct params params(void)
{
	return (struct params){
		.type = IBV_QPT_RC,
		.cap = { .max_send_wr = 64,
			 .max_recv_wr = 64,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 64 },
		.cqe = 256,
		.bytes = 65536,
		.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			     IBV_ACCESS_REMOTE_ATOMIC,
		.qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.timeout = 18, /* a second, eight times: a peer that waits for a processor has not gone */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 12,
		.max_rd_atomic = 8,
		.max_dest_rd_atomic = 8,
	};
}

static struct ibv_context *open_device(void)
{
	const char *wanted = getenv("VERBATIM_TEST_DEVICE");
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	CHECK(list);
	for (int i = 0; list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), wanted ? wanted : "vb_lo"))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return ctx;
}

void *rc_map(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

void rc_needs_holes(void)
{
	if (!kernel_tells_what_is_mapped())
		rc_skip(NOT_TOLD);
}

void rc_take_away(void *pages, size_t bytes)
{
	CHECK(mmap(pages, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
	      pages);
}

/* Memory of the library is shared with a file, which a program's own private memory is not. */
uint32_t rc_which_are_moved(const void *const *at, unsigned n)
{
	char line[4300], perms[5];
	unsigned long first, last, inode;
	uint32_t moved = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		CHECK_EQ(sscanf(line, "%lx-%lx %4s %*s %*s %lu", &first, &last, perms, &inode), 4);
		for (unsigned k = 0; inode && perms[3] == 's' && k < n; k++)
			if (first <= (uintptr_t)at[k] && (uintptr_t)at[k] < last)
				moved |= 1u << k;
	}
	fclose(f);
	return moved;
}

bool rc_is_moved(const void *at) { return rc_which_are_moved(&at, 1); }

struct ibv_qp *rc_make_qp(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->scq, .recv_cq = e->rcq, .srq = e->srq, .cap = e->p.cap, .qp_type = e->p.type,
		.sq_sig_all = e->p.sig_all,
	};
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);
	CHECK(qp);
	return qp;
}

void rc_open(struct end *e, const struct params *p)
{
	e->p = *p;
	CHECK(e->ctx = open_device());
	CHECK(e->pd = ibv_alloc_pd(e->ctx));
	if (p->channel)
		CHECK(e->channel = ibv_create_comp_channel(e->ctx));
	CHECK(e->scq = ibv_create_cq(e->ctx, p->cqe, NULL, e->channel, 0));
	CHECK(e->rcq = ibv_create_cq(e->ctx, p->cqe, NULL, e->channel, 0));
	if (p->srq_wr) {
		struct ibv_srq_init_attr attr = { .attr = { .max_wr = p->srq_wr, .max_sge = 4 } };
		CHECK(e->srq = ibv_create_srq(e->pd, &attr));
	}
	e->qp = rc_make_qp(e);
	e->buf = rc_map(p->bytes);
	CHECK(e->mr = ibv_reg_mr(e->pd, e->buf, p->bytes, p->mr_access));
}

void rc_start(struct end *e, const struct params *p)
{
	rc_open(e, p);
	e->peer = rc_connect(e, e->qp);
}

void rc_close(struct end *e)
{
	if (e->qp)
		CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	if (e->srq)
		CHECK_EQ(ibv_destroy_srq(e->srq), 0);
	CHECK_EQ(ibv_destroy_cq(e->scq), 0);
	CHECK_EQ(ibv_destroy_cq(e->rcq), 0);
	if (e->channel)
		CHECK_EQ(ibv_destroy_comp_channel(e->channel), 0);
	CHECK_EQ(ibv_dereg_mr(e->mr), 0);
	munmap(e->buf, e->p.bytes);
	CHECK_EQ(ibv_dealloc_pd(e->pd), 0);
	CHECK_EQ(ibv_close_device(e->ctx), 0);
}

void rc_finish(struct end *e)
{
	meet(e);
	rc_close(e);
}

/* ---- connection ---- */

/*
 * Another one for each connection of a queue pair: what a network still has of the last ones must
 * not fit into the next. So any sixteen in a row are at least 2^20 apart, more than a connection
 * uses. (A hash of the number is not enough: once in a thousand connections it is near the last
 * one.)
 */
static _Atomic(uint32_t) connections[1024];

uint32_t rc_psn(const struct ibv_qp *qp, const struct end *e)
{
	enum { APART = 0x110000 };
	uint32_t nth = connections[qp->qp_num % 1024];
	return (rc_hash(e->seed + qp->qp_num + e->passive) + nth * APART) & 0xffffff;
}

struct card rc_swap_cards(struct end *e, struct ibv_qp *qp)
{
	connections[qp->qp_num % 1024]++;
	struct card mine = { .qpn = qp->qp_num,
			     .psn = rc_psn(qp, e),
			     .rkey = e->mr->rkey,
			     .addr = (uintptr_t)e->buf,
			     .bytes = e->p.bytes },
		    theirs;
	CHECK_EQ(ibv_query_gid(e->ctx, 1, 0, &mine.gid), 0);
	tell_bytes(e, &mine, sizeof(mine));
	hear_bytes(e, &theirs, sizeof(theirs));
	return theirs;
}

int rc_to_init(struct end *e, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = e->p.qp_access };
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int rc_to_rtr(struct end *e, struct ibv_qp *qp, const struct card *peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = e->p.max_dest_rd_atomic,
		.min_rnr_timer = e->p.min_rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = peer->gid, .hop_limit = 64 } },
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &a, mask);
}

int rc_to_rts(struct end *e, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = e->p.timeout,
		.retry_cnt = e->p.retry_cnt,
		.rnr_retry = e->p.rnr_retry,
		.sq_psn = rc_psn(qp, e),
		.max_rd_atomic = e->p.max_rd_atomic,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &a, mask);
}

int rc_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };
	return ibv_modify_qp(qp, &a, IBV_QP_STATE);
}

enum ibv_qp_state rc_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(qp, &a, IBV_QP_STATE, &init), 0);
	return a.qp_state;
}

struct card rc_connect(struct end *e, struct ibv_qp *qp)
{
	struct card peer = rc_swap_cards(e, qp);
	CHECK_EQ(rc_to_init(e, qp), 0);
	CHECK_EQ(rc_to_rtr(e, qp, &peer), 0);
	CHECK_EQ(rc_to_rts(e, qp), 0);
	meet(e);
	return peer;
}

void rc_reconnect(struct end *e)
{
	meet(e);
	CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
	meet(e);
	e->peer = rc_connect(e, e->qp);
}

/* ---- beside the connection ---- */

void tell_bytes(struct end *e, const void *bytes, size_t n)
{
	CHECK_EQ(write(e->sock, bytes, n), n);
}

void hear_bytes(struct end *e, void *bytes, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t part = read(e->sock, (char *)bytes + got, n - got);
		if (part < 0 && errno == EINTR)
			continue;
		if (part <= 0)
			rc_fail(__FILE__, __LINE__, "the other end has gone");
		got += part;
	}
}

void tell(struct end *e, uint64_t value)
{
	tell_bytes(e, &value, sizeof(value));
}

uint64_t hear(struct end *e)
{
	uint64_t value;
	hear_bytes(e, &value, sizeof(value));
	return value;
}

void meet(struct end *e)
{
	tell(e, 0x6d656574);
	CHECK_EQ(hear(e), 0x6d656574);
}

/* ---- work ---- */

int rc_post(struct end *e, const struct op *op)
{
	struct ibv_sge one = { (uintptr_t)e->buf + op->at, op->len, op->lkey ? op->lkey : e->mr->lkey };
	struct ibv_send_wr *bad = NULL, wr = {
		.wr_id = op->id,
		.sg_list = op->sge ? op->sge : &one,
		.num_sge = op->sge ? op->nsge : 1,
		.opcode = op->opcode,
		.send_flags = op->flags | (op->quiet ? 0 : IBV_SEND_SIGNALED),
		.imm_data = htonl(op->imm),
	};
	uint64_t remote = e->peer.addr + op->remote_at;
	uint32_t rkey = op->rkey ? op->rkey : e->peer.rkey;
	if (op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	    op->opcode == IBV_WR_FLUSH) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = op->compare;
		wr.wr.atomic.swap = op->swap;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	int err = ibv_post_send(op->qp ? op->qp : e->qp, &wr, &bad);
	CHECK(err ? bad == &wr : !bad);
	return err;
}

int rc_post_recv(struct end *e, struct ibv_qp *qp, uint64_t id, uint64_t at, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + at, len, e->mr->lkey };
	struct ibv_recv_wr *bad = NULL, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	int err = qp ? ibv_post_recv(qp, &wr, &bad) : ibv_post_srq_recv(e->srq, &wr, &bad);
	CHECK(err ? bad == &wr : !bad);
	return err;
}

void rc_recv(struct end *e, uint64_t id, uint64_t at, uint32_t len)
{
	CHECK_EQ(rc_post_recv(e, e->srq ? NULL : e->qp, id, at, len), 0);
}

/* Who has waited for some milliseconds waits for a timeout, and leaves the processor to other tests. */
struct ibv_wc rc_wait(struct ibv_cq *cq)
{
	enum { MANY_POLLS = 50000, NAP_US = 500 };
	struct ibv_wc wc;
	uint64_t end = deadline();
	for (unsigned polls = 1;; polls++) {
		int n = ibv_poll_cq(cq, 1, &wc);
		CHECK(n >= 0);
		if (n)
			return wc;
		if (polls > MANY_POLLS)
			usleep(NAP_US);
		else if (polls % 64 == 0)
			sched_yield();
		if (polls % 1024 == 0 && rc_now_ms() > end)
			rc_fail(__FILE__, __LINE__, "a completion within a minute");
	}
}

struct ibv_wc rc_expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = rc_wait(cq);
	if (wc.status != status)
		fprintf(stderr, "# wr_id %llu: %s\n", (unsigned long long)wc.wr_id,
			ibv_wc_status_str(wc.status));
	CHECK_EQ(wc.status, status);
	CHECK_EQ(wc.wr_id, id);
	return wc;
}

void rc_expect_none(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	for (int i = 0; i < 100; i++)
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
}

bool rc_readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}

void rc_expect_cq_event(struct end *e, struct ibv_cq *cq)
{
	struct ibv_cq *got;
	void *context;
	CHECK_EQ(ibv_get_cq_event(e->channel, &got, &context), 0);
	CHECK(got == cq);
	ibv_ack_cq_events(cq, 1);
}

struct ibv_async_event rc_expect_event(struct end *e, enum ibv_event_type type)
{
	struct ibv_async_event event;
	do {
		CHECK(rc_readable(e->ctx->async_fd, PATIENCE_MS));
		CHECK_EQ(ibv_get_async_event(e->ctx, &event), 0);
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST && type != IBV_EVENT_COMM_EST);
	CHECK_EQ(event.event_type, type);
	return event;
}

void rc_expect_no_event(struct end *e)
{
	struct ibv_async_event event;
	if (!rc_readable(e->ctx->async_fd, 0))
		return;
	CHECK_EQ(ibv_get_async_event(e->ctx, &event), 0);
	fprintf(stderr, "# unexpected: %s\n", ibv_event_type_str(event.event_type));
	rc_fail(__FILE__, __LINE__, "an asynchronous event");
}

/* ---- data ---- */

/* Steele, Lea, Flood: SplitMix64's finalizer. */
uint64_t rc_hash(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

uint64_t rc_random(uint64_t *state)
{
	return rc_hash((*state)++);
}

uint32_t rc_below(uint64_t *state, uint32_t limit)
{
	return limit ? rc_random(state) % limit : 0;
}

/*
 * What the peer writes into memory by one-sided operations is in order for a program that was told so by the
 * peer, which ThreadSanitizer cannot see when the peer is another process: so these look at memory behind its
 * back.
 */
#define UNWATCHED __attribute__((no_sanitize("thread")))

UNWATCHED void rc_fill(void *to, size_t n, uint64_t seed)
{
	uint8_t *p = to;
	uint64_t base = rc_hash(seed);
	for (size_t i = 0; i < n; i += 8) {
		uint64_t word = rc_hash(base + i);
		if (n - i >= 8)
			memcpy(p + i, &word, 8);
		for (size_t b = i; n - i < 8 && b < n; b++, word >>= 8)
			p[b] = (uint8_t)word;
	}
}

UNWATCHED void rc_set(void *to, size_t n, uint8_t value)
{
	volatile uint8_t *p = to;
	for (size_t i = 0; i < n; i++)
		p[i] = value;
}

UNWATCHED uint8_t rc_byte(const void *at)
{
	return *(const volatile uint8_t *)at;
}

/* A word that need not be aligned. */
typedef volatile uint64_t __attribute__((aligned(1))) any_word;

UNWATCHED uint64_t rc_word(const void *at)
{
	return *(const any_word *)at;
}

UNWATCHED void rc_set_word(void *at, uint64_t value)
{
	*(any_word *)at = value;
}

UNWATCHED void rc_verify_at(const char *file, int line, const void *at, size_t n, uint64_t seed)
{
	const uint8_t *p = at;
	uint64_t base = rc_hash(seed), found;
	bool right = true;
	for (size_t i = 0; right && i < n; i += 8) {
		uint64_t word = rc_hash(base + i);
		if (n - i >= 8) {
			memcpy(&found, p + i, 8);
			right = found == word;
		}
		for (size_t b = i; n - i < 8 && b < n; b++, word >>= 8)
			right &= p[b] == (uint8_t)word;
		if (!right)
			fprintf(stderr, "# wrong data within bytes %zu to %zu of %zu\n", i, i + 7, n);
	}
	if (!right)
		rc_fail(file, line, "the data");
}

UNWATCHED void rc_verify_byte_at(const char *file, int line, const void *at, size_t n, uint8_t value)
{
	const uint8_t *p = at;
	for (size_t i = 0; i < n; i++) {
		if (p[i] == value)
			continue;
		fprintf(stderr, "# byte %zu of %zu is 0x%02x, not 0x%02x\n", i, n, p[i], value);
		rc_fail(file, line, "untouched memory");
	}
}
