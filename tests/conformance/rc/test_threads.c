/* SPDX-License-Identifier: BSD-2-Clause */
/* Several threads on one object, and memory that is taken away under fire. */
#include "rc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- several threads post and poll ---- */

enum { POSTERS = 4, EACH = 800, PLACES = 4, SLOT = 2048 };

struct crowd {
	struct end *e;
	atomic_uint completed;
	atomic_bool in_use[POSTERS][PLACES];
};

struct poster {
	struct crowd *crowd;
	unsigned number;
};

static uint32_t crowd_length(unsigned n)
{
	return 1 + n * 37 % SLOT;
}

static void *post_messages(void *arg)
{
	struct poster *me = arg;
	struct end *e = me->crowd->e;
	for (unsigned n = 0; n < EACH; n++) {
		unsigned place = n % PLACES;
		uint64_t at = (me->number * PLACES + place) * SLOT;
		while (atomic_exchange(&me->crowd->in_use[me->number][place], true))
			sched_yield();
		rc_fill(e->buf + at, crowd_length(n), e->seed + me->number * EACH + n);
		struct op op = { .id = me->number << 8 | place,
				 .opcode = IBV_WR_SEND_WITH_IMM,
				 .at = at,
				 .len = crowd_length(n),
				 .imm = me->number << 16 | n };
		for (int err; (err = rc_post(e, &op));) {
			CHECK_EQ(err, ENOMEM);
			sched_yield();
		}
	}
	return NULL;
}

static void *poll_completions(void *arg)
{
	struct crowd *c = arg;
	struct ibv_wc wc[4];
	while (atomic_load(&c->completed) < POSTERS * EACH) {
		int n = ibv_poll_cq(c->e->scq, 4, wc);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
			atomic_bool *place = &c->in_use[wc[i].wr_id >> 8][wc[i].wr_id & 0xff];
			CHECK(atomic_exchange(place, false)); /* each completion is taken once */
		}
		atomic_fetch_add(&c->completed, n);
		if (!n)
			sched_yield();
	}
	return NULL;
}

static void receive_crowd(struct end *e)
{
	unsigned next[POSTERS] = { 0 };
	for (int i = 0; i < POSTERS * EACH; i++) {
		struct ibv_wc wc = rc_wait(e->rcq);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		unsigned from = ntohl(wc.imm_data) >> 16, n = ntohl(wc.imm_data) & 0xffff;
		CHECK(from < POSTERS);
		CHECK_EQ(n, next[from]++);
		CHECK_EQ(wc.byte_len, crowd_length(n));
		VERIFY(e->buf + wc.wr_id * SLOT, wc.byte_len, e->seed + from * EACH + n);
		rc_recv(e, wc.wr_id, wc.wr_id * SLOT, SLOT);
	}
}

static void threads__post_to_one_qp_and_poll_one_cq(struct end *e)
{
	struct params p = params();
	struct crowd *c = calloc(1, sizeof(*c));
	struct poster posters[POSTERS];
	pthread_t threads[POSTERS + 2];
	p.bytes = 32 * SLOT;
	p.cap.max_send_wr = 8; /* fewer than they want */
	rc_start(e, &p);
	for (int i = 0; e->passive && i < 32; i++)
		rc_recv(e, i, i * SLOT, SLOT);
	meet(e);
	if (e->passive) {
		receive_crowd(e);
	} else {
		c->e = e;
		for (unsigned i = 0; i < POSTERS; i++) {
			posters[i] = (struct poster){ c, i };
			CHECK(!pthread_create(&threads[i], NULL, post_messages, &posters[i]));
		}
		for (int i = 0; i < 2; i++)
			CHECK(!pthread_create(&threads[POSTERS + i], NULL, poll_completions, c));
		for (int i = 0; i < POSTERS + 2; i++)
			pthread_join(threads[i], NULL);
		CHECK_EQ(c->completed, POSTERS * EACH);
	}
	rc_finish(e);
	free(c);
}

/* One thread per QP, all on the same CQs. */
enum { PAIRS = 4, TURNS = 400 };

struct pair {
	struct end *e;
	struct ibv_qp *qp;
	struct card peer;
	unsigned number;
	atomic_uint *sent;
};

