/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults on purpose (verbatim-faults(7)) as a program sees them through the calls that Debian's programs do
 * not make. The library reads its setting when it is loaded, so each case runs in this program executed anew,
 * with its expression.
 */
#include "../../again.h"
#include "raw.h"

static bool becomes(struct ibv_qp *qp, enum ibv_qp_state state)
{
	for (unsigned ms = 0; ms < 5000 && state_of(qp) != state; ms++)
		usleep(1000);
	return state_of(qp) == state;
}

/* ---- calls ---- */

static void calls__fail_once(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	struct ibv_wc wc;
	assert_null_errno(ENOMEM, ibv_reg_mr(w->pd, w->buffer, 16, 0)); /* the world's is the first */
	struct ibv_mr *mr = ibv_reg_mr(w->pd, w->buffer, 16, 0);
	assert_errno(EBUSY, ibv_dereg_mr(mr));
	assert_errno(0, ibv_dereg_mr(mr));
	assert_errno(ENOMEM, post_recv(w, x.b, 1));
	assert_errno(0, post_recv(w, x.b, 1));
	assert_errno(0, post_send(w, x.a, 1, 0));
	assert_errno(EIO, post_send(w, x.a, 2, 0));
	assert_int_equal(ibv_poll_cq(w->cq, 1, &wc), -EFAULT);
	drain(w->cq, 2);
	assert_errno(EINVAL, ibv_req_notify_cq(w->cq, 0));
	disconnected(&x);
}

/* By a descriptor that is none programs ask whether dma-bufs can be registered. */
static void calls__fail_to_answer(void **state)
{
	struct world *w = *state;
	assert_null_errno(EOPNOTSUPP, ibv_reg_dmabuf_mr(w->pd, 0, BUFFER, 0, -1, 0));
	assert_null_errno(EBADF, ibv_reg_dmabuf_mr(w->pd, 0, BUFFER, 0, -1, 0));
}

static void wr_complete__fails_and_forgets(void **state)
{
	struct world *w = *state;
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RC,
					    .send_cq = w->cq,
					    .recv_cq = w->cq,
					    .pd = w->pd,
					    .sq_sig_all = 1,
					    .cap = qp_attr(w).cap,
					    .comp_mask =
						    IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct ibv_qp *a = ibv_create_qp_ex(w->ctx, &attr), *b = make_qp(w, NULL);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a);
	bring_to(w, a, IBV_QPS_RTS, b->qp_num);
	bring_to(w, b, IBV_QPS_RTS, a->qp_num);
	assert_errno(0, post_recv(w, b, 7));
	for (int turn = 0; turn < 2; turn++) {
		ibv_wr_start(ex);
		ex->wr_id = (uint64_t)turn;
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, w->mr->lkey, (uintptr_t)w->buffer, 16);
		assert_errno(turn == 0 ? EIO : 0, ibv_wr_complete(ex));
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = next_wc(w->cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, wc.opcode == IBV_WC_RECV ? 7 : 1);
	}
	assert_errno(0, ibv_destroy_qp(a));
	assert_errno(0, ibv_destroy_qp(b));
}

/* What a call that fails takes back is no call of the program's: nothing stays, as the teardown finds. */
static void calls__take_back_what_they_made(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr_ex tags = tags_attr(w, 1 << 20, 8);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = w->cq,
		.recv_cq = w->cq,
		.qp_type = IBV_QPT_RC,
		.pd = w->pd,
		.send_ops_flags = IBV_QP_EX_WITH_TSO,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
	};
	assert_null_errno(EOPNOTSUPP, ibv_create_qp_ex(w->ctx, &attr));
	assert_null_errno(EINVAL, ibv_create_srq_ex(w->ctx, &tags));
}

