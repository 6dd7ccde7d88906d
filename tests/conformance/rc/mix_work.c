/* SPDX-License-Identifier: BSD-2-Clause */
/* Acts as work requests, and completions as what has become of them. */
#include "mix_run.h"

#include <arpa/inet.h>

static uint64_t id_of(const struct party *p, const struct side *s, unsigned i)
{
	return (uint64_t)p->m->nth << 32 | nth_of(p, s) << 16 | i;
}

void mix_verify(struct party *p, uint64_t at, size_t n, uint64_t seed)
{
	static _Thread_local uint8_t wanted[100000];
	rc_fill(wanted, n, seed);
	for (size_t i = 0; i < n; i++)
		if (rc_byte(p->e->buf + at + i) != wanted[i]) {
			fprintf(stderr, "# byte %zu of %zu at %llu\n", i, n, (unsigned long long)at);
			MUST_EQ(p, rc_byte(p->e->buf + at + i), wanted[i]);
		}
}

/* ---- posting ---- */

/* Cuts a place in this end's buffer into scatter/gather entries. */
static int cut(struct party *p, const struct act *a, uint64_t at, uint32_t len, struct ibv_sge *sge)
{
	unsigned n = a->pieces;
	for (unsigned i = 0, from = 0; i < n; i++) {
		unsigned to =
			i + 1 == n ? len : (uint32_t)((a->seed >> 8 * i & 0xff) * (len - from) / 255) + from;
		sge[i] = (struct ibv_sge){ (uintptr_t)p->e->buf + at + from, to - from, p->e->mr->lkey };
		from = to;
	}
	return len || n > 1 ? (int)n : 0;
}

static unsigned flags_of(const struct act *a)
{
	return (a->quiet ? 0 : IBV_SEND_SIGNALED) | (a->solicited ? IBV_SEND_SOLICITED : 0) |
	       (a->fence ? IBV_SEND_FENCE : 0) | (a->inlined ? IBV_SEND_INLINE : 0);
}

struct ibv_mw_bind_info mix_own_window(struct party *p)
{
	return (struct ibv_mw_bind_info){ p->e->mr, (uintptr_t)p->e->buf, p->e->p.bytes,
					  IBV_ACCESS_REMOTE_WRITE };
}

static struct ibv_send_wr make_wr(struct party *p, struct side *s, unsigned i, struct ibv_sge *sge)
{
	const struct act *a = &s->out->act[i];
	const struct kind_facts *k = &kinds[a->kind];
	struct ibv_send_wr wr = {
		.wr_id = id_of(p, s, i), .opcode = k->wr, .send_flags = flags_of(a), .sg_list = sge
	};
	uint64_t remote = p->e->peer.addr + a->to;
	uint32_t rkey = a->lent ? s->peers_rkey : p->e->peer.rkey;
	if (!(k->is & LOCAL))
		wr.num_sge = cut(p, a, a->at, a->len, sge);
	if (a->kind == BIND) {
		s->own_rkey = ibv_inc_rkey(s->own_rkey);
		wr.bind_mw.mw = s->own;
		wr.bind_mw.rkey = s->own_rkey;
		wr.bind_mw.bind_info = mix_own_window(p);
	} else if (a->kind == UNBIND) {
		wr.invalidate_rkey = s->own_rkey;
	} else if (a->kind == SEND_INV) {
		wr.invalidate_rkey = rkey;
	} else if (a->kind == ADD || a->kind == SWAP || a->kind == TALLY) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = a->compare;
		wr.wr.atomic.swap = a->swap;
	} else {
		wr.imm_data = htonl(a->imm);
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	return wr;
}

