/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One mistake per function, which the checks are to name: `mistakes NAME wrong` makes it,
 * `mistakes NAME right` does the same without it. The functions are global so that traces have their names
 * whatever the system has. What is expected to be said: checks.py.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/tm_types.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../spin.h"
#include "world.h"

#define CASES(X) \
	X(send_buffer) X(send_buffer_later) X(send_buffer_wr) X(read_then_send) X(dead_lkey) X(never_a_key) \
	X(wrong_domain) X(not_writable) X(out_of_bounds) X(window_as_lkey) X(dead_rkey) X(rkey_rights) \
	X(rkey_bounds) \
	X(queue_pair_rights) X(flush_rights) X(window_rights) X(stale_window) X(unmapped_target) \
	X(unmapped_receive) X(cut_target) X(cut_receive) X(deregistered_under_way) \
	X(reregistered_under_way) X(datagram_header) \
	X(short_receive) X(short_datagram) X(no_receive) X(no_receive_for_long) X(receives_one_by_one) \
	X(queue_room) X(queue_overrun) X(queue_resize) X(never_signaled) X(never_polled) X(unseen_error) \
	X(lost_send) X(lost_sends) X(polled_late) X(flushed_posts) X(flushed_before) X(unacked_event) \
	X(psn_mismatch) X(mtu_mismatch) X(read_depth) X(silent_peer) X(two_pollers) X(two_posters) \
	X(missing_attributes) X(surplus_attribute) X(no_grh) X(parents_finding) X(no_grh_in_modify) \
	X(gid_index) X(inline_probe) X(dmabuf_probe) X(full_tag_list) X(rendezvous_before) X(lost_part) \
	X(failed_on_purpose) X(inline_too_long) X(too_many_entries) X(post_too_early) X(unmapped_send) X(no_read_depth) \
	X(wrong_number) X(short_unreliable) X(other_qkey) X(datagram_without_receive) \
	X(message_without_receive) X(stranger) X(too_many_shared_entries) X(no_send_room) X(no_receive_room) \
	X(unacked_qp_event) X(unacked_cq_event) X(unacked_srq_event) X(unasked_event) X(mtu_of_port) \
	X(gid_kind) X(send_buffer_beside_resized) X(two_at_one_place) X(too_many_to_remember)

#define X(name) void name(bool wrong);
CASES(X)
#undef X

static void sleep_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

/* ---- buffers ---- */

void send_buffer(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	receive(&w.b, 64);
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_SEND, 64, NULL)));
	if (wrong)
		w.a.buffer[5] = 1;
	done(w.a.cq);
	w.a.buffer[5] = 2;
	done(w.b.cq);
	end_world(&w);
}

/* The progress thread would have sent it long since. */
void send_buffer_later(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	receive(&w.b, 64);
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_SEND, 64, NULL)));
	spin_us(300);
	if (wrong)
		w.a.buffer[5] = 1;
	done(w.a.cq);
	done(w.b.cq);
	end_world(&w);
}

/* By the newer calls. */
void send_buffer_wr(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp_init_attr_ex init = {
		.send_cq = w.a.cq,
		.recv_cq = w.a.cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = w.pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(w.ctx, &init);
	MUST(qp);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	to_init(qp, IBV_ACCESS_REMOTE_WRITE);
	connect_qp(&w, qp, qp->qp_num, &(struct wish){ 0 }, true); /* to itself */
	ibv_wr_start(ex);
	ex->wr_id = 7;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, w.b.mr->rkey, (uintptr_t)w.b.buffer);
	ibv_wr_set_sge(ex, w.a.mr->lkey, (uintptr_t)w.a.buffer, 256);
	MUST(!ibv_wr_complete(ex));
	if (wrong)
		memset(w.a.buffer, 3, 256);
	done(w.a.cq);
	MUST(!ibv_destroy_qp(qp));
	end_world(&w);
}

/* Beside a shared receive queue whose memory is new: its first places have had no receive there. */
void send_buffer_beside_resized(bool wrong)
{
	mallopt(M_PERTURB, 1); /* new memory is full of something */
	struct world w = make_world((struct wish){ 0 });
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr more = { .max_wr = 16 };
	struct ibv_srq *srq = ibv_create_srq(w.pd, &shared);
	struct ibv_qp_init_attr init = { .send_cq = w.b.cq,
					 .recv_cq = w.b.cq,
					 .srq = srq,
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1,
					 .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(w.pd, &init);
	struct ibv_recv_wr *bad, empty = { 0 };
	struct ibv_send_wr *send = request(&w.b, IBV_WR_SEND, 0, NULL);
	MUST(srq && qp && !ibv_post_srq_recv(srq, &empty, &bad));
	to_init(qp, 0);
	connect_qp(&w, qp, qp->qp_num, &(struct wish){ 0 }, true); /* to itself */
	send->num_sge = 0;
	MUST(!post(qp, send));
	done(w.b.cq);
	done(w.b.cq);
	MUST(!ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR));
	receive(&w.b, 64);
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_SEND, 64, NULL)));
	if (wrong)
		w.a.buffer[5] = 1;
	done(w.a.cq);
	done(w.b.cq);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
	end_world(&w);
}

/* What a READ brings may be sent by a send that was posted before it came. Both ways are right. */
void read_then_send(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	memset(w.b.buffer, 9, 128);
	MUST(!post_receive(w.b.qp, (uintptr_t)w.b.buffer + 2048, 128, w.b.mr->lkey));
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_RDMA_READ, 128, &w.b)));
	struct ibv_send_wr *send = request(&w.a, IBV_WR_SEND, 128, NULL);
	send->send_flags = IBV_SEND_FENCE;
	MUST(!post(w.a.qp, send));
	done(w.a.cq);
	done(w.a.cq);
	done(w.b.cq);
	MUST(w.b.buffer[2048] == 9);
	end_world(&w);
}

/* ---- keys of this side ---- */

