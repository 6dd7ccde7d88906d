/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors by the book: the status of the request that is at fault, the flush behind it, and what the other end
 * learns.
 */
#include "rc.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SMALL = 8, LARGE = 100000, BUFFER = 256 * 1024 };

static struct params error_params(void)
{
	struct params p = params();
	p.bytes = BUFFER;
	return p;
}

/* Both ends' QPs go through RESET to RTS again, so that many errors are tried on one pair. */
static void reconnect(struct end *e)
{
	meet(e);
	CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
	rc_expect_none(e->scq);
	rc_expect_none(e->rcq);
	meet(e);
	e->peer = rc_connect(e, e->qp);
}

/* ---- local errors ---- */

/* A region that is not good for what it is used for. */
struct bad_region {
	const char *what;
	struct ibv_sge sge;
	bool for_reading, for_writing; /* by the adapter: is it bad for that? */
};

struct regions {
	struct ibv_pd *other_pd;
	struct ibv_mr *other, *read_only, *gone, *whole;
	uint8_t *memory;
};

static struct regions make_regions(struct end *e)
{
	struct regions r = { .memory = rc_map(BUFFER) };
	CHECK(r.other_pd = ibv_alloc_pd(e->ctx));
	CHECK(r.other = ibv_reg_mr(r.other_pd, r.memory, BUFFER, e->p.mr_access));
	CHECK(r.read_only = ibv_reg_mr(e->pd, r.memory, BUFFER, IBV_ACCESS_REMOTE_READ));
	CHECK(r.gone = ibv_reg_mr(e->pd, r.memory, BUFFER, e->p.mr_access));
	CHECK(r.whole = ibv_reg_mr(e->pd, r.memory + 4096, BUFFER - 8192, e->p.mr_access));
	return r;
}

static void free_regions(struct regions *r)
{
	CHECK_EQ(ibv_dereg_mr(r->other), 0);
	CHECK_EQ(ibv_dereg_mr(r->read_only), 0);
	CHECK_EQ(ibv_dereg_mr(r->whole), 0);
	CHECK_EQ(ibv_dealloc_pd(r->other_pd), 0);
	munmap(r->memory, BUFFER);
}

enum { NBAD = 8 };

static void list_bad(struct bad_region *bad, const struct regions *r, uint32_t gone, uint32_t n)
{
	uint64_t start = (uintptr_t)r->memory, inner = start + 4096, end = start + BUFFER - 4096;
	struct bad_region list[NBAD] = {
		{ "a key that never was", { start, n, 0x12345601 }, true, true },
		{ "key 0", { start, n, 0 }, true, true },
		{ "another domain's key", { start, n, r->other->lkey }, true, true },
		{ "a deregistered key", { start, n, gone }, true, true },
		{ "a byte before the region", { inner - 1, n, r->whole->lkey }, true, true },
		{ "a byte beyond the region", { end - n + 1, n, r->whole->lkey }, true, true },
		{ "the end of the address space", { UINT64_MAX - n + 2, n, r->whole->lkey }, true, true },
		{ "a region without local write", { start, n, r->read_only->lkey }, false, true },
	};
	memcpy(bad, list, sizeof(list));
}

/*
 * A request with a bad entry, alone or last in the list, fails as LOC_PROT_ERR; nothing is written anywhere,
 * the other end lives.
 */
static void try_bad_request(struct end *e, const struct bad_region *bad, enum ibv_wr_opcode opcode,
			    bool behind_another, bool queued)
{
	struct ibv_sge sge[2] = { { (uintptr_t)e->buf, 16, e->mr->lkey }, bad->sge };
	if (e->passive) {
		rc_set(e->buf, BUFFER, 0xee);
		for (int i = 0; i < 3; i++)
			rc_recv(e, i, 128 * 1024, 128 * 1024);
		meet(e);
		meet(e);
		VERIFY_BYTE(e->buf, 128 * 1024, 0xee);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
		rc_expect_no_event(e);
		return;
	}
	meet(e);
	if (queued)
		POST(e, .id = 5, .opcode = IBV_WR_SEND, .len = 8);
	POST(e, .id = 6, .opcode = opcode, .sge = behind_another ? sge : &sge[1], .nsge = 1 + behind_another,
	     .quiet = true);
	if (queued)
		rc_expect(e->scq, 5, IBV_WC_SUCCESS);
	struct ibv_wc wc = rc_wait(e->scq);
	if (wc.status != IBV_WC_LOC_PROT_ERR)
		fprintf(stderr, "# opcode %d, %s, %u bytes: %s\n", opcode, bad->what, bad->sge.length,
			ibv_wc_status_str(wc.status));
	CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(wc.wr_id, 6);
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	CHECK_EQ(rc_post(e, &(struct op){ .id = 7, .opcode = IBV_WR_SEND, .len = 8 }), 0);
	rc_expect(e->scq, 7, IBV_WC_WR_FLUSH_ERR);
	meet(e);
}

static void try_bad_requests(struct end *e, enum ibv_wr_opcode opcode)
{
	bool fetches =
		opcode != IBV_WR_SEND && opcode != IBV_WR_RDMA_WRITE && opcode != IBV_WR_RDMA_WRITE_WITH_IMM;
	bool atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct params p = error_params();
	struct bad_region bad[NBAD];
	rc_start(e, &p);
	struct regions r = make_regions(e);
	uint32_t gone = r.gone->lkey;
	CHECK_EQ(ibv_dereg_mr(r.gone), 0);
	for (unsigned variant = 0; variant < 8; variant++) {
		uint32_t n = variant & 1 ? LARGE : SMALL;
		if (atomic && variant & 3)
			continue; /* always 8 bytes */
		list_bad(bad, &r, gone, n);
		for (int i = 0; i < NBAD; i++) {
			if (!(fetches ? bad[i].for_writing : bad[i].for_reading))
				continue;
			try_bad_request(e, &bad[i], opcode, variant & 2, variant & 4);
			reconnect(e);
		}
	}
	free_regions(&r);
	rc_finish(e);
}