static void *post_on_own_qp(void *arg)
{
	struct pair *me = arg;
	struct end *e = me->e;
	struct end mine = *e;
	mine.peer = me->peer;
	for (unsigned n = 0; n < TURNS; n++) {
		uint64_t at = me->number * SLOT;
		while (atomic_load(&me->sent[me->number]) < n)
			sched_yield();
		rc_fill(e->buf + at, SLOT, e->seed + n);
		CHECK_EQ(rc_post(&mine, &(struct op){ .qp = me->qp,
						      .id = me->number,
						      .opcode = IBV_WR_RDMA_WRITE,
						      .at = at,
						      .len = SLOT,
						      .remote_at = 16384 + at }),
			 0);
	}
	return NULL;
}

static void threads__one_per_qp(struct end *e)
{
	struct params p = params();
	struct pair pairs[PAIRS];
	pthread_t threads[PAIRS];
	static atomic_uint counters[2][PAIRS];
	atomic_uint *sent = counters[e->passive];
	rc_open(e, &p);
	for (unsigned i = 0; i < PAIRS; i++) {
		struct ibv_qp *qp = rc_make_qp(e);
		struct card peer = rc_connect(e, qp);
		pairs[i] = (struct pair){ e, qp, peer, i, sent };
	}
	for (unsigned i = 0; i < PAIRS; i++)
		CHECK(!pthread_create(&threads[i], NULL, post_on_own_qp, &pairs[i]));
	for (unsigned n = 0; n < PAIRS * TURNS; n++) {
		struct ibv_wc wc = rc_wait(e->scq);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.qp_num, pairs[wc.wr_id].qp->qp_num);
		atomic_fetch_add(&sent[wc.wr_id], 1);
	}
	for (unsigned i = 0; i < PAIRS; i++)
		pthread_join(threads[i], NULL);
	meet(e);
	for (unsigned i = 0; i < PAIRS; i++) {
		VERIFY(e->buf + 16384 + i * SLOT, SLOT, e->seed + TURNS - 1);
		CHECK_EQ(ibv_destroy_qp(pairs[i].qp), 0);
	}
	rc_finish(e);
}

/* ---- memory that is taken away ---- */

enum { FIRE_ROUNDS = 24, REGION = 1 << 20 };

/* Posts one-sided requests to a region until one is refused. The queue is kept full. */
static void hammer(struct end *e, uint32_t rkey, uint64_t address, uint64_t *rng)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_RDMA_WRITE };
	unsigned posted = 0, done = 0;
	for (;;) {
		while (posted - done < 16) {
			enum ibv_wr_opcode opcode = opcodes[rc_below(rng, 3)];
			uint32_t n = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 :
				     rc_below(rng, 3)			   ? 64 :
									     REGION - 4096;
			POST(e, .id = posted++, .opcode = opcode, .at = n == 8 ? REGION : 0, .len = n,
			     .rkey = rkey, .compare = 1,
			     .remote_at = address - e->peer.addr + rc_below(rng, 500) * 8);
		}
		struct ibv_wc wc = rc_wait(e->scq);
		CHECK_EQ(wc.wr_id, done++);
		if (wc.status == IBV_WC_SUCCESS)
			continue;
		if (wc.status != IBV_WC_RETRY_EXC_ERR)
			CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
		while (done < posted)
			rc_expect(e->scq, done++, IBV_WC_WR_FLUSH_ERR);
		return;
	}
}

/* The memory belongs to the program alone now: what it writes there stays. */
static void expect_untouched(void *memory, uint64_t seed)
{
	rc_fill(memory, REGION, seed);
	rc_pause_ms(1);
	VERIFY(memory, REGION, seed);
}

enum withdrawal { BY_DEREG, BY_REREG, BY_ERROR, BY_RESET, BY_DESTROY };

static void withdraw(struct end *e, enum withdrawal how, struct ibv_mr **mr)
{
	switch (how) {
	case BY_DEREG:
		CHECK_EQ(ibv_dereg_mr(*mr), 0);
		*mr = NULL;
		break;
	case BY_REREG:
		CHECK_EQ(ibv_rereg_mr(*mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE),
			 0);
		break;
	case BY_ERROR:
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		break;
	case BY_RESET:
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		break;
	case BY_DESTROY:
		CHECK_EQ(ibv_destroy_qp(e->qp), 0);
		e->qp = NULL;
		break;
	}
}