static void build(struct ibv_qp_ex *ex, const struct ibv_send_wr *wr)
{
	ex->wr_id = wr->wr_id;
	ex->wr_flags = wr->send_flags & ~IBV_SEND_INLINE;
	switch (wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(ex);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(ex, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(ex, wr->invalidate_rkey);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
					wr->wr.atomic.compare_add);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
				      wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(ex, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		return;
	default:
		ibv_wr_local_inv(ex, wr->invalidate_rkey);
		return;
	}
	struct ibv_data_buf inlined[MIX_PIECES];
	for (int i = 0; i < wr->num_sge; i++)
		inlined[i] = (struct ibv_data_buf){ (void *)(uintptr_t)wr->sg_list[i].addr,
						    wr->sg_list[i].length };
	if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data_list(ex, wr->num_sge, inlined);
	else
		ibv_wr_set_sge_list(ex, wr->num_sge, wr->sg_list);
}

/* May this act be posted, beside `more` others that are not yet? */
bool mix_may_post(const struct side *s, unsigned i, unsigned more)
{
	const struct act *a = &s->out->act[i];
	return i < s->out->n && (!s->draining || s->posts_meanwhile) && a->after <= s->taken &&
	       (a->kind == DRAIN ? !s->draining : s->places + more < s->plan->sends);
}

void mix_post(struct party *p, struct side *s, unsigned most, bool builds)
{
	struct ibv_sge sge[MIX_BATCH][MIX_PIECES];
	struct ibv_send_wr wr[MIX_BATCH], *bad;
	unsigned n = 0, first = s->posted;
	for (; n < most && mix_may_post(s, first + n, n) && s->out->act[first + n].kind != DRAIN; n++) {
		wr[n] = make_wr(p, s, first + n, sge[n]);
		if (n)
			wr[n - 1].next = &wr[n];
		s->told += (kinds[s->out->act[first + n].kind].is & MESSAGE) != 0;
	}
	s->posted += n;
	s->places += n;
	if (builds) {
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(s->qp);
		ibv_wr_start(ex);
		for (unsigned i = 0; i < n; i++)
			build(ex, &wr[i]);
		MUST_EQ(p, ibv_wr_complete(ex), 0);
	} else {
		MUST_EQ(p, ibv_post_send(s->qp, wr, &bad), 0);
	}
	for (unsigned i = 0; i < n; i++) /* what is inline has been copied */
		if (s->out->act[first + i].inlined)
			rc_set(p->e->buf + s->out->act[first + i].at, s->out->act[first + i].len, 0);
}

void mix_drain(struct party *p, struct side *s, bool posts_meanwhile)
{
	atomic_fetch_add(&p->draining, 1);
	s->posted++;
	s->draining = true;
	s->posts_meanwhile = posts_meanwhile;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	MUST_EQ(p, ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
}

static void take_events(struct party *p)
{
	struct ibv_async_event event;
	pthread_mutex_lock(&p->events_lock);
	while (rc_readable(p->e->ctx->async_fd, 0)) {
		MUST_EQ(p, ibv_get_async_event(p->e->ctx, &event), 0);
		MUST(p, event.event_type == IBV_EVENT_SQ_DRAINED || event.event_type == IBV_EVENT_COMM_EST);
		for (unsigned q = 0; event.event_type == IBV_EVENT_SQ_DRAINED && q < p->m->qps; q++)
			if (p->side[q].qp == event.element.qp)
				atomic_store(&p->side[q].drained, true);
		ibv_ack_async_event(&event);
	}
	pthread_mutex_unlock(&p->events_lock);
}

void mix_look_whether_drained(struct party *p, struct side *s)
{
	take_events(p);
	if (!atomic_exchange(&s->drained, false))
		return;
	MUST_EQ(p, rc_to(s->qp, IBV_QPS_RTS), 0);
	s->draining = false;
	atomic_fetch_sub(&p->draining, 1);
	atomic_fetch_add(&mix_steps, 1);
}

/* ---- receives ---- */

bool mix_may_give(const struct side *s)
{
	return !s->plan->srq && s->given < s->in->nmessages && s->given - s->taken < s->plan->recvs;
}

void mix_give(struct party *p, struct side *s)
{
	unsigned i = s->in->message[s->given++];
	const struct act *a = &s->in->act[i];
	struct ibv_sge sge[MIX_PIECES];
	struct ibv_recv_wr *bad, wr = { .wr_id = id_of(p, s, i), .sg_list = sge };
	if (a->kind != WRITE_IMM)
		wr.num_sge = cut(p, a, a->to, a->len, sge);
	MUST_EQ(p, ibv_post_recv(s->qp, &wr, &bad), 0);
}

void mix_give_shared(struct party *p, unsigned n)
{
	pthread_mutex_lock(&p->srq_lock);
	for (; n && p->srq_given < p->m->srq_messages[d_of(p)]; n--, p->srq_given++)
		MUST_EQ(p,
			rc_post_recv(p->e, NULL, p->srq_given,
				     p->m->srq_at[d_of(p)] + (uint64_t)p->srq_given * MIX_SRQ_BYTES,
				     MIX_SRQ_BYTES),
			0);
	pthread_mutex_unlock(&p->srq_lock);
}

/* ---- completions ---- */

static void check_fetched(struct party *p, const struct act *a)
{
	if (a->kind == READ)
		mix_verify(p, a->at, a->len, a->seed);
	else if (a->kind == ADD || a->kind == SWAP)
		MUST_EQ(p, rc_word(p->e->buf + a->at), a->found);
}

static void take_send(struct party *p, struct side *s, const struct ibv_wc *wc)
{
	unsigned i = (unsigned)wc->wr_id & 0xffff;
	MUST_EQ(p, wc->wr_id, id_of(p, s, i));
	MUST(p, s->done <= i && i < s->posted);
	const struct act *a = &s->out->act[i];
	for (unsigned k = s->done; k < i; k++)
		MUST(p, s->out->act[k].quiet || s->out->act[k].kind == DRAIN);
	MUST(p, !a->quiet);
	MUST_EQ(p, wc->opcode, kinds[a->kind].wc);
	if (kinds[a->kind].is & FETCHES)
		MUST_EQ(p, wc->byte_len, a->len);
	s->places -= s->carried;
	s->carried = 0;
	for (; s->done <= i; s->done++) {
		const struct act *b = &s->out->act[s->done];
		s->places -= b->kind != DRAIN;
		if (kinds[b->kind].is & FETCHES)
			check_fetched(p, b);
		else if (kinds[b->kind].is & PAYLOAD)
			rc_set(p->e->buf + b->at, b->len, 0); /* nobody needs it any more */
	}
}

/* What was written before the message is there. */
void mix_check_writes(struct party *p, struct side *s, unsigned until)
{
	for (; s->seen <= until; s->seen++) {
		const struct act *a = &s->in->act[s->seen];
		if (a->kind == WRITE || a->kind == WRITE_IMM)
			mix_verify(p, a->to, a->len, a->seed);
	}
}

static uint64_t place_of(struct party *p, struct side *s, const struct act *a, unsigned i, uint64_t id)
{
	if (!s->plan->srq) {
		MUST_EQ(p, id, id_of(p, s, i));
		return a->to;
	}
	MUST(p, id < p->m->srq_messages[d_of(p)]);
	pthread_mutex_lock(&p->srq_lock);
	MUST(p, !p->srq_used[id]);
	p->srq_used[id] = true;
	pthread_mutex_unlock(&p->srq_lock);
	return p->m->srq_at[d_of(p)] + id * MIX_SRQ_BYTES;
}

static void take_receive(struct party *p, struct side *s, const struct ibv_wc *wc)
{
	MUST(p, s->taken < s->in->nmessages);
	unsigned i = s->in->message[s->taken++];
	const struct act *a = &s->in->act[i];
	uint64_t at = place_of(p, s, a, i, wc->wr_id);
	bool is_imm = kinds[a->kind].is & HAS_IMM;
	MUST_EQ(p, wc->opcode, a->kind == WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
	MUST_EQ(p, wc->byte_len, a->len);
	MUST_EQ(p, wc->wc_flags, is_imm ? IBV_WC_WITH_IMM : a->kind == SEND_INV ? IBV_WC_WITH_INV : 0);
	if (is_imm)
		MUST_EQ(p, ntohl(wc->imm_data), a->imm);
	if (a->kind == SEND_INV)
		MUST_EQ(p, wc->invalidated_rkey, s->lent_rkey);
	else if (a->kind != WRITE_IMM)
		mix_verify(p, at, a->len, a->seed);
	mix_check_writes(p, s, i);
	if (s->plan->srq)
		mix_give_shared(p, 1);
}

static struct side *side_of(struct party *p, uint32_t qpn)
{
	for (unsigned q = 0; q < p->m->qps; q++)
		if (p->side[q].qp->qp_num == qpn)
			return &p->side[q];
	MUST(p, !"a completion of no queue pair");
	return NULL;
}

void mix_take(struct party *p, struct group *g, unsigned cq, const struct ibv_wc *wc)
{
	struct side *s = side_of(p, wc->qp_num);
	MUST_EQ(p, wc->status, IBV_WC_SUCCESS);
	MUST(p, &p->group[s->plan->group] == g);
	MUST_EQ(p, wc->opcode & IBV_WC_RECV ? s->plan->rcq : s->plan->scq, cq);
	if (wc->opcode & IBV_WC_RECV)
		take_receive(p, s, wc);
	else
		take_send(p, s, wc);
}