void dead_lkey(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_mr *other = ibv_reg_mr(w.pd, w.a.buffer, 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_send_wr *wr = request(&w.a, IBV_WR_SEND, 64, NULL);
	receive(&w.b, 64);
	wr->sg_list->lkey = other->lkey;
	if (wrong)
		MUST(!ibv_dereg_mr(other));
	MUST(!post(w.a.qp, wr));
	MUST((next(w.a.cq).status == IBV_WC_SUCCESS) != wrong);
	if (!wrong) {
		done(w.b.cq);
		MUST(!ibv_dereg_mr(other));
	}
	end_world(&w);
}

void never_a_key(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_send_wr *wr = request(&w.a, IBV_WR_SEND, 64, NULL);
	receive(&w.b, 64);
	if (wrong)
		wr->sg_list->lkey = 0x12345678;
	MUST(!post(w.a.qp, wr));
	MUST((next(w.a.cq).status == IBV_WC_SUCCESS) != wrong);
	if (!wrong)
		done(w.b.cq);
	end_world(&w);
}

void wrong_domain(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_pd *pd = ibv_alloc_pd(w.ctx);
	struct ibv_mr *other = ibv_reg_mr(wrong ? pd : w.pd, w.a.buffer, 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_send_wr *wr = request(&w.a, IBV_WR_SEND, 64, NULL);
	receive(&w.b, 64);
	wr->sg_list->lkey = other->lkey;
	MUST(!post(w.a.qp, wr));
	MUST((next(w.a.cq).status == IBV_WC_SUCCESS) != wrong);
	if (!wrong)
		done(w.b.cq);
	MUST(!ibv_dereg_mr(other) && !ibv_dealloc_pd(pd));
	end_world(&w);
}

void not_writable(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_mr *other = ibv_reg_mr(w.pd, w.b.buffer, 64, wrong ? 0 : IBV_ACCESS_LOCAL_WRITE);
	MUST(!post_receive(w.b.qp, (uintptr_t)w.b.buffer, 64, other->lkey));
	MUST(!ibv_destroy_qp(w.b.qp));
	w.b.qp = NULL;
	MUST(!ibv_dereg_mr(other));
	end_world(&w);
}

void out_of_bounds(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	receive(&w.b, wrong ? BUFFER_BYTES + 1 : BUFFER_BYTES);
	end_world(&w);
}

void window_as_lkey(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_mr *mr = ibv_reg_mr(w.pd, w.a.buffer, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(w.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.wr_id = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr,
			       .addr = (uintptr_t)w.a.buffer,
			       .length = 64,
			       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE },
	};
	MUST(mr && mw && !ibv_bind_mw(w.a.qp, mw, &bind));
	done(w.a.cq);
	MUST(!post_receive(w.a.qp, (uintptr_t)w.a.buffer, 64, wrong ? mw->rkey : mr->lkey));
	MUST(!ibv_dealloc_mw(mw));
	MUST(!ibv_destroy_qp(w.a.qp));
	w.a.qp = NULL;
	MUST(!ibv_dereg_mr(mr));
	end_world(&w);
}

/* ---- keys of the other side ---- */

static void write_until(struct world *w, uint64_t addr, uint32_t bytes, uint32_t rkey,
			enum ibv_wc_status status)
{
	struct ibv_send_wr *wr = request(&w->a, IBV_WR_RDMA_WRITE, bytes, &w->b);
	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rkey;
	MUST(!post(w->a.qp, wr));
	MUST(next(w->a.cq).status == status);
}

static void write_only(struct world *w, uint64_t addr, uint32_t bytes, uint32_t rkey, bool wrong)
{
	write_until(w, addr, bytes, rkey, wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
}

static void write_to(struct world *w, uint64_t addr, uint32_t bytes, uint32_t rkey, bool wrong)
{
	write_only(w, addr, bytes, rkey, wrong);
	end_world(w);
}

void dead_rkey(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_mr *other = ibv_reg_mr(w.pd, w.b.buffer, 64, ACCESS);
	uint32_t rkey = other->rkey;
	if (wrong)
		MUST(!ibv_dereg_mr(other));
	write_only(&w, (uintptr_t)w.b.buffer, 64, rkey, wrong);
	if (!wrong)
		MUST(!ibv_dereg_mr(other));
	end_world(&w);
}

void rkey_rights(bool wrong)
{
	struct world w = make_world(
		(struct wish){ .mr_access = wrong ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ : 0 });
	write_to(&w, (uintptr_t)w.b.buffer, 64, w.b.mr->rkey, wrong);
}

void rkey_bounds(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	write_to(&w, (uintptr_t)w.b.buffer + (wrong ? BUFFER_BYTES - 32 : 0), 64, w.b.mr->rkey, wrong);
}

void queue_pair_rights(bool wrong)
{
	struct world w = make_world((struct wish){ .qp_access = wrong ? IBV_ACCESS_REMOTE_READ : 0 });
	write_until(&w, (uintptr_t)w.b.buffer, 64, w.b.mr->rkey,
		    wrong ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS);
	end_world(&w);
}

static void bind_to_b(struct world *w, struct ibv_mw *mw, struct ibv_mr *mr, unsigned access)
{
	struct ibv_mw_bind bind = {
		.wr_id = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr,
			       .addr = (uintptr_t)w->b.buffer,
			       .length = 64,
			       .mw_access_flags = access },
	};
	MUST(!ibv_bind_mw(w->b.qp, mw, &bind));
	done(w->b.cq);
}

/* The peer writes by the key of a window's first binding. */
static void write_to_window(unsigned access, bool is_stale, bool wrong)
{
	struct world w = make_world((struct wish){ .mr_access = ACCESS | IBV_ACCESS_MW_BIND });
	struct ibv_mw *mw = ibv_alloc_mw(w.pd, IBV_MW_TYPE_1);
	MUST(mw);
	bind_to_b(&w, mw, w.b.mr, access);
	uint32_t rkey = mw->rkey;
	if (is_stale)
		bind_to_b(&w, mw, w.b.mr, access);
	write_only(&w, (uintptr_t)w.b.buffer, 64, rkey, wrong);
	MUST(!ibv_dealloc_mw(mw));
	end_world(&w);
}

void flush_rights(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp_init_attr_ex init = {
		.send_cq = w.a.cq,
		.recv_cq = w.a.cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = w.pd,
		.send_ops_flags = IBV_QP_EX_WITH_FLUSH,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(w.ctx, &init);
	struct ibv_mr *mr = ibv_reg_mr(w.pd, w.b.buffer, 4096, IBV_ACCESS_FLUSH_GLOBAL);
	MUST(qp && mr);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	to_init(qp, wrong ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_FLUSH_GLOBAL);
	connect_qp(&w, qp, qp->qp_num, &(struct wish){ 0 }, true); /* to itself */
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_flush(ex, mr->rkey, (uintptr_t)w.b.buffer, 64, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	MUST(!ibv_wr_complete(ex));
	MUST((next(w.a.cq).status == IBV_WC_SUCCESS) != wrong);
	MUST(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr));
	end_world(&w);
}

void window_rights(bool wrong)
{
	write_to_window(wrong ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE, false, wrong);
}
void stale_window(bool wrong) { write_to_window(IBV_ACCESS_REMOTE_WRITE, wrong, wrong); }

/* A SEND, which stays under way: there is no receive for it. Or it is received, and done. */
static void begin_send(struct world *w, bool stays)
{
	if (!stays)
		receive(&w->b, 64);
	MUST(!post(w->a.qp, request(&w->a, IBV_WR_SEND, 64, NULL)));
	if (!stays)
		done(w->a.cq);
}

void deregistered_under_way(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	begin_send(&w, wrong);
	MUST(!ibv_dereg_mr(w.a.mr));
	w.a.mr = NULL;
	exit(0); /* what is under way stays so */
}

void reregistered_under_way(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	begin_send(&w, wrong);
	MUST(!ibv_rereg_mr(w.a.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, w.b.buffer, 64, 0));
	exit(0); /* as above */
}

static void *page(void)
{
	void *memory = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(memory != MAP_FAILED);
	return memory;
}

/* Where nothing else is mapped before it is looked at. */
static void unmap(void *memory)
{
	MUST(mmap(memory, BUFFER_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
}

static int file;

static void *page_of_file(void)
{
	MUST((file = memfd_create("mistakes", MFD_CLOEXEC)) >= 0 && !ftruncate(file, BUFFER_BYTES));
	void *memory = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	MUST(memory != MAP_FAILED);
	return memory;
}

static void cut_file(void *memory) { MUST(!ftruncate(file, 0)); }

/* lose: what takes the region's memory away. */
static void write_into(struct world *w, struct ibv_mr *mr, void (*lose)(void *memory), bool wrong)
{
	void *memory = mr->addr;
	if (wrong)
		lose(memory);
	write_only(w, (uintptr_t)memory, 64, mr->rkey, wrong);
	MUST(!ibv_dereg_mr(mr));
	lose(memory);
	end_world(w);
}

void unmapped_target(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	write_into(&w, ibv_reg_mr(w.pd, page(), BUFFER_BYTES, ACCESS), unmap, wrong);
}

void cut_target(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	write_into(&w, ibv_reg_mr(w.pd, page_of_file(), BUFFER_BYTES, ACCESS), cut_file, wrong);
}

static void receive_into(struct world *w, struct ibv_mr *mr, void (*lose)(void *memory), bool wrong)
{
	MUST(!post_receive(w->b.qp, (uintptr_t)mr->addr, 64, mr->lkey));
	if (wrong)
		lose(mr->addr);
	MUST(!post(w->a.qp, request(&w->a, IBV_WR_SEND, 64, NULL)));
	MUST(next(w->b.cq).status == (wrong ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
	MUST(next(w->a.cq).status == (wrong ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS));
	MUST(!ibv_dereg_mr(mr));
	end_world(w);
}

void unmapped_receive(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	receive_into(&w, ibv_reg_mr(w.pd, page(), BUFFER_BYTES, ACCESS), unmap, wrong);
}

void cut_receive(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	receive_into(&w, ibv_reg_mr(w.pd, page_of_file(), BUFFER_BYTES, ACCESS), cut_file, wrong);
}

/* A message that is too long for a slot of the local path. */
void unmapped_send(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	void *memory = page();
	struct ibv_mr *mr = ibv_reg_mr(w.pd, memory, BUFFER_BYTES, ACCESS);
	struct ibv_send_wr *wr = request(&w.a, IBV_WR_SEND, BUFFER_BYTES, NULL);
	receive(&w.b, BUFFER_BYTES);
	wr->sg_list->addr = (uintptr_t)memory;
	wr->sg_list->lkey = mr->lkey;
	if (wrong)
		unmap(memory);
	MUST(!post(w.a.qp, wr));
	MUST(next(w.a.cq).status == (wrong ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
	if (!wrong)
		done(w.b.cq);
	MUST(!ibv_dereg_mr(mr));
	end_world(&w);
}

/* ---- receives ---- */

void datagram_header(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *qp = make_qp(&w, w.a.cq, &(struct wish){ 0 }, IBV_QPT_UD);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5 };
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	MUST(!post_receive(qp, (uintptr_t)w.a.buffer, wrong ? 32 : 72, w.a.mr->lkey));
	MUST(!ibv_destroy_qp(qp));
	end_world(&w);
}

void short_receive(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	receive(&w.b, wrong ? 16 : 64);
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_SEND, 64, NULL)));
	MUST((next(w.a.cq).status == IBV_WC_SUCCESS) != wrong);
	MUST(next(w.b.cq).status == (wrong ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS));
	end_world(&w);
}

static void to_rts_ud(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5 };
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static struct ibv_ah *own_address(struct world *w)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	MUST(!ibv_query_gid(w->ctx, 1, 0, &attr.grh.dgid));
	struct ibv_ah *ah = ibv_create_ah(w->pd, &attr);
	MUST(ah);
	return ah;
}

/* The header was forgotten, and there is room for nothing else. */
void short_datagram(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_cq *cq = ibv_create_cq(w.ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(&w, cq, &(struct wish){ 0 }, IBV_QPT_UD);
	to_rts_ud(qp);
	struct ibv_ah *ah = own_address(&w);
	MUST(!post_receive(qp, (uintptr_t)w.b.buffer, wrong ? 64 : 104, w.b.mr->lkey));
	struct ibv_send_wr *wr = request(&w.a, IBV_WR_SEND, 64, NULL);
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qp->qp_num;
	wr->wr.ud.remote_qkey = 5;
	MUST(!post(qp, wr));
	wr->sg_list->length = 24;
	MUST(!wrong || !post(qp, wr)); /* which finds the receive, behind the one that was dropped */
	for (int i = 0; i < 2 + wrong; i++)
		done(cq);
	MUST(!ibv_destroy_ah(ah) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	end_world(&w);
}

/* To the queue pair itself. */
static void send_one(struct ibv_qp *qp, struct ibv_send_wr *wr, bool arrives)
{
	MUST(!post(qp, wr));
	for (int i = 0; i < 1 + arrives; i++)
		done(qp->send_cq);
}

/*
 * What was flushed in the send queue error state is over, and its region may go. The queue pair comes to that
 * state by an address handle of another protection domain. Both ways are right.
 */
void flushed_before(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_pd *pd = ibv_alloc_pd(w.ctx), *usual = w.pd;
	struct ibv_cq *cq = ibv_create_cq(w.ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(&w, cq, &(struct wish){ 0 }, IBV_QPT_UD);
	struct ibv_mr *mr = ibv_reg_mr(w.pd, w.a.buffer, 64, 0);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS };
	to_rts_ud(qp);
	struct ibv_ah *ah = own_address(&w);
	w.pd = pd;
	struct ibv_ah *foreign = own_address(&w);
	w.pd = usual;
	struct ibv_send_wr *wr = request(&w.a, IBV_WR_SEND, 8, NULL);
	wr->wr.ud.ah = foreign;
	wr->wr.ud.remote_qpn = qp->qp_num;
	wr->wr.ud.remote_qkey = 5;
	MUST(!post(qp, wr) && next(cq).status == IBV_WC_LOC_QP_OP_ERR);
	wr->wr.ud.ah = ah;
	wr->sg_list->lkey = mr->lkey;
	MUST(!post(qp, wr) && next(cq).status == IBV_WC_WR_FLUSH_ERR);
	MUST(!ibv_dereg_mr(mr) && !ibv_modify_qp(qp, &a, IBV_QP_STATE));
	wr->sg_list->lkey = w.a.mr->lkey;
	MUST(!post_receive(qp, (uintptr_t)w.b.buffer, 64, w.b.mr->lkey));
	send_one(qp, wr, true);
	MUST(!ibv_destroy_ah(ah) && !ibv_destroy_ah(foreign) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	MUST(!ibv_dealloc_pd(pd));
	end_world(&w);
}

/*
 * Sends until what is sent arrives, each time with one more receive: then all that was sent before has
 * arrived or is dropped.
 */
static void send_last(struct world *w, struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	enum { LAST_BYTES = 16 };
	uint32_t got = 0, header = qp->qp_type == IBV_QPT_UD ? 40 : 0;
	wr->sg_list->length = LAST_BYTES;
	while (got != header + LAST_BYTES) {
		MUST(!post_receive(qp, (uintptr_t)w->b.buffer, 64, w->b.mr->lkey));
		MUST(!post(qp, wr));
		for (int i = 0; i < 2; i++) {
			struct ibv_wc wc = next(qp->send_cq);
			MUST(wc.status == IBV_WC_SUCCESS);
			got = wc.opcode & IBV_WC_RECV ? wc.byte_len : got;
		}
	}
}

/* Two datagrams that are perhaps wrong, and one behind them that is right. */
static void send_datagrams(uint32_t qkey, bool has_receives)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_cq *cq = ibv_create_cq(w.ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(&w, cq, &(struct wish){ 0 }, IBV_QPT_UD);
	to_rts_ud(qp);
	struct ibv_ah *ah = own_address(&w);
	struct ibv_send_wr *wr = request(&w.a, IBV_WR_SEND, 8, NULL);
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qp->qp_num;
	wr->wr.ud.remote_qkey = qkey;
	for (int i = 0; i < 2; i++) {
		MUST(!has_receives || !post_receive(qp, (uintptr_t)w.b.buffer, 64, w.b.mr->lkey));
		send_one(qp, wr, qkey == 5 && has_receives);
	}
	wr->wr.ud.remote_qkey = 5;
	send_last(&w, qp, wr);
	MUST(!ibv_destroy_ah(ah) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	end_world(&w);
}

void other_qkey(bool wrong) { send_datagrams(wrong ? 6 : 5, true); }
void datagram_without_receive(bool wrong) { send_datagrams(5, !wrong); }

static void to_rts_uc(struct world *w, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = qp->qp_num,
				 .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } } };
	to_init(qp, 0);
	MUST(!ibv_query_gid(w->ctx, 1, 0, &a.ah_attr.grh.dgid));
	MUST(!ibv_modify_qp(qp, &a,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
	a.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static struct ibv_qp *make_uc(struct world *w)
{
	struct ibv_qp *qp = make_qp(w, w->a.cq, &(struct wish){ 0 }, IBV_QPT_UC);
	to_rts_uc(w, qp);
	return qp;
}

/*
 * checks.py makes the network lose a packet of a message. The message then uses up a receive of the shared
 * queue. The program has made no mistake, so nothing may be reported, whatever `wrong` is.
 */
void lost_part(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(w.pd, &shared);
	struct ibv_qp_init_attr init = { .send_cq = w.a.cq,
					 .recv_cq = w.b.cq,
					 .srq = srq,
					 .qp_type = IBV_QPT_UC,
					 .sq_sig_all = 1,
					 .cap = { .max_send_wr = 4, .max_send_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(w.pd, &init);
	struct ibv_sge sge = { .addr = (uintptr_t)w.b.buffer,
			       .length = BUFFER_BYTES,
			       .lkey = w.b.mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	MUST(srq && qp);
	to_rts_uc(&w, qp);
	for (int i = 0; i < 2; i++)
		MUST(!ibv_post_srq_recv(srq, &wr, &bad));
	MUST(!post(qp, request(&w.a, IBV_WR_SEND, 3000, NULL)));
	MUST(!post(qp, request(&w.a, IBV_WR_SEND, 16, NULL)));
	done(w.a.cq);
	done(w.a.cq);
	MUST(next(w.b.cq).status == IBV_WC_REM_INV_REQ_ERR);
	done(w.b.cq);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
	end_world(&w);
}

/* A message that is too long leaves the receive to the next. */
void short_unreliable(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *qp = make_uc(&w);
	for (int i = 0; i < 2; i++) {
		MUST((wrong && i) ||
		     !post_receive(qp, (uintptr_t)w.b.buffer, wrong ? 16 : 64, w.b.mr->lkey));
		send_one(qp, request(&w.a, IBV_WR_SEND, 64, NULL), !wrong);
	}
	MUST(wrong || !post_receive(qp, (uintptr_t)w.b.buffer, 64, w.b.mr->lkey));
	send_one(qp, request(&w.a, IBV_WR_SEND, 16, NULL), true);
	MUST(!ibv_destroy_qp(qp));
	end_world(&w);
}

void message_without_receive(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *qp = make_uc(&w);
	for (int i = 0; i < 2; i++) {
		MUST(wrong || !post_receive(qp, (uintptr_t)w.b.buffer, 64, w.b.mr->lkey));
		send_one(qp, request(&w.a, IBV_WR_SEND, 64, NULL), !wrong);
	}
	send_last(&w, qp, request(&w.a, IBV_WR_SEND, 64, NULL));
	MUST(!ibv_destroy_qp(qp));
	end_world(&w);
}

/* The one's peer has another address than the one that it is connected to. Over UDP. */
void stranger(bool wrong)
{
	struct world w = make_world((struct wish){ .retry_cnt = 1, .b_mistakes_gid = wrong });
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)));
	MUST(next(w.a.cq).status == (wrong ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS));
	end_world(&w);
}

void no_receive(bool wrong)
{
	struct world w = make_world((struct wish){ .rnr_retry = 2 });
	if (!wrong)
		receive(&w.b, 64);
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_SEND, 64, NULL)));
	MUST(next(w.a.cq).status == (wrong ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_SUCCESS));
	if (!wrong)
		done(w.b.cq);
	end_world(&w);
}

/* The sender waits for ever, so there is no error that would tell. */
void no_receive_for_long(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_SEND, 64, NULL)));
	for (int i = 0; i < (wrong ? 150 : 20); i++) {
		struct ibv_wc wc;
		MUST(!ibv_poll_cq(w.a.cq, 1, &wc));
		sleep_ms(10);
	}
	receive(&w.b, 64);
	done(w.a.cq);
	done(w.b.cq);
	end_world(&w);
}

/* Each message waits for its receive, and none of them for long. Both ways are right. */
void receives_one_by_one(bool wrong)
{
	enum { MESSAGES = 150, UNDER_WAY = 8 };
	struct world w = make_world((struct wish){ 0 });
	for (int received = 0, posted = 0; received < MESSAGES; received++) {
		for (; posted < MESSAGES && posted - received < UNDER_WAY; posted++)
			MUST(!post(w.a.qp, request(&w.a, IBV_WR_SEND, 64, NULL)));
		receive(&w.b, 64);
		done(w.b.cq);
		done(w.a.cq);
		sleep_ms(10);
	}
	end_world(&w);
}

/* ---- completion queues ---- */

void queue_room(bool wrong)
{
	struct world w = make_world((struct wish){ .cqe = wrong ? 4 : 8 });
	for (int i = 0; i < 8; i++)
		receive(&w.b, 64);
	end_world(&w);
}

/* Sends without a completion of their own do not count, but there is one for each when they fail. */
void queue_overrun(bool wrong)
{
	struct world w = make_world(
		(struct wish){ .cqe = 4, .unsignaled = true, .send_wr = 16, .b_stays_in_init = true });
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	for (int i = 0; i < (wrong ? 8 : 4); i++)
		MUST(!post(w.a.qp, request(&w.a, IBV_WR_SEND, 64, NULL)));
	MUST(!ibv_modify_qp(w.a.qp, &a, IBV_QP_STATE));
	end_world(&w);
}

/* What was posted before has its completions, as it would on hardware by then. */
void queue_resize(bool wrong)
{
	struct world w = make_world((struct wish){ .cqe = 4 });
	for (int i = 0; i < 3; i++)
		MUST(!post(w.a.qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)));
	for (int i = 0; i < 3 && !wrong; i++)
		done(w.a.cq);
	MUST((ibv_resize_cq(w.a.cq, 2) != 0) == wrong);
	end_world(&w);
}

void never_signaled(bool wrong)
{
	struct world w = make_world((struct wish){ .unsignaled = true, .send_wr = 8 });
	int err = 0;
	for (int i = 0; i < 20 && !err; i++) {
		struct ibv_wc wc;
		struct ibv_send_wr *wr = request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b);
		wr->send_flags = !wrong && i % 4 == 3 ? IBV_SEND_SIGNALED : 0;
		err = post(w.a.qp, wr);
		if (wr->send_flags && !err)
			done(w.a.cq);
		else
			MUST(!ibv_poll_cq(w.a.cq, 1, &wc));
	}
	MUST((err != 0) == wrong);
	end_world(&w);
}