static void local__bad_memory_of_a_send(struct end *e) { try_bad_requests(e, IBV_WR_SEND); }
static void local__bad_memory_of_a_write(struct end *e) { try_bad_requests(e, IBV_WR_RDMA_WRITE); }
static void local__bad_memory_of_a_write_with_immediate(struct end *e)
{
	try_bad_requests(e, IBV_WR_RDMA_WRITE_WITH_IMM);
}
static void local__bad_memory_of_a_read(struct end *e) { try_bad_requests(e, IBV_WR_RDMA_READ); }
static void local__bad_memory_of_a_cmp_swap(struct end *e) { try_bad_requests(e, IBV_WR_ATOMIC_CMP_AND_SWP); }
static void local__bad_memory_of_a_fetch_add(struct end *e)
{
	try_bad_requests(e, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

/* What else is wrong with a request whose memory is bad, all of which the peer would have to find. */
enum beside { NO_RECEIVE, SHORT_RECEIVE, BAD_RKEY, PEER_SILENT, NBESIDE };

static const char *const beside_names[] = {
	"no receive", "a receive that is too short", "a bad rkey", "a peer that is silent",
};

static void put_in_place(struct end *e, enum beside wrong)
{
	rc_set(e->buf, e->p.bytes, 0xee);
	if (wrong == SHORT_RECEIVE)
		rc_recv(e, 1, 0, 4);
	if (wrong == BAD_RKEY)
		rc_recv(e, 1, 0, (uint32_t)e->p.bytes);
	if (wrong == PEER_SILENT)
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
}

/* The last eight bytes of the request are bad; the peer has seen nothing of it. */
static void try_wrong_twice(struct end *e, enum beside wrong, enum ibv_wr_opcode opcode, uint32_t n)
{
	struct ibv_sge sge[2] = { { (uintptr_t)e->buf, n - 8, e->mr->lkey },
				  { (uintptr_t)e->buf, 8, 0x12345601 } };
	if (e->passive)
		put_in_place(e, wrong);
	meet(e);
	if (!e->passive) {
		POST(e, .id = 6, .opcode = opcode, .sge = n > 8 ? sge : &sge[1], .nsge = n > 8 ? 2 : 1,
		     .rkey = wrong == BAD_RKEY ? 0x7654301 : 0, .imm = 0x7654301, .quiet = true);
		struct ibv_wc wc = rc_wait(e->scq);
		if (wc.status != IBV_WC_LOC_PROT_ERR)
			fprintf(stderr, "# opcode %d, %u bytes, and %s: %s\n", opcode, n, beside_names[wrong],
				ibv_wc_status_str(wc.status));
		CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(wc.wr_id, 6);
	}
	meet(e);
	if (e->passive) {
		VERIFY_BYTE(e->buf, e->p.bytes, 0xee);
		CHECK_EQ(rc_state(e->qp), wrong == PEER_SILENT ? IBV_QPS_ERR : IBV_QPS_RTS);
		rc_expect_none(e->rcq);
		rc_expect_no_event(e);
	}
}

/*
 * The requester's own check comes before all that the peer sees or decides, for a part of a request as for
 * all of it.
 */
static void local__bad_memory_whatever_else_is_wrong(struct end *e)
{
	enum { SEVERAL_SLICES = 3 << 20 };
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,	   IBV_WR_SEND_WITH_IMM,       IBV_WR_SEND_WITH_INV,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	static const uint32_t lengths[] = { SMALL, 5000, SEVERAL_SLICES };
	struct params p = error_params();
	p.bytes = SEVERAL_SLICES;
	p.timeout = 8;
	p.retry_cnt = p.rnr_retry = 1;
	rc_start(e, &p);
	for (int wrong = 0; wrong < NBESIDE; wrong++)
		for (unsigned i = 0; i < sizeof(opcodes) / sizeof(*opcodes); i++)
			for (unsigned k = 0; k < sizeof(lengths) / sizeof(*lengths); k++) {
				try_wrong_twice(e, wrong, opcodes[i], lengths[k]);
				reconnect(e);
			}
	rc_finish(e);
}

/* A receive whose memory is bad: LOC_PROT_ERR here, REM_OP_ERR at the sender, both QPs in the error state. */
static void local__bad_memory_of_a_receive(struct end *e)
{
	struct params p = error_params();
	struct bad_region bad[NBAD];
	rc_start(e, &p);
	struct regions r = make_regions(e);
	uint32_t gone = r.gone->lkey;
	CHECK_EQ(ibv_dereg_mr(r.gone), 0);
	for (unsigned variant = 0; variant < 2; variant++) {
		uint32_t n = variant ? LARGE : SMALL;
		list_bad(bad, &r, gone, n);
		for (int i = 0; i < NBAD; i++) {
			if (e->passive) {
				struct ibv_recv_wr *failed,
					wr = { .wr_id = 1, .sg_list = &bad[i].sge, .num_sge = 1 };
				CHECK_EQ(ibv_post_recv(e->qp, &wr, &failed), 0);
				rc_recv(e, 2, 0, 8);
				meet(e);
				rc_expect(e->rcq, 1, IBV_WC_LOC_PROT_ERR);
				rc_expect(e->rcq, 2, IBV_WC_WR_FLUSH_ERR);
			} else {
				meet(e);
				POST(e, .id = 3, .opcode = IBV_WR_SEND, .len = n);
				rc_expect(e->scq, 3, IBV_WC_REM_OP_ERR);
			}
			CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
			reconnect(e);
		}
	}
	free_regions(&r);
	rc_finish(e);
}

/*
 * What a receive has failed with stays so, though the program stops its queue pair as soon as the sender
 * knows.
 */
static void local__receive_that_failed_before_the_end(struct end *e)
{
	struct params p = error_params();
	rc_start(e, &p);
	for (int round = 0; round < 30; round++) {
		if (e->passive) {
			rc_recv(e, 1, 0, SMALL - 1);
			meet(e);
			hear(e);
			CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
			rc_expect(e->rcq, 1, IBV_WC_LOC_LEN_ERR);
		} else {
			meet(e);
			POST(e, .id = 3, .opcode = IBV_WR_SEND, .len = SMALL);
			rc_expect(e->scq, 3, IBV_WC_REM_INV_REQ_ERR);
			tell(e, 0);
		}
		reconnect(e);
	}
	rc_finish(e);
}

/*
 * Memory that the program unmapped without deregistering it: an error as with a bad key, not a crash. Where
 * the library has put its pages into memory that peers map, they are there still.
 */
static void local__unmapped_memory(struct end *e)
{
	rc_needs_holes();
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	struct params p = error_params();
	rc_start(e, &p);
	void *memory = rc_map(LARGE);
	struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, LARGE, e->p.mr_access);
	CHECK(mr);
	rc_take_away(memory, LARGE);
	struct ibv_sge sge = { (uintptr_t)memory, LARGE, mr->lkey };
	for (int i = 0; i < 3; i++) {
		if (e->passive)
			rc_recv(e, 1, 0, LARGE);
		meet(e);
		if (!e->passive) {
			POST(e, .id = 3, .opcode = opcodes[i], .sge = &sge, .nsge = 1);
			struct ibv_wc wc = rc_wait(e->scq);
			CHECK_EQ(wc.wr_id, 3);
			CHECK(wc.status == IBV_WC_LOC_PROT_ERR ||
			      (wc.status == IBV_WC_SUCCESS && !e->copies_by_vm));
		}
		reconnect(e);
	}
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	munmap(memory, LARGE);
	rc_finish(e);
}

/* The same of an atomic's buffer, once the peer's word is mapped here. */
static void local__unmapped_buffer_of_an_atomic(struct end *e)
{
	enum { TIMES = 5000 };
	rc_needs_holes();
	struct params p = error_params();
	rc_start(e, &p);
	if (!e->passive) {
		void *memory = rc_map(LARGE);
		struct ibv_mr *mr = ibv_reg_mr(e->pd, memory, LARGE, e->p.mr_access);
		CHECK(mr);
		for (int i = 0; i < TIMES; i++) {
			POST(e, .id = i, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 8, .compare = 1);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		rc_take_away(memory, LARGE);
		struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
		POST(e, .id = 3, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sge = &sge, .nsge = 1);
		struct ibv_wc wc = rc_wait(e->scq);
		CHECK_EQ(wc.wr_id, 3);
		CHECK(wc.status == IBV_WC_LOC_PROT_ERR || (wc.status == IBV_WC_SUCCESS && !e->copies_by_vm));
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		munmap(memory, LARGE);
	}
	rc_finish(e);
}

/* What the queue itself shows to be wrong. */
static void local__requests_that_make_no_sense(struct end *e)
{
	struct params p = error_params();
	p.max_rd_atomic = 0;
	rc_start(e, &p);
	if (!e->passive) {
		POST(e, .id = 1, .opcode = IBV_WR_RDMA_READ, .len = 8);
		rc_expect(e->scq, 1, IBV_WC_LOC_QP_OP_ERR);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	}
	e->p.max_rd_atomic = 4;
	reconnect(e);
	if (!e->passive) {
		struct ibv_sge read = { (uintptr_t)e->buf, 8, e->mr->lkey };
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_RDMA_READ,
						  .sge = &read,
						  .nsge = 1,
						  .flags = IBV_SEND_INLINE }),
			 EINVAL);
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = 77, .len = 8 }), EINVAL);
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 4 }), EINVAL);
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .len = 16 }), EINVAL);
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
						  .sge = &read,
						  .nsge = 0 }),
			 EINVAL);
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_ATOMIC_WRITE, .len = 4 }), EINVAL);
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_FLUSH, .len = 8 }), EINVAL);
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_FLUSH, .compare = 1ull << 32 }), EINVAL);
		CHECK_EQ(rc_post(e, &(struct op){ .opcode = IBV_WR_SEND, .len = 8, .flags = 1 << 30 }),
			 EINVAL);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
	}
	rc_finish(e);
}