static void withdraw_under_fire(struct end *e, enum withdrawal how)
{
	struct params p = params();
	uint64_t rng = e->seed + e->passive;
	p.bytes = 2 * REGION;
	p.timeout = 8;
	p.retry_cnt = 1;
	rc_start(e, &p);
	uint8_t *memory = rc_map(REGION);
	unsigned rounds = rc_times(FIRE_ROUNDS);
	for (unsigned i = 0; i < rounds; i++) {
		if (e->passive) {
			struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, REGION, p.mr_access);
			CHECK(mr);
			tell(e, mr->rkey);
			tell(e, (uintptr_t)memory);
			usleep(rc_below(&rng, 2000));
			withdraw(e, how, &mr);
			expect_untouched(memory, e->seed + i);
			if (mr)
				CHECK_EQ(ibv_dereg_mr(mr), 0);
		} else {
			uint32_t rkey = hear(e);
			uint64_t address = hear(e);
			hammer(e, rkey, address, &rng);
		}
		meet(e);
		if (!e->qp)
			e->qp = rc_make_qp(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		e->peer = rc_connect(e, e->qp);
	}
	munmap(memory, REGION);
	rc_finish(e);
}

static void withdraw__by_dereg(struct end *e) { withdraw_under_fire(e, BY_DEREG); }
static void withdraw__by_rereg(struct end *e) { withdraw_under_fire(e, BY_REREG); }
static void withdraw__by_error_state(struct end *e) { withdraw_under_fire(e, BY_ERROR); }
static void withdraw__by_reset(struct end *e) { withdraw_under_fire(e, BY_RESET); }
static void withdraw__by_destroy(struct end *e) { withdraw_under_fire(e, BY_DESTROY); }

/*
 * A region goes while a receive in it is being filled, or a send from it is being read: an error or a
 * success, and then silence.
 */
static void withdraw__of_queued_memory(struct end *e)
{
	struct params p = params();
	uint64_t rng = e->seed + e->passive;
	p.bytes = REGION;
	rc_start(e, &p);
	uint8_t *memory = rc_map(REGION);
	unsigned rounds = rc_times(FIRE_ROUNDS);
	for (unsigned i = 0; i < rounds; i++) {
		bool ours = i % 2 == e->passive; /* whose memory goes */
		struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, REGION, p.mr_access);
		CHECK(mr);
		struct ibv_sge sge = { (uintptr_t)(ours ? memory : e->buf), REGION,
				       ours ? mr->lkey : e->mr->lkey };
		if (e->passive) {
			struct ibv_recv_wr *bad, wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };
			CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
		}
		meet(e);
		if (!e->passive)
			POST(e, .id = i, .opcode = IBV_WR_SEND, .sge = &sge, .nsge = 1);
		if (ours)
			usleep(rc_below(&rng, 200));
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		if (ours)
			expect_untouched(memory, e->seed + i);
		if (!e->passive) {
			struct ibv_wc wc = rc_wait(e->scq);
			CHECK(wc.status == IBV_WC_SUCCESS ||
			      wc.status == (ours ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR));
		}
		meet(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		e->peer = rc_connect(e, e->qp);
	}
	munmap(memory, REGION);
	rc_finish(e);
}

/* ---- memory of this side that goes while another thread moves bytes ---- */

enum {
	LONG = 256 * 1024, PAGE = 4096, MARK = 0x77,
	STALLS_AT = LONG / 2, /* behind what a post moves by itself */
	STALL_MS = 20,
};

/*
 * A page whose first user waits in the middle of a copy. Not on paths where the kernel may make the copy: it
 * does not wait for ordinary users' handlers.
 */
struct stall {
	int fd; /* of userfaultfd(2) */
	uint8_t *page;
	atomic_bool is_met;
};

static bool begin_stall(struct stall *s, uint8_t *page)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .range = { (uintptr_t)page, PAGE },
					 .mode = UFFDIO_REGISTER_MODE_MISSING };
	*s = (struct stall){ .page = page };
	s->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	return s->fd >= 0 && !ioctl(s->fd, UFFDIO_API, &api) &&
	       !madvise(page, PAGE, MADV_DONTNEED) && !ioctl(s->fd, UFFDIO_REGISTER, &range);
}

static void *let_go_on(void *arg)
{
	struct stall *s = arg;
	struct uffd_msg fault;
	struct uffdio_zeropage zero = { .range = { (uintptr_t)s->page, PAGE } };
	CHECK_EQ(read(s->fd, &fault, sizeof(fault)), sizeof(fault));
	atomic_store(&s->is_met, true);
	rc_pause_ms(STALL_MS);
	CHECK_EQ(ioctl(s->fd, UFFDIO_ZEROPAGE, &zero), 0);
	return NULL;
}

static void *poll_one(void *arg)
{
	struct end *e = arg;
	struct ibv_wc wc = rc_wait(e->scq);
	CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_LOC_PROT_ERR);
	return NULL;
}

