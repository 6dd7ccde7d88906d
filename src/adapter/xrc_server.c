/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The owner's side of shared domains (xrc/xrc_protocol.h): does for clients, one queue pair of theirs each,
 * what the engines do for this process's own. A client's queue pair is shown to this process's queues as one
 * with its number and no path.
 *
 * All that a client says is checked here or, as every request of a peer, by vb_execution_ops.
 */
#include "adapter/xrc_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/execution/execute.h"
#include "adapter/progress/progress.h"
#include "adapter/start.h"

enum { MAX_QPN = 0xffffff };

struct server {
	struct vb_list node;
	enum vb_xrc_what what;
	uint32_t slot;
	struct vb_rpc_server *server;
};

/* In a server's thread alone; but a thread that destroys the queue takes it out of there, under resp_lock. */
struct client {
	struct vb_qp qp;
	struct vb_execution execution;
};

/* Of the other server. */
struct holder {
	const struct vb_xrc_server *share;
	void *handle; /* on a queue pair of this process; NULL: none was asked for */
};

static pthread_mutex_t share_lock = PTHREAD_MUTEX_INITIALIZER;
static const struct vb_xrc_handles *handles;

void vb_xrc_set_handles(const struct vb_xrc_handles *of_verbs) { handles = of_verbs; }

/* ---- clients ---- */

static void *come(void *owner)
{
	struct vb_xrc_server *share = owner;
	struct client *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->qp.type = IBV_QPT_XRC_RECV;
	c->qp.xrcd = &share->xrcd;
	vb_lock_init(&c->qp.resp_lock);
	vb_list_init(&c->qp.srq_node);
	vb_list_init(&c->qp.run_node);
	c->execution.qp = &c->qp;
	return c;
}

static void leave(void *arg)
{
	struct client *c = arg;
	vb_lock(&c->qp.resp_lock);
	vb_execution_end_receive(&c->execution, IBV_WC_WR_FLUSH_ERR);
	vb_srq_release(&c->qp);
	vb_unlock(&c->qp.resp_lock);
	/* a poll that has taken it up as its hot queue pair has looked at it by the return */
	vb_xrc_forget(&c->qp);
	vb_qp_drain(&c->qp);
	free(c);
}

/* ---- requests for queues ---- */

static bool is_one(const struct vb_xrc_request *r, size_t data_bytes)
{
	switch ((enum vb_xrc_op)r->op) {
	case VB_XRC_PLACE:
		return r->address <= VB_MAX_MSG && data_bytes <= VB_XRC_DATA_BYTES;
	case VB_XRC_WRITE:
		return data_bytes <= VB_XRC_DATA_BYTES;
	case VB_XRC_MODIFY_QP:
		return data_bytes == sizeof(struct ibv_qp_attr);
	case VB_XRC_READ:
		return r->length <= VB_XRC_DATA_BYTES && !data_bytes;
	case VB_XRC_CHECK:
		return r->kind <= VB_ACCESS_ATOMIC && !data_bytes;
	case VB_XRC_ATOMIC:
		return (r->kind == VB_REQ_COMPARE_SWAP || r->kind == VB_REQ_FETCH_ADD) &&
		       r->address % 8 == 0 && !data_bytes;
	case VB_XRC_DONE:
		return r->kind <= VB_TAIL_INVALIDATE && !data_bytes;
	case VB_XRC_END:
		return r->kind <= IBV_WC_TM_RNDV_INCOMPLETE && !data_bytes;
	case VB_XRC_SELECT:
	case VB_XRC_TAKE:
	case VB_XRC_INVALIDATE:
	case VB_XRC_OPEN_QP:
	case VB_XRC_QUERY_QP:
	case VB_XRC_CLOSE_QP:
		return !data_bytes;
	}
	return false;
}

static int take(struct vb_execution *x)
{
	return x->have_rwqe ? -EINVAL : vb_execution_ops.receive_take(x, NULL);
}