/* ---- remote errors ---- */

enum { KEY, GONE, BEFORE, BEYOND, WRAPS, REGION_RIGHT, QP_RIGHT, DOMAIN, NREMOTE };
static const char *const remote_names[] = {
	"a key that never was",		  "a deregistered key",		  "a byte before the region",
	"a byte beyond the region",	  "the end of the address space", "a region without the right",
	"a queue pair without the right", "another domain's key",
};

static unsigned right_for(enum ibv_wr_opcode opcode)
{
	switch ((int)opcode) {
	case IBV_WR_RDMA_READ:
		return IBV_ACCESS_REMOTE_READ;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_ACCESS_REMOTE_WRITE;
	default:
		return IBV_ACCESS_REMOTE_ATOMIC;
	}
}

/* What a queue pair is not there for is an invalid request, whatever its key. */
static enum ibv_wc_status refused_as(int fault)
{
	return fault == QP_RIGHT ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR;
}

static enum ibv_event_type event_of(int fault)
{
	return fault == QP_RIGHT ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR;
}

/* The target: an address and a key that must not be good for it. */
struct target {
	uint64_t addr;
	uint32_t rkey;
};

static void refuse(struct end *e, int fault, enum ibv_wr_opcode opcode, uint32_t n, bool queued,
		   struct regions *r)
{
	struct target t;
	if (e->passive) {
		uint64_t start = (uintptr_t)r->memory, inner = start + 4096, end = start + BUFFER - 4096;
		t = (struct target){ inner, r->whole->rkey };
		struct ibv_mr *extra = NULL;
		rc_set(r->memory, BUFFER, 0xee);
		if (fault == KEY)
			t.rkey = 0x7654301;
		if (fault == GONE) {
			CHECK(extra = ibv_reg_mr(e->pd, r->memory, BUFFER, e->p.mr_access));
			t.rkey = extra->rkey;
			CHECK_EQ(ibv_dereg_mr(extra), 0);
			extra = NULL;
		}
		if (fault == BEFORE)
			t.addr = inner - 8;
		if (fault == BEYOND)
			t.addr = (end - n + 8) & ~7ull;
		if (fault == WRAPS)
			t.addr = (UINT64_MAX - n + 8) & ~7ull;
		if (fault == REGION_RIGHT) {
			CHECK(extra = ibv_reg_mr(e->pd, r->memory, BUFFER,
						 e->p.mr_access & ~right_for(opcode)));
			t.rkey = extra->rkey;
		}
		if (fault == DOMAIN)
			t.rkey = r->other->rkey;
		rc_recv(e, 1, 0, 64);
		rc_recv(e, 2, 0, 64);
		rc_recv(e, 3, 0, 64);
		tell_bytes(e, &t, sizeof(t));
		if (queued)
			rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
		bool uses_receive = opcode == IBV_WR_RDMA_WRITE_WITH_IMM && n == SMALL && fault != QP_RIGHT;
		if (!uses_receive)
			CHECK(rc_expect_event(e, event_of(fault)).element.qp == e->qp);
		for (int i = queued ? 2 : 1; i <= 3; i++, uses_receive = false)
			rc_expect(e->rcq, i, uses_receive ? IBV_WC_LOC_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
		rc_expect_no_event(e);
		VERIFY_BYTE(r->memory, BUFFER, 0xee);
		if (extra)
			CHECK_EQ(ibv_dereg_mr(extra), 0);
		return;
	}
	hear_bytes(e, &t, sizeof(t));
	if (queued)
		POST(e, .id = 5, .opcode = IBV_WR_SEND, .len = 8);
	POST(e, .id = 6, .opcode = opcode, .len = n, .remote_at = t.addr - e->peer.addr, .rkey = t.rkey,
	     .quiet = true);
	POST(e, .id = 7, .opcode = IBV_WR_SEND, .len = 8);
	if (queued)
		rc_expect(e->scq, 5, IBV_WC_SUCCESS);
	struct ibv_wc wc = rc_wait(e->scq);
	if (wc.status != refused_as(fault))
		fprintf(stderr, "# opcode %d, %s, %u bytes: %s\n", opcode, remote_names[fault], n,
			ibv_wc_status_str(wc.status));
	CHECK_EQ(wc.status, refused_as(fault));
	CHECK_EQ(wc.wr_id, 6);
	rc_expect(e->scq, 7, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
}

static void refuse_all(struct end *e, enum ibv_wr_opcode opcode)
{
	bool atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct params p = error_params();
	rc_start(e, &p);
	struct regions r = make_regions(e);
	CHECK_EQ(ibv_dereg_mr(r.gone), 0);
	for (int fault = 0; fault < NREMOTE; fault++) {
		for (unsigned variant = 0; variant < 4; variant++) {
			if (atomic && variant & 1)
				continue;
			e->p.qp_access = p.qp_access & ~(fault == QP_RIGHT ? right_for(opcode) : 0);
			reconnect(e);
			refuse(e, fault, opcode, variant & 1 ? LARGE : SMALL, variant & 2, &r);
		}
	}
	free_regions(&r);
	rc_finish(e);
}

static void remote__refused_write(struct end *e) { refuse_all(e, IBV_WR_RDMA_WRITE); }
static void remote__refused_write_with_immediate(struct end *e) { refuse_all(e, IBV_WR_RDMA_WRITE_WITH_IMM); }
static void remote__refused_read(struct end *e) { refuse_all(e, IBV_WR_RDMA_READ); }
static void remote__refused_cmp_swap(struct end *e) { refuse_all(e, IBV_WR_ATOMIC_CMP_AND_SWP); }
static void remote__refused_fetch_add(struct end *e) { refuse_all(e, IBV_WR_ATOMIC_FETCH_AND_ADD); }

/* Atomics that are not aligned, and READs of a QP that takes none, are invalid requests. */
static void remote__invalid_requests(struct end *e)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_RDMA_READ };
	struct params p = error_params();
	rc_start(e, &p);
	for (int i = 0; i < 3; i++) {
		e->p.max_dest_rd_atomic = opcodes[i] == IBV_WR_RDMA_READ ? 0 : 8;
		reconnect(e);
		rc_set(e->buf, 64, 0xee);
		meet(e);
		if (!e->passive) {
			POST(e, .id = 1, .opcode = opcodes[i], .at = 64, .len = 8, .remote_at = 4,
			     .compare = 1, .swap = 2);
			rc_expect(e->scq, 1, IBV_WC_REM_INV_REQ_ERR);
		} else {
			rc_expect_event(e, IBV_EVENT_QP_REQ_ERR);
			VERIFY_BYTE(e->buf, 64, 0xee);
		}
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	}
	rc_finish(e);
}