/* Another thread carries out the request while this one deregisters its memory, and uses that. */
static void request_and_withdraw(struct end *e, enum ibv_wr_opcode opcode, uint8_t *memory)
{
	pthread_t poller, handler;
	struct stall stall;
	bool stalls = e->copies_by_link || e->wire;
	struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, LONG, e->p.mr_access);
	CHECK(mr);
	if (stalls && !begin_stall(&stall, memory + STALLS_AT))
		rc_skip("no userfaultfd for an ordinary user's own page faults");
	if (stalls)
		CHECK(!pthread_create(&handler, NULL, let_go_on, &stall));
	CHECK(!pthread_create(&poller, NULL, poll_one, e));
	struct ibv_sge sge = { (uintptr_t)memory, LONG, mr->lkey };
	POST(e, .id = 1, .opcode = opcode, .sge = &sge, .nsge = 1);
	while (stalls && !atomic_load(&stall.is_met))
		sched_yield();
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	rc_set(memory + STALLS_AT + PAGE, LONG - STALLS_AT - PAGE, MARK);
	pthread_join(poller, NULL);
	if (stalls) {
		pthread_join(handler, NULL);
		close(stall.fd);
	}
}

static void withdraw_meanwhile(struct end *e, enum ibv_wr_opcode opcode)
{
	struct params p = params();
	p.bytes = LONG;
	rc_start(e, &p);
	uint8_t *memory = rc_map(LONG);
	for (unsigned i = 0; i < 3; i++) {
		rc_set(e->buf, LONG, 0);
		rc_set(memory, LONG, 0);
		meet(e);
		if (!e->passive)
			request_and_withdraw(e, opcode, memory);
		meet(e);
		if (e->passive)
			VERIFY_BYTE(e->buf, LONG, 0);
		else
			VERIFY_BYTE(memory + STALLS_AT + PAGE, LONG - STALLS_AT - PAGE, MARK);
		rc_reconnect(e);
	}
	munmap(memory, LONG);
	rc_finish(e);
}

static void withdraw__of_what_a_read_fills(struct end *e) { withdraw_meanwhile(e, IBV_WR_RDMA_READ); }
static void withdraw__of_what_a_write_carries(struct end *e) { withdraw_meanwhile(e, IBV_WR_RDMA_WRITE); }

/* ---- control and traffic at once ---- */

static void *poll_until_told(void *arg)
{
	struct crowd *c = arg;
	struct ibv_wc wc;
	while (!atomic_load(&c->completed)) {
		CHECK(ibv_poll_cq(c->e->scq, 1, &wc) >= 0);
		CHECK(ibv_poll_cq(c->e->rcq, 1, &wc) >= 0);
	}
	return NULL;
}

/* QPs come, fail and go while other threads poll the CQs that they share. */
static void threads__poll_while_qps_come_and_go(struct end *e)
{
	enum { ROUNDS = 40 };
	struct params p = params();
	struct crowd *c = calloc(1, sizeof(*c));
	pthread_t thread;
	p.timeout = 8;
	p.retry_cnt = 1;
	rc_open(e, &p);
	c->e = e;
	CHECK(!pthread_create(&thread, NULL, poll_until_told, c));
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_qp *qp = rc_make_qp(e);
		e->peer = rc_connect(e, qp);
		for (int n = 0; n < 10; n++) {
			CHECK_EQ(rc_post_recv(e, qp, n, 4096 + n * 64, 64), 0);
			POST(e, .qp = qp, .id = n, .opcode = n % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE,
			     .len = 64, .remote_at = 1024);
		}
		if (i % 4 == 0)
			meet(e);
		if (i % 3 == 0)
			CHECK_EQ(rc_to(qp, IBV_QPS_ERR), 0);
		if (i % 3 == 1)
			CHECK_EQ(rc_to(qp, IBV_QPS_RESET), 0);
		CHECK_EQ(ibv_destroy_qp(qp), 0);
	}
	atomic_store(&c->completed, 1);
	pthread_join(thread, NULL);
	rc_finish(e);
	free(c);
}

static const struct body bodies[] = {
	BODY(threads__post_to_one_qp_and_poll_one_cq),
	BODY(threads__one_per_qp),
	BODY(threads__poll_while_qps_come_and_go),
	BODY(withdraw__by_dereg),
	BODY(withdraw__by_rereg),
	BODY(withdraw__by_error_state),
	BODY(withdraw__by_reset),
	BODY(withdraw__by_destroy),
	BODY(withdraw__of_queued_memory),
	BODY(withdraw__of_what_a_read_fills),
	BODY(withdraw__of_what_a_write_carries),
};
RC_MAIN(bodies)