/* Who posts until it is full, and then polls, is right. */
void never_polled(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	int full = 0, enough = wrong ? 75 : 3;
	for (int i = 0; i < 100 && full < enough; i++) {
		if (!post(w.a.qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)))
			continue;
		full++;
		if (!wrong)
			done(w.a.cq);
		sleep_ms(20);
	}
	MUST(full == enough);
	end_world(&w);
}

/* Who posts may find the queue full, and again, before who polls has had a turn. Both ways are right. */
void polled_late(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_cq *cq;
	void *context;
	int posted = 0;
	MUST(!ibv_req_notify_cq(w.a.cq, 0));
	while (!post(w.a.qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)))
		posted++;
	MUST(!ibv_get_cq_event(w.channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	for (int i = 0; i < 3; i++)
		MUST(post(w.a.qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)));
	while (posted--)
		done(w.a.cq);
	end_world(&w);
}

/* In the error state each request has a completion, signaled or not. Both ways are right. */
void flushed_posts(bool wrong)
{
	struct world w = make_world((struct wish){ .unsignaled = true });
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct ibv_send_wr *wr = request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b);
	int posted = 0;
	wr->send_flags = IBV_SEND_SIGNALED;
	MUST(!post(w.a.qp, wr));
	done(w.a.cq);
	MUST(!ibv_modify_qp(w.a.qp, &a, IBV_QP_STATE));
	while (!post(w.a.qp, request(&w.a, IBV_WR_SEND, 8, NULL)))
		posted++;
	while (posted--)
		MUST(next(w.a.cq).status == IBV_WC_WR_FLUSH_ERR);
	end_world(&w);
}