/* Of a message that was sent here no more than what was placed can have come. */
static int complete(struct vb_execution *x, const struct vb_xrc_request *r)
{
	bool is_write = r->operands[1] & VB_XRC_IS_WRITE;
	if (!x->have_rwqe || r->length > VB_MAX_MSG || (!is_write && r->length > x->rwqe.length))
		return -EINVAL;
	vb_execution_ops.receive_done(x, &(struct vb_received){
		.bytes = r->length, .tail = (uint8_t)r->kind, .tail_value = (uint32_t)r->operands[0],
		.is_write = is_write, .solicited = r->operands[1] & VB_XRC_IS_SOLICITED,
	});
	return 0;
}

static int read_data(struct vb_execution *x, const struct vb_xrc_request *r, void *data, size_t *data_bytes)
{
	if (!vb_execution_read(x, r->srqn, r->rkey, r->address, data, r->length))
		return -EACCES;
	*data_bytes = r->length;
	return 0;
}

/* What is asked for a queue of this process. */
static int execute(struct vb_execution *x, const struct vb_xrc_request *r, const void *sent,
		   size_t sent_bytes, struct vb_xrc_reply *reply, void *data, size_t *data_bytes)
{
	const struct vb_responder_ops *ops = &vb_execution_ops;
	if (vb_execution_select_here(x, r->srqn))
		return -EINVAL;
	switch (r->op) {
	case VB_XRC_TAKE:
		return take(x);
	case VB_XRC_PLACE:
		return x->have_rwqe ? ops->receive_place(x, r->address, sent, sent_bytes) : -EINVAL;
	case VB_XRC_DONE:
		return complete(x, r);
	case VB_XRC_CHECK:
		return ops->check(x, r->rkey, r->address, r->length, (enum vb_access)r->kind);
	case VB_XRC_WRITE:
		return ops->write(x, r->rkey, r->address, sent, sent_bytes);
	case VB_XRC_READ:
		return read_data(x, r, data, data_bytes);
	case VB_XRC_ATOMIC:
		return ops->atomic(x,
				   &(struct vb_atomic){ .rkey = r->rkey,
							.addr = r->address,
							.kind = (uint8_t)r->kind,
							.swap_or_add = r->operands[0],
							.compare = r->operands[1] },
				   &reply->value);
	case VB_XRC_INVALIDATE:
		return ops->invalidate(x, r->rkey);
	}
	return 0;
}

static int answer(struct client *c, const struct vb_xrc_request *r, const void *sent, size_t sent_bytes,
		  struct vb_xrc_reply *reply, void *data, size_t *data_bytes)
{
	struct vb_execution *x = &c->execution;
	if (r->version != VB_XRC_VERSION || r->op >= VB_XRC_OPEN_QP || !is_one(r, sent_bytes))
		return -EINVAL;
	c->qp.qpn = r->qpn & MAX_QPN;
	c->qp.attr.dest_qp_num = r->src_qpn & MAX_QPN;
	c->qp.attr.qp_access_flags = r->access;
	vb_lock(&c->qp.resp_lock);
	x->receive_status = IBV_WC_SUCCESS;
	if (r->op == VB_XRC_END)
		vb_execution_end_receive(x, r->kind ? (enum ibv_wc_status)r->kind : IBV_WC_WR_FLUSH_ERR);
	int err = r->op == VB_XRC_END ? 0 : execute(x, r, sent, sent_bytes, reply, data, data_bytes);
	vb_execution_release_queue(x);
	vb_unlock(&c->qp.resp_lock);
	reply->receive_status = x->receive_status;
	return err;
}

static size_t ask(void *client, const void *request, size_t bytes, void *reply)
{
	struct vb_xrc_request r;
	struct vb_xrc_reply head = { 0 };
	size_t data_bytes = 0;
	if (bytes < sizeof(r))
		return 0;
	memcpy(&r, request, sizeof(r));
	head.err = answer(client, &r, (const uint8_t *)request + sizeof(r), bytes - sizeof(r), &head,
			  (uint8_t *)reply + sizeof(head), &data_bytes);
	memcpy(reply, &head, sizeof(head));
	return r.op == VB_XRC_END ? 0 : sizeof(head) + data_bytes;
}

static const struct vb_rpc_ops queue_ops = { .connect = come, .call = ask, .disconnect = leave };

/* ---- handles ---- */

static void *holder_comes(void *owner)
{
	struct holder *h = calloc(1, sizeof(*h));
	if (h)
		h->share = owner;
	return h;
}