/*
 * ---- registered memory that the program takes away without a word: the request fails, and nobody ends ----
 */

enum { UNMAPPED, CUT_SHORT, LOSSES };
static const uint32_t lost_lengths[] = { 8, 100, 3000, LARGE };

struct lost {
	int fd; /* of a file */
	void *memory;
	struct ibv_mr *mr;
};

static struct lost register_to_lose(struct end *e, int how)
{
	struct lost l = { .fd = -1 };
	if (how == UNMAPPED) {
		l.memory = rc_map(LARGE);
	} else {
		l.fd = memfd_create("cut short", MFD_CLOEXEC);
		CHECK(l.fd >= 0 && !ftruncate(l.fd, LARGE));
		l.memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, l.fd, 0);
		CHECK(l.memory != MAP_FAILED);
	}
	CHECK(l.mr = ibv_reg_mr(e->pd, l.memory, LARGE, e->p.mr_access));
	return l;
}

static void lose(const struct lost *l)
{
	if (l->fd < 0)
		rc_take_away(l->memory, LARGE);
	else
		CHECK_EQ(ftruncate(l->fd, 0), 0);
}

static void let_go(const struct lost *l)
{
	CHECK_EQ(ibv_dereg_mr(l->mr), 0);
	munmap(l->memory, LARGE);
	if (l->fd >= 0)
		close(l->fd);
}

static void ask_for_lost(struct end *e, int how, enum ibv_wr_opcode opcode, uint32_t n)
{
	struct target t;
	if (!e->passive) {
		hear_bytes(e, &t, sizeof(t));
		POST(e, .id = 6, .opcode = opcode, .len = n, .remote_at = t.addr - e->peer.addr,
		     .rkey = t.rkey);
		rc_expect(e->scq, 6, IBV_WC_REM_ACCESS_ERR);
		return;
	}
	struct lost l = register_to_lose(e, how);
	lose(&l);
	t = (struct target){ (uintptr_t)l.memory, l.mr->rkey };
	tell_bytes(e, &t, sizeof(t));
	CHECK(rc_expect_event(e, IBV_EVENT_QP_ACCESS_ERR).element.qp == e->qp);
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	let_go(&l);
}

static void remote__memory_taken_away(struct end *e)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
						      IBV_WR_ATOMIC_WRITE };
	struct params p = error_params();
	rc_needs_holes();
	rc_start(e, &p);
	for (int how = 0; how < LOSSES; how++)
		for (unsigned o = 0; o < sizeof(opcodes) / sizeof(opcodes[0]); o++)
			for (unsigned i = 0; i < (o < 2 ? sizeof(lost_lengths) / sizeof(lost_lengths[0]) : 1);
			     i++) {
				ask_for_lost(e, how, opcodes[o], lost_lengths[i]);
				reconnect(e);
			}
	rc_finish(e);
}

/*
 * Whatever was found out about the region while it was there. Peers that have mapped it go on using its
 * pages, as a NIC would.
 */
static void remote__memory_taken_away_after_use(struct end *e)
{
	struct target t;
	struct params p = error_params();
	rc_start(e, &p);
	if (e->passive) {
		struct lost l = register_to_lose(e, UNMAPPED);
		t = (struct target){ (uintptr_t)l.memory, l.mr->rkey };
		tell_bytes(e, &t, sizeof(t));
		hear(e);
		lose(&l);
		tell(e, 0);
		if (hear(e) != IBV_WC_SUCCESS)
			rc_expect_event(e, IBV_EVENT_QP_ACCESS_ERR);
		let_go(&l);
	} else {
		hear_bytes(e, &t, sizeof(t));
		for (uint64_t i = 0; i < 200; i++) {
			POST(e, .id = i, .opcode = IBV_WR_RDMA_WRITE, .len = 8,
			     .remote_at = t.addr - e->peer.addr, .rkey = t.rkey);
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		}
		bool maps = !e->threads && !e->wire && !e->copies_by_vm && !e->copies_by_link;
		tell(e, 0);
		hear(e);
		POST(e, .id = 6, .opcode = IBV_WR_RDMA_WRITE, .len = 8, .remote_at = t.addr - e->peer.addr,
		     .rkey = t.rkey);
		struct ibv_wc wc = rc_wait(e->scq);
		CHECK(wc.wr_id == 6 &&
		      (wc.status == IBV_WC_REM_ACCESS_ERR || (maps && wc.status == IBV_WC_SUCCESS)));
		tell(e, wc.status);
	}
	rc_finish(e);
}

static void receive_into(struct end *e, const struct lost *l)
{
	struct ibv_sge sge = { (uintptr_t)l->memory, LARGE, l->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
	CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
}

/* The first messages arrive. */
static void receive_lost(struct end *e, int how, unsigned good, uint32_t n)
{
	if (!e->passive) {
		meet(e);
		for (unsigned i = 0; i < good; i++) {
			POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = n);
			rc_expect(e->scq, 2, IBV_WC_SUCCESS);
			meet(e);
		}
		POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = n);
		rc_expect(e->scq, 2, IBV_WC_REM_OP_ERR);
		return;
	}
	struct lost l = register_to_lose(e, how);
	if (!good)
		lose(&l);
	receive_into(e, &l);
	meet(e);
	for (unsigned i = 0; i < good; i++) {
		rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
		if (i + 1 == good)
			lose(&l);
		receive_into(e, &l);
		meet(e);
	}
	rc_expect(e->rcq, 1, IBV_WC_LOC_PROT_ERR);
	let_go(&l);
}