void unseen_error(bool wrong)
{
	struct world w = make_world((struct wish){ .rnr_retry = 1 });
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)));
	done(w.a.cq);
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_SEND, 8, NULL)));
	do
		MUST(!ibv_query_qp(w.a.qp, &a, IBV_QP_STATE, &init));
	while (a.qp_state != IBV_QPS_ERR);
	if (!wrong)
		MUST(next(w.a.cq).status == IBV_WC_RNR_RETRY_EXC_ERR);
	end_world(&w);
}

void lost_send(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	begin_send(&w, wrong);
	MUST(!ibv_destroy_qp(w.a.qp));
	w.a.qp = NULL;
	if (!wrong)
		done(w.b.cq);
	end_world(&w);
}

static void make_pair(struct world *w, struct ibv_qp **from, struct ibv_qp **to)
{
	*from = make_qp(w, w->a.cq, &(struct wish){ 0 }, IBV_QPT_RC);
	*to = make_qp(w, w->a.cq, &(struct wish){ 0 }, IBV_QPT_RC);
	to_init(*from, 0);
	to_init(*to, 0);
	connect_qp(w, *to, (*from)->qp_num, &(struct wish){ 0 }, false);
	connect_qp(w, *from, (*to)->qp_num, &(struct wish){ 0 }, true);
}