static void give_back(struct holder *h)
{
	if (h->handle)
		handles->close(h->handle);
	h->handle = NULL;
}

static void holder_leaves(void *arg)
{
	give_back(arg);
	free(arg);
}

static int use_handle(struct holder *h, const struct vb_xrc_request *r, struct ibv_qp_attr *attr)
{
	if (r->op == VB_XRC_OPEN_QP && !h->handle && handles)
		h->handle = handles->open(r->qpn & MAX_QPN, h->share->xrcd.number);
	if (!h->handle)
		return -EINVAL;
	if (r->op == VB_XRC_MODIFY_QP)
		return vb_qp_modify(handles->qp(h->handle), attr, (int)r->kind);
	if (r->op == VB_XRC_QUERY_QP)
		vb_qp_query(handles->qp(h->handle), attr);
	if (r->op == VB_XRC_CLOSE_QP)
		give_back(h);
	return 0;
}

static size_t ask_handle(void *holder, const void *request, size_t bytes, void *reply)
{
	struct vb_xrc_request r;
	struct vb_xrc_reply head = { .err = -EINVAL };
	struct ibv_qp_attr attr = { 0 };
	if (bytes < sizeof(r))
		return 0;
	memcpy(&r, request, sizeof(r));
	bytes -= sizeof(r);
	if (r.version == VB_XRC_VERSION && r.op >= VB_XRC_OPEN_QP && is_one(&r, bytes)) {
		memcpy(&attr, (const uint8_t *)request + sizeof(r), bytes);
		head.err = use_handle(holder, &r, &attr);
	}
	memcpy(reply, &head, sizeof(head));
	if (head.err || r.op != VB_XRC_QUERY_QP)
		return sizeof(head);
	memcpy((uint8_t *)reply + sizeof(head), &attr, sizeof(attr));
	return sizeof(head) + sizeof(attr);
}

static const struct vb_rpc_ops handle_ops = { .connect = holder_comes,
					      .call = ask_handle,
					      .disconnect = holder_leaves };

/* ---- servers ---- */

static int open_server_locked(struct vb_xrc_server *share, enum vb_xrc_what what, uint32_t number)
{
	char name[VB_RPC_NAME];
	struct server *d;
	vb_list_for_each(d, &share->servers, node)
		if (d->what == what && d->slot == number >> VB_SLOT_SHIFT)
			return 0;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->what = what;
	d->slot = number >> VB_SLOT_SHIFT;
	vb_xrc_server_name(share, what, number, name);
	int err = vb_rpc_open(name, what == VB_XRC_QUEUES ? &queue_ops : &handle_ops, share, &d->server);
	if (err)
		free(d);
	else
		vb_list_add_tail(&share->servers, &d->node);
	return err;
}

int vb_xrc_server_number(struct vb_xrc_server *share, enum vb_xrc_what what, uint32_t number)
{
	pthread_mutex_lock(&share_lock);
	int err = open_server_locked(share, what, number);
	pthread_mutex_unlock(&share_lock);
	return err;
}

int vb_xrc_server_open(struct vb_xrc_server *share, uint32_t number, bool *others)
{
	char own[VB_RPC_NAME], prefix[sizeof(share->name) + 2];
	share->xrcd.number = number;
	vb_list_init(&share->servers);
	int err = vb_adapter_start();
	if (err)
		return err;
	uint32_t first = vb_slot_first() << VB_SLOT_SHIFT;
	err = vb_xrc_server_number(share, VB_XRC_QUEUES, first);
	if (err)
		return err;
	vb_xrc_server_name(share, VB_XRC_QUEUES, first, own);
	snprintf(prefix, sizeof(prefix), "%s/", share->name);
	*others = vb_rpc_exists(prefix, own);
	return 0;
}

/* Nobody makes queues or queue pairs in it any more. */
void vb_xrc_server_close(struct vb_xrc_server *share)
{
	for (struct vb_list *node; (node = vb_list_pop(&share->servers)); ) {
		struct server *d = vb_container_of(node, struct server, node);
		vb_rpc_close(d->server);
		free(d);
	}
}

static void forget(void)
{
	pthread_mutex_init(&share_lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}