static void counts__begin_anew_in_a_child(void **state)
{
	struct world *w = *state;
	int status;
	assert_null_errno(ENOMEM, ibv_alloc_pd(w->ctx)); /* the second */
	pid_t pid = fork();
	if (pid == 0) {
		is_forked_child = true;
		struct ibv_context *ctx = open_test_device();
		if (!ibv_alloc_pd(ctx))
			FAILS("the first is refused");
		assert_null_errno(ENOMEM, ibv_alloc_pd(ctx));
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- completions ---- */

static void complete__what_is_behind_is_flushed(void **state)
{
	static const enum ibv_wc_status wanted[] = { IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR,
						     IBV_WC_WR_FLUSH_ERR };
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	unsigned received = 0, sent = 0;
	for (uint64_t i = 0; i < COUNT(wanted); i++)
		assert_errno(0, post_recv(w, x.b, i));
	for (uint64_t i = 0; i < COUNT(wanted) - 1; i++)
		assert_errno(0, post_send(w, x.a, i, 0));
	while (received < COUNT(wanted) || sent < COUNT(wanted) - 1) {
		struct ibv_wc wc = next_wc(w->cq);
		bool is_recv = wc.qp_num == x.b->qp_num;
		unsigned at = is_recv ? received++ : sent++;
		assert_int_equal(wc.wr_id, at);
		if (is_recv)
			assert_int_equal(wc.status, wanted[at]);
	}
	assert_int_equal(state_of(x.b), IBV_QPS_ERR);
	assert_int_equal(set_state(x.b, IBV_QPS_RESET), 0);
	disconnected(&x);
}

static void complete__by_extended_polls(void **state)
{
	struct world *w = *state;
	struct ibv_cq_init_attr_ex attr = { .cqe = 8 };
	struct ibv_poll_cq_attr how = { 0 };
	struct ibv_cq_ex *ex = ibv_create_cq_ex(w->ctx, &attr);
	struct ibv_qp_init_attr init = qp_attr(w);
	init.send_cq = ibv_cq_ex_to_cq(ex);
	struct ibv_qp *a = ibv_create_qp(w->pd, &init), *b = make_qp(w, NULL);
	bring_to(w, a, IBV_QPS_RTS, b->qp_num);
	bring_to(w, b, IBV_QPS_RTS, a->qp_num);
	for (uint64_t i = 0; i < 2; i++) {
		assert_errno(0, post_recv(w, b, i));
		assert_errno(0, post_send(w, a, i, 0));
	}
	drain(w->cq, 2);
	for (uint64_t i = 0; i < 2; i++) {
		int err;
		while ((err = ibv_start_poll(ex, &how)) == ENOENT)
			;
		assert_errno(0, err);
		assert_int_equal(ex->wr_id, i);
		assert_int_equal(ex->status, i == 0 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
		ibv_end_poll(ex);
	}
	assert_int_equal(state_of(a), IBV_QPS_ERR);
	assert_errno(0, ibv_destroy_qp(a));
	assert_errno(0, ibv_destroy_qp(b));
	assert_errno(0, ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
}

/* A queue pair that can send, and how to send it a datagram of its own. */
struct ud {
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
};

static void make_ud(struct world *w, struct ud *u)
{
	struct ibv_qp_init_attr init = qp_attr(w);
	struct ibv_ah_attr to = connect_attr(w, 0).ah_attr;
	struct ibv_qp_attr attr = { .port_num = 1, .qkey = 5 };
	static const int masks[] = { [IBV_QPS_INIT] =
					     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
				     [IBV_QPS_RTR] = IBV_QP_STATE,
				     [IBV_QPS_RTS] = IBV_QP_STATE | IBV_QP_SQ_PSN };
	init.qp_type = IBV_QPT_UD;
	assert_non_null(u->qp = ibv_create_qp(w->pd, &init));
	for (attr.qp_state = IBV_QPS_INIT; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++)
		assert_errno(0, ibv_modify_qp(u->qp, &attr, masks[attr.qp_state]));
	assert_non_null(u->ah = ibv_create_ah(w->pd, &to));
	u->sge = sge_at(w, 0, 16);
	u->wr = (struct ibv_send_wr){
		.sg_list = &u->sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = { .ah = u->ah, .remote_qpn = u->qp->qp_num, .remote_qkey = 5 },
	};
}

static void end_ud(struct ud *u)
{
	assert_errno(0, ibv_destroy_ah(u->ah));
	assert_errno(0, ibv_destroy_qp(u->qp));
}

static void send_datagram(struct ud *u)
{
	struct ibv_send_wr *bad;
	assert_errno(0, ibv_post_send(u->qp, &u->wr, &bad));
}

static void complete__sends_of_datagrams_stop(void **state)
{
	struct world *w = *state;
	struct ud u;
	make_ud(w, &u);
	send_datagram(&u);
	assert_int_equal(next_wc(w->cq).status, IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(state_of(u.qp), IBV_QPS_SQE);
	end_ud(&u);
}

/* They go to a shared receive queue, and receive nothing. */
static void complete__operations_on_tags_are_no_receives(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr_ex attr = tags_attr(w, 1, 8);
	struct ibv_ops_wr *bad, wr = { .opcode = IBV_WR_TAG_ADD, .flags = IBV_OPS_SIGNALED };
	struct ibv_srq *srq = ibv_create_srq_ex(w->ctx, &attr);
	assert_non_null(srq);
	assert_errno(0, ibv_post_srq_ops(srq, &wr, &bad));
	struct ibv_wc wc = next_wc(w->cq);
	assert_int_equal(wc.opcode, IBV_WC_TM_ADD);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_errno(0, ibv_destroy_srq(srq));
}

/* ---- receives ---- */

static void rnr__comes_in_time(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	uint64_t received = 0;
	for (uint64_t i = 0; i < 4; i++)
		assert_errno(0, post_recv(w, x.b, i));
	for (uint64_t i = 0; i < 4; i++)
		assert_errno(0, post_send(w, x.a, i, 0));
	for (unsigned n = 0; n < 8; n++) {
		struct ibv_wc wc = next_wc(w->cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_RECV)
			assert_int_equal(wc.wr_id, received++);
	}
	disconnected(&x);
}

static void rnr__comes_too_late(void **state)
{
	struct world *w = *state;
	struct wire x = { make_qp(w, NULL), make_qp(w, NULL) };
	struct ibv_qp_attr attr = connect_attr(w, x.b->qp_num);
	bring_to(w, x.b, IBV_QPS_RTS, x.a->qp_num);
	bring_to(w, x.a, IBV_QPS_RTR, x.b->qp_num);
	attr.qp_state = IBV_QPS_RTS;
	attr.rnr_retry = 1;
	assert_errno(0, ibv_modify_qp(x.a, &attr, mask_to[IBV_QPS_RTS]));
	assert_errno(0, post_recv(w, x.b, 1));
	assert_errno(0, post_recv(w, x.b, 2));
	assert_errno(EINVAL, ibv_post_recv(x.b, &(struct ibv_recv_wr){ .num_sge = SGES + 1 },
					   &(struct ibv_recv_wr *){ NULL }));
	assert_errno(0, post_send(w, x.a, 1, 0));
	drain(w->cq, 2);
	assert_errno(0, post_send(w, x.a, 2, 0));
	assert_int_equal(next_wc(w->cq).status, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_errno(0, set_state(x.b, IBV_QPS_ERR));
	struct ibv_wc wc = next_wc(w->cq); /* it was posted all the same */
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 2);
	disconnected(&x);
}

static void rnr__takes_up_room(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	for (uint64_t i = 0; i < DEPTH; i++)
		assert_errno(0, post_recv(w, x.b, i));
	assert_errno(ENOMEM, post_recv(w, x.b, DEPTH));
	assert_errno(0, set_state(x.b, IBV_QPS_ERR));
	for (uint64_t i = 0; i < DEPTH; i++) {
		struct ibv_wc wc = next_wc(w->cq);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.wr_id, i);
	}
	assert_errno(0, post_recv(w, x.b, DEPTH));
	assert_int_equal(next_wc(w->cq).wr_id, DEPTH);
	disconnected(&x);
}

static void await_event(struct world *w)
{
	struct ibv_cq *cq;
	void *context;
	assert_int_equal(ibv_get_cq_event(w->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
}

/* A receive comes in its time, whatever another one's is, and is flushed, while nobody polls. */
static void rnr__needs_no_poll(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	assert_errno(0, post_recv(w, x.a, 1));
	assert_errno(0, post_recv(w, x.b, 2));
	assert_errno(0, post_send(w, x.b, 3, 0));
	await_event(w);
	drain(w->cq, 2);
	assert_errno(0, ibv_req_notify_cq(w->cq, 0));
	assert_errno(0, set_state(x.b, IBV_QPS_ERR));
	await_event(w);
	assert_int_equal(next_wc(w->cq).wr_id, 2);
	disconnected(&x);
}

static void rnr__of_shared_queues(void **state)
{
	struct world *w = *state;
	struct ibv_srq *srq = make_srq(w);
	struct wire x = connected(w, srq);
	for (uint64_t i = 0; i < 2; i++) {
		assert_errno(0, post_srq(w, srq, i));
		assert_errno(0, post_send(w, x.a, i, 0));
	}
	drain(w->cq, 4);
	assert_errno(0, post_srq(w, srq, 0)); /* kept, and dropped with the queue */
	disconnected(&x);
	assert_errno(0, ibv_destroy_srq(srq));
}

/* A queue that is in use cannot be destroyed; the try takes nothing from it. */
static void rnr__outlives_a_refused_end(void **state)
{
	struct world *w = *state;
	struct ibv_srq *srq = make_srq(w);
	struct wire x = connected(w, srq);
	assert_errno(0, post_srq(w, srq, 0));
	assert_errno(EBUSY, ibv_destroy_srq(srq));
	assert_errno(0, post_send(w, x.a, 1, 0));
	for (int i = 0; i < 2; i++)
		assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
	disconnected(&x);
	assert_errno(0, ibv_destroy_srq(srq));
}

/* ---- ports and devices ---- */

static enum ibv_event_type next_event(struct ibv_context *ctx)
{
	struct ibv_async_event event;
	assert_int_equal(ibv_get_async_event(ctx, &event), 0);
	ibv_ack_async_event(&event);
	return event.event_type;
}

static enum ibv_port_state port_state(struct ibv_context *ctx)
{
	struct ibv_port_attr port;
	assert_errno(0, ibv_query_port(ctx, 1, &port));
	return port.state;
}

static void link__goes_and_comes(void **state)
{
	struct world *w = *state;
	struct ibv_device_attr attr;
	assert_int_equal(port_state(w->ctx), IBV_PORT_ACTIVE);
	assert_errno(0, ibv_query_device(w->ctx, &attr));
	assert_int_equal(next_event(w->ctx), IBV_EVENT_PORT_ERR);
	assert_int_equal(port_state(w->ctx), IBV_PORT_DOWN);
	ibv_free_device_list(ibv_get_device_list(NULL)); /* a look at the interfaces does not mend it */
	assert_int_equal(port_state(w->ctx), IBV_PORT_DOWN);
	assert_int_equal(next_event(w->ctx), IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(port_state(w->ctx), IBV_PORT_ACTIVE);
}

static void link__is_down_as_long_as_a_rule_says_so(void **state)
{
	struct world *w = *state;
	struct ibv_device_attr attr;
	assert_errno(0, ibv_query_device(w->ctx, &attr));
	assert_int_equal(next_event(w->ctx), IBV_EVENT_PORT_ERR);
	for (unsigned ms = 0; ms < 300; ms++) {
		assert_int_equal(port_state(w->ctx), IBV_PORT_DOWN);
		usleep(1000);
	}
}

static void link__carries_no_frames(void **state)
{
	struct world *w = *state;
	struct ibv_qp *sender = make_sender(w), *qp = make_raw(w);
	struct rule r = rule_for(1000, 0);
	struct ibv_flow *flow = steer(qp, &r);
	struct ibv_device_attr attr;
	post_at(w, qp, 2);
	post_at(w, qp, 3);
	send_frame(w, sender, 1, 1000);
	assert_int_equal(next_wc(w->cq).wr_id, 2);
	assert_errno(0, ibv_query_device(w->ctx, &attr));
	assert_int_equal(port_state(w->ctx), IBV_PORT_DOWN);
	send_frame(w, sender, 1, 1000);
	nothing_more(w);
	assert_int_equal(next_event(w->ctx), IBV_EVENT_PORT_ERR);
	assert_errno(0, ibv_destroy_flow(flow));
	assert_errno(0, ibv_destroy_qp(qp));
	destroy_sender(sender);
}

static void device__fails(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	assert_errno(0, post_recv(w, x.b, 1));
	assert_errno(EIO, post_send(w, x.a, 1, 0));
	assert_int_equal(next_wc(w->cq).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(next_event(w->ctx), IBV_EVENT_DEVICE_FATAL);
	assert_null_errno(EIO, ibv_alloc_pd(w->ctx));
	assert_null_errno(EIO, ibv_reg_mr(w->pd, w->buffer, 16, 0));
	assert_rereg_errno(EIO, ibv_rereg_mr(w->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	assert_errno(EIO, ibv_resize_cq(w->cq, 32));
	disconnected(&x);
}

/* ---- packets ---- */

/* Every message once, in order, whatever becomes of its packets. */
static void packets__are_repaired(void **state)
{
	enum { MESSAGES = 60, WINDOW = 4 };
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	uint64_t received = 0, sent = 0, posted = 0;
	while (received < MESSAGES || sent < MESSAGES) {
		for (; posted < MESSAGES && posted - sent < WINDOW && posted - received < WINDOW; posted++) {
			assert_errno(0, post_recv(w, x.b, posted));
			assert_errno(0, post_send(w, x.a, posted, 0));
		}
		struct ibv_wc wc = next_wc(w->cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, wc.opcode == IBV_WC_RECV ? received++ : sent++);
	}
	disconnected(&x);
}

static void nothing_arrives(struct world *w, unsigned ms)
{
	struct ibv_wc wc;
	for (; ms; ms--) {
		if (ibv_poll_cq(w->cq, 1, &wc))
			assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
		usleep(1000);
	}
}

/* Both copies of a doubled packet, and a freeze that is shorter does not end the one that is longer. */
static void freeze__holds_all(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	struct ibv_device_attr attr;
	assert_errno(0, ibv_query_device(w->ctx, &attr));
	assert_int_equal(port_state(w->ctx), IBV_PORT_ACTIVE);
	assert_errno(0, post_recv(w, x.b, 1));
	assert_errno(0, post_send(w, x.a, 1, 0));
	nothing_arrives(w, 200);
	disconnected(&x);
}

/* In a process of its own, without a freeze. Exit status 1: a datagram came after the word that none may. */
static void hear_nothing(int tell, int word)
{
	void *state;
	struct ud u;
	struct ibv_wc wc;
	char byte;
	is_forked_child = true;
	make_world(&state);
	struct world *w = state;
	make_ud(w, &u);
	if (post_recv(w, u.qp, 1) || write(tell, &u.qp->qp_num, sizeof(u.qp->qp_num)) < 0 ||
	    read(word, &byte, 1) != 1)
		_exit(2);
	if (ibv_poll_cq(w->cq, 1, &wc)) /* the sender was not given the time */
		_exit(0);
	for (unsigned ms = 0; ms < 2500; ms++) {
		if (ibv_poll_cq(w->cq, 1, &wc))
			_exit(1);
		usleep(1000);
	}
	_exit(0);
}

/* What an earlier freeze has held back. */
static void freeze__goes_on(void **state)
{
	struct world *w = *state;
	struct ibv_device_attr attr;
	int tell[2], word[2], status;
	struct ud u;
	assert_int_equal(pipe(tell), 0);
	assert_int_equal(pipe(word), 0);
	pid_t pid = fork();
	if (pid == 0)
		hear_nothing(tell[1], word[0]);
	make_ud(w, &u);
	assert_int_equal(read(tell[0], &u.wr.wr.ud.remote_qpn, sizeof(uint32_t)), sizeof(uint32_t));
	assert_errno(0, ibv_query_device(w->ctx, &attr));
	send_datagram(&u);
	assert_int_equal(port_state(w->ctx), IBV_PORT_ACTIVE);
	assert_int_equal(write(word[1], "", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	drain(w->cq, 1);
	end_ud(&u);
}

/* ---- multicast ---- */

static const union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 77, 1, 2 } };

static void make_ud_to_group(struct world *w, struct ud *u)
{
	struct ibv_ah_attr to = connect_attr(w, 0).ah_attr;
	make_ud(w, u);
	assert_errno(0, ibv_destroy_ah(u->ah));
	to.grh.dgid = group;
	assert_non_null(u->ah = ibv_create_ah(w->pd, &to));
	u->wr.wr.ud.ah = u->ah;
	u->wr.wr.ud.remote_qpn = 0xffffff;
}

/* In a process of its own, whose link is up: sends a datagram for each word. */
static void send_to_group(int word)
{
	void *state;
	struct ud u;
	char byte;
	is_forked_child = true;
	make_world(&state);
	struct world *w = state;
	make_ud_to_group(w, &u);
	while (read(word, &byte, 1) == 1) {
		send_datagram(&u);
		drain(w->cq, 1);
	}
	_exit(0);
}

static void link__carries_no_group(void **state)
{
	struct world *w = *state;
	struct ibv_device_attr attr;
	int word[2], status;
	struct ud u;
	assert_int_equal(pipe2(word, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(word[1]);
		send_to_group(word[0]);
	}
	make_ud_to_group(w, &u);
	assert_errno(0, ibv_attach_mcast(u.qp, &group, 0));
	assert_errno(0, post_recv(w, u.qp, 1));
	assert_errno(0, post_recv(w, u.qp, 2));
	assert_int_equal(write(word[1], "", 1), 1);
	drain(w->cq, 1);
	assert_errno(0, ibv_query_device(w->ctx, &attr));
	assert_int_equal(port_state(w->ctx), IBV_PORT_DOWN);
	assert_int_equal(write(word[1], "", 1), 1);
	close(word[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	nothing_arrives(w, 100);
	assert_int_equal(next_event(w->ctx), IBV_EVENT_PORT_ERR);
	assert_errno(0, ibv_detach_mcast(u.qp, &group, 0));
	end_ud(&u);
	close(word[0]);
}

static void freeze__loses_what_is_too_much(void **state)
{
	enum { MANY = 17000 }; /* are not held back */
	struct world *w = *state;
	struct ibv_device_attr attr;
	struct ud u;
	make_ud(w, &u);
	for (uint64_t i = 0; i < DEPTH; i++)
		assert_errno(0, post_recv(w, u.qp, i));
	assert_errno(0, ibv_query_device(w->ctx, &attr));
	for (unsigned i = 0; i < MANY; i++) {
		send_datagram(&u);
		assert_int_equal(next_wc(w->cq).opcode, IBV_WC_SEND);
	}
	nothing_arrives(w, 20);
	end_ud(&u);
}

static void peer__vanishes(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	assert_errno(0, post_recv(w, x.b, 1));
	assert_errno(0, post_recv(w, x.b, 2));
	assert_errno(0, post_send(w, x.a, 1, 0));
	drain(w->cq, 2);
	assert_errno(0, post_send(w, x.a, 2, 0));
	assert_int_equal(next_wc(w->cq).status, IBV_WC_RETRY_EXC_ERR);
	assert_true(becomes(x.a, IBV_QPS_ERR));
	disconnected(&x);
}

/* By the last rule that an expression can have. */
static void peer__another_one_vanishes(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	struct ibv_device_attr attr;
	assert_errno(0, ibv_query_device(w->ctx, &attr));
	assert_errno(0, post_recv(w, x.b, 1));
	assert_errno(0, post_send(w, x.a, 1, 0));
	drain(w->cq, 2);
	disconnected(&x);
}

/* ---- running ---- */

#define TEN_TIMES(x) x x x x x x x x x x

static const struct {
	const char *name, *faults;
	void (*run)(void **state);
} cases[] = {
#define CASE(function, expression) { #function, expression, function }
	CASE(calls__fail_once, "fail ibv_reg_mr ENOMEM #2; fail ibv_dereg_mr EBUSY #1; fail ibv_post_recv ENOMEM #1; "
			       "fail ibv_post_send EIO #2 qp=1; fail ibv_poll_cq EFAULT #1; fail ibv_req_notify_cq EINVAL"),
	CASE(calls__fail_to_answer, "fail ibv_reg_dmabuf_mr EOPNOTSUPP #1"),
	CASE(wr_complete__fails_and_forgets, "fail ibv_wr_complete EIO #1"),
	CASE(calls__take_back_what_they_made, "fail ibv_destroy_qp EBUSY; fail ibv_destroy_srq EBUSY"),
	CASE(counts__begin_anew_in_a_child, "fail ibv_alloc_pd ENOMEM #2"),
	CASE(complete__what_is_behind_is_flushed, "complete recv LOC_PROT_ERR #2 qp=2"),
	CASE(complete__by_extended_polls, "complete send REM_ACCESS_ERR #1 qp=1"),
	CASE(complete__sends_of_datagrams_stop, "complete send LOC_QP_OP_ERR #1"),
	CASE(complete__operations_on_tags_are_no_receives, "complete recv LOC_PROT_ERR"),
	CASE(rnr__comes_in_time, "rnr #2 for 30ms qp=2"),
	CASE(rnr__comes_too_late, "rnr #2"),
	CASE(rnr__takes_up_room, "rnr #3+"),
	CASE(rnr__needs_no_poll, "rnr qp=1 for 10ms; rnr qp=2 for 10min"),
	CASE(rnr__of_shared_queues, "rnr #2 for 20ms; rnr #3"),
	CASE(rnr__outlives_a_refused_end, "rnr for 300ms"),
	CASE(link__goes_and_comes, "link down for 300ms device=vb_lo at ibv_query_device"),
	CASE(link__is_down_as_long_as_a_rule_says_so,
	     "link down for 50ms device=vb_lo at ibv_query_device; link down at ibv_query_device"),
	CASE(link__carries_no_frames, "link down at ibv_query_device"),
	CASE(link__carries_no_group, "link down at ibv_query_device"),
	CASE(device__fails, "event DEVICE_FATAL at ibv_post_send"),
	CASE(packets__are_repaired, "seed=5; drop 10%; duplicate 10%; reorder 10%; corrupt 5%; delay 100us-2ms 10%; drop 5% in; "
				    "duplicate 5% in; reorder 5% in; delay 1ms 5% in; drop 5% of ack; corrupt 1% in"),
	CASE(freeze__holds_all, "duplicate; freeze 10min at ibv_query_device; freeze 1us at ibv_query_port"),
	CASE(freeze__goes_on, "freeze 2s at ibv_query_device; freeze 10min at ibv_query_port"),
	CASE(freeze__loses_what_is_too_much, "freeze 10min at ibv_query_device"),
	CASE(peer__vanishes, "vanish at ibv_post_send #2"),
	CASE(peer__another_one_vanishes, "seed=1; " TEN_TIMES("refuse; refuse; refuse; ")
					 "refuse; vanish peer=192.0.2.1 at ibv_query_device"),
#undef CASE
};

/* With its faults, and quiet: the verdict is its exit status. */
static void run_anew(void **state)
{
	enum { LIMIT_S = 60 };
	size_t which = (size_t)(uintptr_t)*state;
	char number[8];
	int status;
	snprintf(number, sizeof(number), "%zu", which);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(LIMIT_S);
		setenv("VERBATIM_FAULTS", cases[which].faults, 1);
		dup2(STDERR_FILENO, STDOUT_FILENO);
		run_again(number);
		_exit(99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status)
		fail_msg("%s: %s", cases[which].name,
			 WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "failed");
}

static int run_case(size_t which)
{
	struct CMUnitTest test[] = { { cases[which].name, cases[which].run, make_world, end_world, NULL } };
	cmocka_set_message_output(CM_OUTPUT_STDOUT);
	return cmocka_run_group_tests(test, NULL, NULL);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[COUNT(cases)];
	if (argc > 1)
		return run_case((size_t)atoi(argv[1]));
	for (size_t i = 0; i < COUNT(cases); i++)
		tests[i] = (struct CMUnitTest){ cases[i].name, run_anew, NULL, NULL, (void *)(uintptr_t)i };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