/* However many sends are lost, one that only waits for its acknowledgement is not. */
void lost_sends(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *from, *to;
	for (int i = 0; i < 5; i++) {
		make_pair(&w, &from, &to);
		MUST(wrong || !post_receive(to, (uintptr_t)w.b.buffer, 64, w.b.mr->lkey));
		MUST(!post(from, request(&w.a, IBV_WR_SEND, 64, NULL)));
		for (int k = 0; k < 2 && !wrong; k++)
			done(w.a.cq);
		MUST(!ibv_destroy_qp(from) && !ibv_destroy_qp(to));
	}
	make_pair(&w, &from, &to);
	MUST(!post_receive(to, (uintptr_t)w.b.buffer, 64, w.b.mr->lkey));
	MUST(!post(from, request(&w.a, IBV_WR_SEND, 64, NULL)));
	MUST(!ibv_destroy_qp(from) && !ibv_destroy_qp(to));
	end_world(&w);
}

static void *acknowledge_late(void *cq)
{
	sleep_ms(1500);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

void unacked_event(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_cq *cq;
	pthread_t thread;
	void *context;
	MUST(!ibv_req_notify_cq(w.a.cq, 0));
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)));
	MUST(!ibv_get_cq_event(w.channel, &cq, &context));
	done(cq);
	if (wrong)
		MUST(!pthread_create(&thread, NULL, acknowledge_late, cq));
	else
		ibv_ack_cq_events(cq, 1);
	end_world(&w);
	if (wrong)
		pthread_join(thread, NULL);
}

static void *acknowledge_async_late(void *event)
{
	sleep_ms(1500);
	ibv_ack_async_event(event);
	return NULL;
}