static void receive__memory_taken_away(struct end *e)
{
	struct params p = error_params();
	rc_needs_holes();
	rc_start(e, &p);
	for (int how = 0; how < LOSSES; how++)
		for (unsigned i = 0; i < sizeof(lost_lengths) / sizeof(lost_lengths[0]); i++)
			for (unsigned good = 0; good <= 40; good += 40) {
				receive_lost(e, how, good, lost_lengths[i]);
				reconnect(e);
			}
	rc_finish(e);
}

/* ---- the responder's faults, one by one (IB vol. 1, 9.9.3) ---- */

enum cause {
	BAD_RECEIVE,
	SHORT,
	NONE_POSTED,
	NO_KEY,
	NO_KEY_NOR_RECEIVE,
	NO_RIGHT,
	MISALIGNED,
	NO_READS,
	KEY_TO_INVALIDATE,
};
enum { ALIVE = -1, NO_EVENT = -2 };

struct responder_fault {
	const char *what;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	enum cause cause;
	enum ibv_wc_status requester;
	/* enum ibv_wc_status of the oldest receive; ALIVE: it is not used, and the responder goes on */
	int receive;
	int event;   /* enum ibv_event_type; NO_EVENT: a completion tells */
};

#define FLUSH   IBV_WC_WR_FLUSH_ERR
#define INVALID IBV_WC_REM_INV_REQ_ERR
#define ACCESS  IBV_WC_REM_ACCESS_ERR
#define RNR     IBV_WC_RNR_RETRY_EXC_ERR