/* The event that is next is acknowledged: at once, or by a thread after a while. */
static pthread_t take_async_event(struct world *w, enum ibv_event_type type, bool late)
{
	static struct ibv_async_event event;
	pthread_t thread = pthread_self();
	MUST(!ibv_get_async_event(w->ctx, &event) && event.event_type == type);
	if (late)
		MUST(!pthread_create(&thread, NULL, acknowledge_async_late, &event));
	else
		ibv_ack_async_event(&event);
	return thread;
}

void unacked_qp_event(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	MUST(!ibv_modify_qp(w.a.qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	pthread_t thread = take_async_event(&w, IBV_EVENT_SQ_DRAINED, wrong);
	MUST(!ibv_destroy_qp(w.a.qp));
	w.a.qp = NULL;
	if (wrong)
		pthread_join(thread, NULL);
	end_world(&w);
}

void unacked_cq_event(bool wrong)
{
	struct world w = make_world(
		(struct wish){ .cqe = 4, .unsignaled = true, .send_wr = 16, .b_stays_in_init = true });
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	for (int i = 0; i < 8; i++)
		MUST(!post(w.a.qp, request(&w.a, IBV_WR_SEND, 64, NULL)));
	MUST(!ibv_modify_qp(w.a.qp, &a, IBV_QP_STATE));
	pthread_t thread = take_async_event(&w, IBV_EVENT_CQ_ERR, wrong);
	MUST(!ibv_destroy_qp(w.a.qp) && !ibv_destroy_cq(w.a.cq));
	if (wrong)
		pthread_join(thread, NULL);
	exit(0); /* there may be further events */
}

void unacked_srq_event(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(w.pd, &init);
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	MUST(srq && !ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	pthread_t thread = take_async_event(&w, IBV_EVENT_SRQ_LIMIT_REACHED, wrong);
	MUST(!ibv_destroy_srq(srq));
	if (wrong)
		pthread_join(thread, NULL);
	end_world(&w);
}

/* Standard error goes through a pipe until something was said. */
static struct {
	int from, real;
} told;

static void listen_to_stderr(void)
{
	int ends[2];
	MUST(!pipe(ends) && (told.real = dup(STDERR_FILENO)) >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
	close(ends[1]);
	told.from = ends[0];
}

enum { LONG_MS = 60000, SILENT_MS = 4000 /* where that is not to be told */ };

/* So that the thread that waits ends, once that was told. */
static void *arm_late(void *world)
{
	struct world *w = world;
	char said[4096];
	struct pollfd something = { .fd = told.from, .events = POLLIN };
	const char *checks = getenv("VERBATIM_CHECK");
	poll(&something, 1, checks && checks[0] != '-' ? LONG_MS : SILENT_MS);
	MUST(dup2(told.real, STDERR_FILENO) >= 0);
	for (ssize_t n; (n = read(told.from, said, sizeof(said))) > 0;)
		MUST(write(told.real, said, (size_t)n) == n);
	MUST(!ibv_req_notify_cq(w->a.cq, 0));
	MUST(!post(w->a.qp, request(&w->a, IBV_WR_RDMA_WRITE, 8, &w->b)));
	return NULL;
}

void unasked_event(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_cq *cq;
	pthread_t thread = pthread_self();
	void *context;
	MUST(!ibv_req_notify_cq(w.a.cq, 0));
	for (int i = 0; i < 2; i++) {
		MUST(!post(w.a.qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)));
		if (wrong && i) {
			listen_to_stderr();
			MUST(!pthread_create(&thread, NULL, arm_late, &w));
		}
		MUST(!ibv_get_cq_event(w.channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
		MUST(wrong || !ibv_req_notify_cq(cq, 0));
		done(cq);
	}
	if (wrong)
		pthread_join(thread, NULL);
	end_world(&w);
}

/* ---- two sides ---- */

static void meet(struct world *w, enum ibv_wc_status expected)
{
	MUST(!post(w->a.qp, request(&w->a, IBV_WR_RDMA_WRITE, 8, &w->b)));
	MUST(next(w->a.cq).status == expected);
	end_world(w);
}

void psn_mismatch(bool wrong)
{
	struct world w = make_world((struct wish){ .sq_psn = wrong ? 0x1234 : 0, .retry_cnt = 1 });
	meet(&w, wrong ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
}

void mtu_mismatch(bool wrong)
{
	struct world w = make_world((struct wish){ .mtu = wrong ? IBV_MTU_4096 : 0 });
	meet(&w, IBV_WC_SUCCESS);
}

void mtu_of_port(bool wrong)
{
	struct world w =
		make_world((struct wish){ .device = "vb_eth0", .path_mtu = wrong ? IBV_MTU_4096 : 0 });
	meet(&w, IBV_WC_SUCCESS);
}

void read_depth(bool wrong)
{
	struct world w = make_world((struct wish){ .max_rd_atomic = wrong ? 16 : 0 });
	meet(&w, IBV_WC_SUCCESS);
}

void no_read_depth(bool wrong)
{
	struct world w = make_world((struct wish){ .no_reads = wrong });
	MUST(!post(w.a.qp, request(&w.a, IBV_WR_RDMA_READ, 8, &w.b)));
	MUST(next(w.a.cq).status == (wrong ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS));
	end_world(&w);
}

void silent_peer(bool wrong)
{
	struct world w = make_world((struct wish){ .b_stays_in_init = wrong, .retry_cnt = 1 });
	meet(&w, wrong ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
}

/* No process has such queue pairs. */
void wrong_number(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *qp = make_qp(&w, w.a.cq, &(struct wish){ 0 }, IBV_QPT_RC);
	to_init(qp, IBV_ACCESS_REMOTE_WRITE);
	connect_qp(&w, qp, wrong ? 0x777777 : qp->qp_num, &(struct wish){ .retry_cnt = 1 }, true);
	MUST(!post(qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)));
	MUST(next(w.a.cq).status == (wrong ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS));
	MUST(!ibv_destroy_qp(qp));
	end_world(&w);
}

/* ---- threads ---- */

static atomic_uint begun, ended; /* of the threads that use one object */
static unsigned at_once;         /* how many of them do */

/* Often, and as long as another does. */
static void use_much(void (*use)(void *object), void *object)
{
	atomic_fetch_add(&begun, 1);
	while (atomic_load(&begun) < at_once)
		sched_yield();
	for (int i = 0; i < 20000; i++)
		use(object);
	atomic_fetch_add(&ended, 1);
	while (atomic_load(&ended) < at_once)
		use(object);
}

static void use_by_two(void *(*use)(void *object), void *object, bool together)
{
	pthread_t threads[2];
	at_once = together ? 2 : 1;
	for (int i = 0; i < 2; i++) {
		MUST(!pthread_create(&threads[i], NULL, use, object));
		if (!together)
			pthread_join(threads[i], NULL);
	}
	for (int i = 0; i < 2 && together; i++)
		pthread_join(threads[i], NULL);
}

static void poll_once(void *cq)
{
	struct ibv_wc wc;
	ibv_poll_cq(cq, 1, &wc);
}

static void *poll_much(void *cq)
{
	use_much(poll_once, cq);
	return NULL;
}

void two_pollers(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_cq_init_attr_ex init = { .cqe = 8,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					    .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(w.ctx, &init);
	MUST(cq);
	use_by_two(poll_much, ibv_cq_ex_to_cq(cq), wrong);
	MUST(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	end_world(&w);
}

static void post_once(void *qp)
{
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND };
	ibv_post_send(qp, &wr, &bad);
}

static void *post_much(void *qp)
{
	use_much(post_once, qp);
	return NULL;
}

/* Of a thread domain. The queue pair is in the error state, where each post is flushed. */
void two_posters(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_td_init_attr td_init = { 0 };
	struct ibv_td *td = ibv_alloc_td(w.ctx, &td_init);
	struct ibv_parent_domain_init_attr init = { .pd = w.pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(w.ctx, &init), *pd = w.pd;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	MUST(td && parent);
	w.pd = parent;
	struct ibv_qp *qp = make_qp(&w, w.a.cq, &(struct wish){ .unsignaled = true }, IBV_QPT_RC);
	w.pd = pd;
	to_init(qp, 0);
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	use_by_two(post_much, qp, wrong);
	MUST(!ibv_destroy_qp(qp) && !ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
	end_world(&w);
}

/* ---- refused calls ---- */

void missing_attributes(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *qp = make_qp(&w, w.a.cq, &(struct wish){ 0 }, IBV_QPT_RC);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int err = ibv_modify_qp(qp, &a,
				wrong ? IBV_QP_STATE :
					IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	MUST((err != 0) == wrong);
	MUST(!ibv_destroy_qp(qp));
	end_world(&w);
}

void surplus_attribute(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *qp = make_qp(&w, w.a.cq, &(struct wish){ 0 }, IBV_QPT_RC);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
	int err = ibv_modify_qp(qp, &a, wrong ? mask | IBV_QP_QKEY | IBV_QP_SQ_PSN : mask);
	MUST((err != 0) == wrong);
	MUST(!ibv_destroy_qp(qp));
	end_world(&w);
}

void no_grh(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_ah_attr attr = { .port_num = 1, .dlid = 1, .is_global = !wrong };
	struct ibv_ah *ah;
	MUST(!ibv_query_gid(w.ctx, 1, 0, &attr.grh.dgid));
	ah = ibv_create_ah(w.pd, &attr);
	MUST(!ah == wrong && (!ah || !ibv_destroy_ah(ah)));
	end_world(&w);
}

/* A child that ends as its parent does says nothing of what its parent has found. */
void parents_finding(bool wrong)
{
	int status;
	no_grh(wrong);
	pid_t child = fork();
	if (!child)
		exit(0);
	MUST(waitpid(child, &status, 0) == child && !status);
}

static void try_rtr(bool wrong, bool is_global, uint8_t gid_index)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *qp = make_qp(&w, w.a.cq, &(struct wish){ 0 }, IBV_QPT_RC);
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.ah_attr = { .is_global = is_global, .port_num = 1, .grh = { .sgid_index = gid_index } },
	};
	to_init(qp, 0);
	MUST(!ibv_query_gid(w.ctx, 1, 0, &a.ah_attr.grh.dgid));
	int err = ibv_modify_qp(qp, &a,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	MUST((err != 0) == wrong);
	MUST(!ibv_destroy_qp(qp));
	end_world(&w);
}

void no_grh_in_modify(bool wrong) { try_rtr(wrong, !wrong, 0); }
void gid_index(bool wrong) { try_rtr(wrong, true, wrong ? 99 : 0); }
/* 127.0.0.1 and ::1 */
void gid_kind(bool wrong) { try_rtr(wrong, true, wrong ? 1 : 0); }

/* Nothing tells what is possible: programs try. */
void inline_probe(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp_init_attr init = {
		.send_cq = w.a.cq,
		.recv_cq = w.a.cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = 1 << 20 },
	};
	MUST(!wrong && !ibv_create_qp(w.pd, &init));
	end_world(&w);
}

/* Nothing tells whether there are regions of dma-bufs: programs try, with a descriptor that is none. */
void dmabuf_probe(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	for (size_t bytes = 0; bytes <= BUFFER_BYTES; bytes += BUFFER_BYTES)
		MUST(!ibv_reg_dmabuf_mr(w.pd, 0, bytes, 0, -1, IBV_ACCESS_LOCAL_WRITE) && errno == EBADF);
	end_world(&w);
}

static struct ibv_srq *make_tag_list(struct world *w)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.srq_type = IBV_SRQT_TM,
		.pd = w->pd,
		.cq = w->a.cq,
		.tm_cap = { .max_num_tags = 1, .max_ops = 8 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(w->ctx, &init);
	MUST(srq);
	return srq;
}

/* Tags are added until the list is full. */
void full_tag_list(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_ops_wr *bad, wr = { .opcode = IBV_WR_TAG_ADD };
	struct ibv_srq *srq = make_tag_list(&w);
	MUST(!ibv_post_srq_ops(srq, &wr, &bad) && ibv_post_srq_ops(srq, &wr, &bad) == ENOMEM);
	MUST(!ibv_destroy_srq(srq));
	end_world(&w);
}

/* b sends a request for a rendezvous; a's queue pair, which matches tags, reads the data and says so. */
static void meet_by_tag(struct world *w, struct ibv_srq *srq)
{
	struct {
		struct ibv_tmh tmh;
		struct ibv_rvh rvh;
	} *head = (void *)w->b.buffer;
	struct ibv_sge sge = { (uintptr_t)w->a.buffer, 64, w->a.mr->lkey };
	struct ibv_ops_wr *bad,
		wr = { .opcode = IBV_WR_TAG_ADD,
		       .tm.add = { .sg_list = &sge, .num_sge = 1, .tag = 5, .mask = UINT64_MAX } };
	MUST(!ibv_post_srq_ops(srq, &wr, &bad));
	head->tmh = (struct ibv_tmh){ .opcode = IBV_TMH_RNDV, .tag = htobe64(5) };
	head->rvh = (struct ibv_rvh){ .va = htobe64((uintptr_t)w->b.buffer),
				      .rkey = htobe32(w->b.mr->rkey),
				      .len = htobe32(64) };
	MUST(!post_receive(w->b.qp, (uintptr_t)w->b.buffer + 1024, 64, w->b.mr->lkey));
	MUST(!post(w->b.qp, request(&w->b, IBV_WR_SEND, sizeof(*head), NULL)));
	for (int i = 0; i < 2; i++) {
		done(w->a.cq); /* the tag has matched; the data are here */
		done(w->b.cq); /* the request was sent; its end was received */
	}
}

/* What the adapter sends by itself is no request of the program's: these are all signaled. */
void rendezvous_before(bool wrong)
{
	enum { MANY = 40 };
	struct world w = make_world((struct wish){ 0 });
	struct ibv_srq *srq = make_tag_list(&w);
	struct ibv_qp_init_attr init = { .send_cq = w.a.cq, .recv_cq = w.a.cq, .srq = srq,
					 .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
					 .cap = { .max_send_wr = 8, .max_send_sge = 1 } };
	struct ibv_qp *qp;
	int posted = 0;
	MUST(!ibv_destroy_qp(w.a.qp) && !ibv_destroy_qp(w.b.qp));
	MUST(qp = w.a.qp = ibv_create_qp(w.pd, &init));
	w.b.qp = make_qp(&w, w.b.cq, &(struct wish){ 0 }, IBV_QPT_RC);
	to_init(qp, 0);
	to_init(w.b.qp, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	connect_qp(&w, qp, w.b.qp->qp_num, &(struct wish){ 0 }, true);
	connect_qp(&w, w.b.qp, qp->qp_num, &(struct wish){ 0 }, false);
	for (int i = 0; i < MANY; i++)
		meet_by_tag(&w, srq);
	while (!post(qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)))
		posted++;
	MUST(posted == 8);
	while (posted--)
		done(w.a.cq);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
	w.a.qp = NULL;
	end_world(&w);
}

/* Calls that fail on purpose (checks.py) are no mistakes. Both ways are right. */
void failed_on_purpose(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_sge sge = { .addr = (uintptr_t)w.a.buffer, .length = 64, .lkey = w.a.mr->lkey };
	union ibv_gid group = { .raw = { 0xff, 0x0e } };
	MUST(ibv_resize_cq(w.a.cq, 32) == EINVAL);
	MUST(ibv_advise_mr(w.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == ENOMEM);
	MUST(ibv_detach_mcast(w.a.qp, &group, 0) == EIO);
	end_world(&w);
}

void inline_too_long(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_send_wr *wr = request(&w.a, IBV_WR_RDMA_WRITE, wrong ? 4000 : 32, &w.b);
	wr->send_flags = IBV_SEND_INLINE;
	MUST((post(w.a.qp, wr) != 0) == wrong);
	if (!wrong)
		done(w.a.cq);
	end_world(&w);
}

void too_many_entries(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_sge two[2] = { { .addr = (uintptr_t)w.a.buffer, .length = 8, .lkey = w.a.mr->lkey },
				  { .addr = (uintptr_t)w.a.buffer, .length = 8, .lkey = w.a.mr->lkey } };
	struct ibv_send_wr *wr = request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b);
	if (wrong) {
		wr->sg_list = two;
		wr->num_sge = 2;
	}
	MUST((post(w.a.qp, wr) != 0) == wrong);
	if (!wrong)
		done(w.a.cq);
	end_world(&w);
}

void too_many_shared_entries(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(w.pd, &init);
	struct ibv_sge two[2] = { { .addr = (uintptr_t)w.a.buffer, .length = 8, .lkey = w.a.mr->lkey },
				  { .addr = (uintptr_t)w.a.buffer, .length = 8, .lkey = w.a.mr->lkey } };
	struct ibv_recv_wr *bad, wr = { .wr_id = 9, .sg_list = two, .num_sge = wrong ? 2 : 1 };
	MUST(srq && (ibv_post_srq_recv(srq, &wr, &bad) != 0) == wrong);
	MUST(!ibv_destroy_srq(srq));
	end_world(&w);
}

static struct ibv_qp *make_of_size(struct world *w, uint32_t send_wr, uint32_t recv_wr)
{
	struct ibv_qp_init_attr init = {
		.send_cq = w->a.cq,
		.recv_cq = w->a.cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = send_wr,
			 .max_recv_wr = recv_wr,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(w->pd, &init);
	MUST(qp);
	to_init(qp, IBV_ACCESS_REMOTE_WRITE);
	return qp;
}

void no_send_room(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *qp = make_of_size(&w, wrong ? 0 : 1, 1);
	connect_qp(&w, qp, qp->qp_num, &(struct wish){ 0 }, true); /* to itself */
	MUST((post(qp, request(&w.a, IBV_WR_RDMA_WRITE, 8, &w.b)) != 0) == wrong);
	MUST(!ibv_destroy_qp(qp));
	end_world(&w);
}

void no_receive_room(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *qp = make_of_size(&w, 1, wrong ? 0 : 1);
	MUST((post_receive(qp, (uintptr_t)w.a.buffer, 8, w.a.mr->lkey) != 0) == wrong);
	MUST(!ibv_destroy_qp(qp));
	end_world(&w);
}

void post_too_early(bool wrong)
{
	struct world w = make_world((struct wish){ .b_stays_in_init = true });
	int err = post(wrong ? w.b.qp : w.a.qp, request(&w.b, IBV_WR_SEND, 8, NULL));
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	MUST((err != 0) == wrong);
	MUST(!ibv_modify_qp(w.a.qp, &a, IBV_QP_STATE));
	end_world(&w);
}

/* The second one differs from the first by more than its numbers. */
void two_at_one_place(bool wrong)
{
	struct world w = make_world((struct wish){ 0 });
	struct ibv_qp *datagrams = make_qp(&w, w.a.cq, &(struct wish){ 0 }, IBV_QPT_UD);
	struct ibv_qp *qps[] = { wrong ? w.a.qp : datagrams, datagrams };
	union ibv_gid group = { .raw = { wrong ? 0xfd : 0xff, 0x02, [15] = 0x77 } };
	volatile int calls = 2; /* from one place: the loop stays one */
	for (int i = 0; i < calls; i++)
		MUST((ibv_attach_mcast(qps[i], &group, 0) == EINVAL) == wrong);
	MUST(wrong || !ibv_detach_mcast(datagrams, &group, 0));
	MUST(!ibv_destroy_qp(datagrams));
	end_world(&w);
}

/* Each call is a place. */
void too_many_to_remember(bool wrong)
{
#define FOUR(x)    x x x x
#define THOUSAND(x) FOUR(FOUR(FOUR(FOUR(FOUR(x))))) /* 1024 */
	struct world w = make_world((struct wish){ 0 });
	union ibv_gid group = { .raw = { 0xff, 0x02 } };
	if (wrong) {
		THOUSAND(MUST(ibv_attach_mcast(w.a.qp, &group, 0) == EINVAL);)
		for (int i = 0; i < 3; i++)
			MUST(ibv_attach_mcast(w.a.qp, &group, 0) == EINVAL);
	}
	end_world(&w);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(bool wrong);
	} cases[] = {
#define X(name) { #name, name },
		CASES(X)
#undef X
	};
	for (size_t i = 0; argc == 3 && i < sizeof(cases) / sizeof(cases[0]); i++)
		if (!strcmp(cases[i].name, argv[1])) {
			cases[i].run(!strcmp(argv[2], "wrong"));
			return 0;
		}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		puts(cases[i].name);
	return argc == 1 ? 0 : 99;
}