static const struct responder_fault responder_faults[] = {
	{ "A: a receive whose memory is bad", IBV_WR_SEND, SMALL, BAD_RECEIVE, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR, NO_EVENT },
	{ "A: the same in a later packet", IBV_WR_SEND, LARGE, BAD_RECEIVE, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR, NO_EVENT },
	{ "longer than the receive", IBV_WR_SEND, SMALL, SHORT, INVALID, IBV_WC_LOC_LEN_ERR, NO_EVENT },
	{ "the same in a later packet", IBV_WR_SEND, LARGE, SHORT, INVALID, IBV_WC_LOC_LEN_ERR, NO_EVENT },
	{ "B: no receive for a SEND", IBV_WR_SEND, SMALL, NONE_POSTED, RNR, ALIVE, NO_EVENT },
	{ "B: no receive for a WRITE", IBV_WR_RDMA_WRITE_WITH_IMM, SMALL, NONE_POSTED, RNR, ALIVE, NO_EVENT },
	{ "B: no receive, of several packets", IBV_WR_RDMA_WRITE_WITH_IMM, LARGE, NONE_POSTED, RNR, ALIVE, NO_EVENT },
	{ "B before C: no receive and a bad key", IBV_WR_RDMA_WRITE_WITH_IMM, SMALL, NO_KEY_NOR_RECEIVE, RNR, ALIVE, NO_EVENT },
	{ "C: the key of a WRITE", IBV_WR_RDMA_WRITE, SMALL, NO_KEY, ACCESS, FLUSH, IBV_EVENT_QP_ACCESS_ERR },
	{ "C: the key of a READ", IBV_WR_RDMA_READ, SMALL, NO_KEY, ACCESS, FLUSH, IBV_EVENT_QP_ACCESS_ERR },
	{ "C: the key of an atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, SMALL, NO_KEY, ACCESS, FLUSH, IBV_EVENT_QP_ACCESS_ERR },
	{ "C: of a WRITE that has a receive", IBV_WR_RDMA_WRITE_WITH_IMM, SMALL, NO_KEY, ACCESS, IBV_WC_LOC_ACCESS_ERR, NO_EVENT },
	{ "C: of one that has none yet", IBV_WR_RDMA_WRITE_WITH_IMM, LARGE, NO_KEY, ACCESS, FLUSH, IBV_EVENT_QP_ACCESS_ERR },
	{ "C: a WRITE not allowed", IBV_WR_RDMA_WRITE, SMALL, NO_RIGHT, INVALID, FLUSH, IBV_EVENT_QP_REQ_ERR },
	{ "C: a READ not allowed", IBV_WR_RDMA_READ, SMALL, NO_RIGHT, INVALID, FLUSH, IBV_EVENT_QP_REQ_ERR },
	{ "C: an atomic not allowed", IBV_WR_ATOMIC_CMP_AND_SWP, SMALL, NO_RIGHT, INVALID, FLUSH, IBV_EVENT_QP_REQ_ERR },
	{ "C: before a receive is used", IBV_WR_RDMA_WRITE_WITH_IMM, SMALL, NO_RIGHT, INVALID, FLUSH, IBV_EVENT_QP_REQ_ERR },
	{ "C: a misaligned atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, SMALL, MISALIGNED, INVALID, FLUSH, IBV_EVENT_QP_REQ_ERR },
	{ "C: too many READs", IBV_WR_RDMA_READ, SMALL, NO_READS, INVALID, FLUSH, IBV_EVENT_QP_REQ_ERR },
	{ "J: a key that is not to be invalidated", IBV_WR_SEND_WITH_INV, SMALL, KEY_TO_INVALIDATE, IBV_WC_SUCCESS, INVALID, NO_EVENT },
	{ "J: in the last packet", IBV_WR_SEND_WITH_INV, LARGE, KEY_TO_INVALIDATE, IBV_WC_SUCCESS, INVALID, NO_EVENT },
};

#undef FLUSH
#undef INVALID
#undef ACCESS
#undef RNR

/* Receives go to the middle of the buffer, WRITEs to its beginning. */
static void post_receives_for(struct end *e, const struct responder_fault *f)
{
	enum { AT = BUFFER / 2 };
	uint64_t at = (uintptr_t)e->buf + AT;
	struct ibv_sge sge[2] = { { at, f->length - 4, e->mr->lkey }, { at, LARGE, e->mr->lkey } };
	struct ibv_recv_wr *bad, wr = { .wr_id = 1, .sg_list = sge, .num_sge = 2 };
	if (f->cause == NONE_POSTED || f->cause == NO_KEY_NOR_RECEIVE)
		return;
	if (f->cause == BAD_RECEIVE)
		sge[1].lkey = 0x12345601;
	if (f->cause == SHORT)
		wr.num_sge = 1;
	if (f->cause == KEY_TO_INVALIDATE)
		sge[0].length = LARGE;
	CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
	rc_recv(e, 2, AT, LARGE);
}

static void expect_by(const struct responder_fault *f, struct ibv_cq *cq, uint64_t id,
		      enum ibv_wc_status status)
{
	struct ibv_wc wc = rc_wait(cq);
	if (wc.wr_id != id || wc.status != status)
		fprintf(stderr, "# %s: wr_id %d: %s\n", f->what, (int)wc.wr_id, ibv_wc_status_str(wc.status));
	CHECK_EQ(wc.wr_id, id);
	CHECK_EQ(wc.status, status);
}

static void answer_fault(struct end *e, const struct responder_fault *f)
{
	rc_set(e->buf, BUFFER, 0xee);
	post_receives_for(e, f);
	meet(e);
	if (f->receive == ALIVE) {
		meet(e);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_RTS);
		rc_expect_none(e->rcq);
	} else {
		if (f->event != NO_EVENT)
			CHECK(rc_expect_event(e, f->event).element.qp == e->qp);
		expect_by(f, e->rcq, 1, f->receive);
		expect_by(f, e->rcq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
		meet(e);
	}
	rc_expect_no_event(e);
	if (f->cause == KEY_TO_INVALIDATE)
		VERIFY(e->buf + BUFFER / 2, f->length, e->seed);
	if (f->cause != NONE_POSTED) /* what a WRITE of several packets has written stays */
		VERIFY_BYTE(e->buf, BUFFER / 2, 0xee);
}

static void make_fault(struct end *e, const struct responder_fault *f)
{
	bool has_key = f->cause != NO_KEY && f->cause != NO_KEY_NOR_RECEIVE;
	rc_fill(e->buf, f->length, e->seed);
	meet(e);
	POST(e, .id = 6, .opcode = f->opcode, .len = f->length, .remote_at = f->cause == MISALIGNED ? 4 : 0,
	     .rkey = has_key ? 0 : 0x7654301, .imm = 0x7654301);
	POST(e, .id = 7, .opcode = IBV_WR_SEND, .len = 8);
	expect_by(f, e->scq, 6, f->requester);
	/* A responder that has gone to the error state without a NAK answers no more. */
	expect_by(f, e->scq, 7, f->requester == IBV_WC_SUCCESS ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
	meet(e);
}

static void responder__faults(struct end *e)
{
	struct params p = error_params();
	p.rnr_retry = 1;
	rc_start(e, &p);
	for (size_t i = 0; i < sizeof(responder_faults) / sizeof(*responder_faults); i++) {
		const struct responder_fault *f = &responder_faults[i];
		e->p.qp_access = p.qp_access & ~(f->cause == NO_RIGHT ? right_for(f->opcode) : 0);
		e->p.max_dest_rd_atomic = f->cause == NO_READS ? 0 : p.max_dest_rd_atomic;
		/* there, the retries are waited for */
		e->p.timeout = f->cause == KEY_TO_INVALIDATE ? 15 : p.timeout;
		e->p.retry_cnt = f->cause == KEY_TO_INVALIDATE ? 1 : p.retry_cnt;
		reconnect(e);
		if (e->passive)
			answer_fault(e, f);
		else
			make_fault(e, f);
	}
	rc_finish(e);
}

/* ---- peers that do not answer ---- */

enum silence { PEER_ERR, PEER_RESET, PEER_INIT, PEER_DESTROYED, PEER_ELSEWHERE, NSILENCES };

static void silence_peer(struct end *e, enum silence how)
{
	switch (how) {
	case PEER_ERR:
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		break;
	case PEER_RESET:
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		break;
	case PEER_INIT:
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		CHECK_EQ(rc_to_init(e, e->qp), 0);
		break;
	case PEER_DESTROYED:
		CHECK_EQ(ibv_destroy_qp(e->qp), 0);
		e->qp = rc_make_qp(e);
		break;
	case PEER_ELSEWHERE: /* connected again, to another */
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		CHECK_EQ(rc_to_init(e, e->qp), 0);
		e->peer.qpn ^= 1;
		CHECK_EQ(rc_to_rtr(e, e->qp, &e->peer), 0);
		break;
	case NSILENCES:
		break;
	}
}

/* Retries run out: RETRY_EXC_ERR, whether anything was sent before or not. */
static void silent_peer__exhausts_the_retries(struct end *e)
{
	struct params p = error_params();
	p.timeout = 8; /* 1 ms */
	p.retry_cnt = 2;
	rc_start(e, &p);
	for (int i = 0; i < 2 * NSILENCES; i++) {
		bool used = i % 2;
		if (used && e->passive) {
			rc_recv(e, 1, 0, 8);
			tell(e, 0);
			rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
		} else if (used) {
			hear(e);
			POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8);
			rc_expect(e->scq, 1, IBV_WC_SUCCESS);
		}
		meet(e);
		if (e->passive)
			silence_peer(e, i / 2);
		meet(e);
		if (!e->passive) {
			POST(e, .id = 2, .opcode = i % 3 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, .len = 8);
			POST(e, .id = 3, .opcode = IBV_WR_SEND, .len = 8);
			rc_expect(e->scq, 2, IBV_WC_RETRY_EXC_ERR);
			rc_expect(e->scq, 3, IBV_WC_WR_FLUSH_ERR);
			CHECK_EQ(rc_state(e->qp), IBV_QPS_ERR);
		}
		reconnect(e);
	}
	rc_finish(e);
}

/* What was on its way when the peer fell silent fails too. */
static void silent_peer__with_sends_on_their_way(struct end *e)
{
	struct params p = error_params();
	p.timeout = 8;
	p.retry_cnt = 2;
	rc_start(e, &p);
	for (int i = 0; i < NSILENCES; i++) {
		if (!e->passive) {
			for (int id = 0; id < 4; id++) /* no receive is posted: they stay */
				POST(e, .id = id, .opcode = IBV_WR_SEND, .len = id % 2 ? LARGE : SMALL);
			rc_pause_ms(2);
		}
		meet(e);
		if (e->passive)
			silence_peer(e, i);
		for (int id = 0; !e->passive && id < 4; id++)
			rc_expect(e->scq, id, id ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
		reconnect(e);
	}
	rc_finish(e);
}

/* A QP number that nobody has, of this process and of none. */
static void silent_peer__that_never_was(struct end *e)
{
	static const uint32_t numbers[] = { 1, 0xffffff, 0xabcdef };
	struct params p = error_params();
	p.timeout = 8;
	p.retry_cnt = 1;
	rc_open(e, &p);
	struct card peer = rc_swap_cards(e, e->qp);
	for (int i = 0; i < 3; i++) {
		peer.qpn = numbers[i];
		CHECK_EQ(rc_to_init(e, e->qp), 0);
		CHECK_EQ(rc_to_rtr(e, e->qp, &peer), 0);
		CHECK_EQ(rc_to_rts(e, e->qp), 0);
		POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect(e->scq, i, IBV_WC_RETRY_EXC_ERR);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
	}
	rc_finish(e);
}

/* The other end comes to RTR only after the send was posted, within the retries. */
static void silent_peer__that_comes_in_time(struct end *e)
{
	struct params p = error_params();
	p.timeout = 17; /* half a second, eight times */
	rc_open(e, &p);
	for (int i = 0; i < 3; i++) {
		e->peer = rc_swap_cards(e, e->qp);
		CHECK_EQ(rc_to_init(e, e->qp), 0);
		if (e->passive) {
			rc_recv(e, 1, 0, 64);
			hear(e);
			rc_pause_ms(5);
			CHECK_EQ(rc_to_rtr(e, e->qp, &e->peer), 0);
			rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
			VERIFY(e->buf, 64, e->seed + i);
			rc_expect_event(e, IBV_EVENT_COMM_EST);
			CHECK_EQ(rc_to_rts(e, e->qp), 0);
		} else {
			CHECK_EQ(rc_to_rtr(e, e->qp, &e->peer), 0);
			CHECK_EQ(rc_to_rts(e, e->qp), 0);
			rc_fill(e->buf, 64, e->seed + i);
			POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = 64);
			tell(e, 0);
			rc_expect(e->scq, 2, IBV_WC_SUCCESS);
		}
		meet(e);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		meet(e);
	}
	rc_finish(e);
}

/* Packets that an earlier connection left on the wire raise no COMM_EST. */
static void silent_peer__whose_packets_are_strays(struct end *e)
{
	struct params p = error_params();
	p.timeout = 12; /* 16 ms */
	p.retry_cnt = 1;
	rc_open(e, &p);
	for (int i = 0; e->wire && i < 2; i++) { /* within a host nothing is under way */
		e->peer = rc_swap_cards(e, e->qp);
		e->peer.psn = (e->peer.psn + (i ? 1000 : -1000)) & 0xffffff; /* early, or like a duplicate */
		CHECK_EQ(rc_to_init(e, e->qp), 0);
		CHECK_EQ(rc_to_rtr(e, e->qp, &e->peer), 0);
		if (e->passive) {
			rc_recv(e, 1, 0, 64);
			meet(e);
			hear(e);
			rc_expect_none(e->rcq);
			rc_expect_no_event(e);
		} else {
			CHECK_EQ(rc_to_rts(e, e->qp), 0);
			meet(e);
			POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = 64);
			rc_expect(e->scq, 2, IBV_WC_RETRY_EXC_ERR);
			tell(e, 0);
		}
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
		meet(e);
	}
	rc_finish(e);
}

/* ---- a requester that comes back alone ---- */

static void connect_alone(struct end *e)
{
	CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
	CHECK_EQ(rc_to_init(e, e->qp), 0);
	CHECK_EQ(rc_to_rtr(e, e->qp, &e->peer), 0);
	CHECK_EQ(rc_to_rts(e, e->qp), 0);
}

/* The peer expects the same message as before. */
static void returning_requester__whose_message_was_not_taken(struct end *e)
{
	struct params p = error_params();
	p.rnr_retry = 1;
	rc_start(e, &p);
	if (!e->passive) {
		POST(e, .id = 1, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect(e->scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		connect_alone(e);
	}
	meet(e);
	if (e->passive)
		rc_recv(e, 2, 0, 8);
	meet(e);
	if (e->passive) {
		rc_expect(e->rcq, 2, IBV_WC_SUCCESS);
	} else {
		POST(e, .id = 3, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect(e->scq, 3, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

/* To the peer, the message is one that it has had; whatever becomes of it, something does. */
static void returning_requester__whose_message_was_taken(struct end *e)
{
	struct params p = error_params();
	p.timeout = 8;
	p.retry_cnt = 2;
	rc_start(e, &p);
	if (e->passive)
		rc_recv(e, 1, 0, 8);
	meet(e);
	if (e->passive) {
		rc_expect(e->rcq, 1, IBV_WC_SUCCESS);
		rc_recv(e, 2, 0, 8);
	} else {
		POST(e, .id = 3, .opcode = IBV_WR_SEND, .len = 8);
		rc_expect(e->scq, 3, IBV_WC_SUCCESS);
		connect_alone(e);
	}
	meet(e);
	if (!e->passive) {
		POST(e, .id = 4, .opcode = IBV_WR_SEND, .len = 8);
		struct ibv_wc wc = rc_wait(e->scq);
		CHECK_EQ(wc.wr_id, 4);
		CHECK(e->wire || wc.status == IBV_WC_RETRY_EXC_ERR);
	}
	meet(e);
	rc_expect_none(e->rcq);
	rc_finish(e);
}

/* ---- the error state ---- */

/* Everything that was posted comes back flushed, in order, with its own wr_id, quiet or not. */
static void flush__in_order(struct end *e)
{
	enum { N = 20 };
	struct params p = error_params();
	p.timeout = 0; /* for ever */
	rc_start(e, &p);
	for (int i = 0; i < N; i++) {
		if (!e->passive) /* the other end posts no receives, so these wait */
			POST(e, .id = 1000 - i, .opcode = i % 3 ? IBV_WR_SEND : IBV_WR_RDMA_READ, .len = 8,
			     .quiet = i % 2);
		if (!e->passive)
			rc_recv(e, 2000 - i, 0, 8);
	}
	int done = 0;
	if (!e->passive)
		rc_pause_ms(2);
	if (!e->passive) {
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		for (int i = 0; i < N; i++) {
			struct ibv_wc wc = rc_wait(e->scq);
			done += wc.status == IBV_WC_SUCCESS;
			CHECK_EQ(wc.wr_id, 1000 - i);
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR || (i == 0 && wc.status == IBV_WC_SUCCESS));
			CHECK_EQ(wc.qp_num, e->qp->qp_num);
		}
		for (int i = 0; i < N; i++)
			rc_expect(e->rcq, 2000 - i, IBV_WC_WR_FLUSH_ERR);
		CHECK(done <= 1);
		/* Posts in the error state are taken and flushed at once. */
		for (int i = 0; i < 3 * N; i++) {
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 8, .quiet = i % 2, .lkey = 0xbad);
			rc_recv(e, i, 0, 8);
			rc_expect(e->scq, i, IBV_WC_WR_FLUSH_ERR);
			rc_expect(e->rcq, i, IBV_WC_WR_FLUSH_ERR);
		}
	}
	rc_finish(e);
}

static void flush__from_each_state(struct end *e)
{
	struct params p = error_params();
	rc_open(e, &p);
	e->peer = rc_swap_cards(e, e->qp);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		CHECK_EQ(rc_to_init(e, e->qp), 0);
		if (state >= IBV_QPS_RTR)
			CHECK_EQ(rc_to_rtr(e, e->qp, &e->peer), 0);
		if (state >= IBV_QPS_RTS)
			CHECK_EQ(rc_to_rts(e, e->qp), 0);
		for (int i = 0; i < 5; i++)
			rc_recv(e, i, 0, 8);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		for (int i = 0; i < 5; i++)
			rc_expect(e->rcq, i, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_ERR), 0);
		rc_expect_none(e->rcq);
		CHECK_EQ(rc_to(e->qp, IBV_QPS_RESET), 0);
	}
	rc_finish(e);
}

static void post__in_states_that_take_none(struct end *e)
{
	struct params p = error_params();
	struct op send = { .id = 1, .opcode = IBV_WR_SEND, .len = 8 };
	rc_open(e, &p);
	struct card peer = rc_swap_cards(e, e->qp);
	CHECK_EQ(rc_post(e, &send), EINVAL);
	CHECK_EQ(rc_post_recv(e, e->qp, 1, 0, 8), EINVAL);
	CHECK_EQ(rc_to_init(e, e->qp), 0);
	CHECK_EQ(rc_post(e, &send), EINVAL);
	rc_recv(e, 2, 1024, 8);
	CHECK_EQ(rc_to_rtr(e, e->qp, &peer), 0);
	CHECK_EQ(rc_post(e, &send), EINVAL);
	rc_recv(e, 3, 1024, 8);
	CHECK_EQ(rc_to_rts(e, e->qp), 0);
	rc_expect_none(e->scq);
	rc_expect_none(e->rcq);
	meet(e);
	/* What was refused was not queued; what was taken is used. */
	POST(e, .id = 4, .opcode = IBV_WR_SEND, .len = 8);
	POST(e, .id = 5, .opcode = IBV_WR_SEND, .len = 8);
	rc_expect(e->scq, 4, IBV_WC_SUCCESS);
	rc_expect(e->scq, 5, IBV_WC_SUCCESS);
	rc_expect(e->rcq, 2, IBV_WC_SUCCESS);
	rc_expect(e->rcq, 3, IBV_WC_SUCCESS);
	rc_finish(e);
}

/* A RESET forgets completions that nobody has polled, and what is posted. */
static void reset__forgets(struct end *e)
{
	struct params p = error_params();
	rc_start(e, &p);
	for (int i = 0; i < 10; i++)
		rc_recv(e, i, 1024, 8);
	meet(e);
	for (int i = 0; i < 5; i++)
		POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 8);
	rc_expect(e->scq, 0, IBV_WC_SUCCESS);
	reconnect(e); /* finds both CQs empty */
	for (int i = 0; i < 64; i++)
		rc_recv(e, 100 + i, 1024, 8); /* the whole queue is free again */
	meet(e);
	for (int i = 0; i < 64; i++)
		POST(e, .id = 200 + i, .opcode = IBV_WR_SEND, .len = 8);
	for (int i = 0; i < 64; i++) {
		rc_expect(e->scq, 200 + i, IBV_WC_SUCCESS);
		rc_expect(e->rcq, 100 + i, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

/* ---- CQ overrun ---- */

static void cq__overrun(struct end *e)
{
	struct params p = error_params();
	p.cqe = 4;
	p.cap.max_send_wr = p.cap.max_recv_wr = 1024;
	rc_start(e, &p);
	int n = (e->passive ? e->rcq : e->scq)->cqe + 1;
	CHECK(n <= 512);
	for (int i = 0; e->passive && i < 600; i++)
		rc_recv(e, i, 1024, 8);
	meet(e);
	if (!e->passive) {
		for (int i = 0; i < n; i++)
			POST(e, .id = i, .opcode = IBV_WR_RDMA_WRITE, .len = 8);
		struct ibv_async_event event = rc_expect_event(e, IBV_EVENT_CQ_ERR);
		CHECK(event.element.cq == e->scq);
		for (int i = 0; i < n - 1; i++)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
		struct ibv_wc wc;
		CHECK(ibv_poll_cq(e->scq, 1, &wc) < 0);
		/* A request that is refused breaks nothing, whatever has become of the CQ. */
		struct ibv_qp *other = rc_make_qp(e);
		CHECK_EQ(rc_post(e, &(struct op){ .qp = other, .opcode = IBV_WR_SEND, .len = 8 }), EINVAL);
		CHECK_EQ(rc_state(other), IBV_QPS_RESET);
		CHECK_EQ(ibv_destroy_qp(other), 0);
	}
	rc_finish(e);
}

/* More messages than the receiver's queue has room for. The receiver ends, though it posts nothing more. */
static void cq__overrun_by_messages(struct end *e)
{
	struct params p = error_params();
	p.cqe = 4;
	p.cap.max_send_wr = p.cap.max_recv_wr = 1024;
	rc_start(e, &p);
	int room = e->rcq->cqe;
	CHECK(room < 512);
	for (int i = 0; e->passive && i <= room; i++)
		rc_recv(e, i, 1024, 8);
	meet(e);
	for (int i = 0; !e->passive && i <= room; i++) {
		POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 8);
		if (i < room)
			rc_expect(e->scq, i, IBV_WC_SUCCESS);
	}
	if (e->passive) {
		struct ibv_async_event event = rc_expect_event(e, IBV_EVENT_CQ_ERR);
		CHECK(event.element.cq == e->rcq);
		while (rc_state(e->qp) != IBV_QPS_ERR)
			rc_pause_ms(1);
		for (int i = 0; i < room; i++)
			rc_expect(e->rcq, i, IBV_WC_SUCCESS);
	}
	rc_finish(e);
}

/* A receiver posts no request that could notice it: it answers no more, and says so. */
static void cq__overrun_of_a_receiver(struct end *e)
{
	struct params p = error_params();
	p.cqe = 4;
	p.cap.max_recv_wr = 1024;
	p.timeout = 8;
	p.retry_cnt = 2;
	p.rnr_retry = 7;
	rc_start(e, &p);
	for (int i = 0; e->passive && i < 600; i++)
		rc_recv(e, i, 1024, 8);
	CHECK(e->rcq->cqe <= 512);
	meet(e);
	if (e->passive) {
		struct ibv_async_event event = rc_expect_event(e, IBV_EVENT_CQ_ERR);
		CHECK(event.element.cq == e->rcq);
		while (rc_state(e->qp) != IBV_QPS_ERR)
			rc_pause_ms(1);
	} else {
		struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
		/* once all receives are used, the next message waits until the receiver breaks */
		for (int i = 0; wc.status == IBV_WC_SUCCESS; i++) {
			POST(e, .id = i, .opcode = IBV_WR_SEND, .len = 8);
			wc = rc_wait(e->scq);
			CHECK_EQ(wc.wr_id, i);
		}
		CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
	}
	rc_finish(e);
}

static const struct body bodies[] = {
	BODY(local__bad_memory_of_a_send),
	BODY(local__bad_memory_of_a_write),
	BODY(local__bad_memory_of_a_write_with_immediate),
	BODY(local__bad_memory_of_a_read),
	BODY(local__bad_memory_of_a_cmp_swap),
	BODY(local__bad_memory_of_a_fetch_add),
	BODY(local__bad_memory_whatever_else_is_wrong),
	BODY(local__bad_memory_of_a_receive),
	BODY(local__receive_that_failed_before_the_end),
	BODY(local__unmapped_memory),
	BODY(local__unmapped_buffer_of_an_atomic),
	BODY(local__requests_that_make_no_sense),
	BODY(remote__refused_write),
	BODY(remote__refused_write_with_immediate),
	BODY(remote__refused_read),
	BODY(remote__refused_cmp_swap),
	BODY(remote__refused_fetch_add),
	BODY(remote__invalid_requests),
	BODY(remote__memory_taken_away),
	BODY(remote__memory_taken_away_after_use),
	BODY(receive__memory_taken_away),
	BODY(responder__faults),
	BODY(silent_peer__exhausts_the_retries),
	BODY(silent_peer__with_sends_on_their_way),
	BODY(silent_peer__that_never_was),
	BODY(silent_peer__that_comes_in_time),
	BODY(silent_peer__whose_packets_are_strays),
	BODY(returning_requester__whose_message_was_not_taken),
	BODY(returning_requester__whose_message_was_taken),
	BODY(flush__in_order),
	BODY(flush__from_each_state),
	BODY(post__in_states_that_take_none),
	BODY(reset__forgets),
	BODY(cq__overrun),
	BODY(cq__overrun_by_messages),
	BODY(cq__overrun_of_a_receiver),
};
RC_MAIN(bodies)
