/* SPDX-License-Identifier: BSD-2-Clause */
/* The client's side of shared domains (xrc_protocol.h). */
#include "adapter/xrc/xrc_remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A connection to the process that has a slot's queues. */
struct connection {
	struct vb_list node;
	uint32_t slot;
	int fd;
};

struct message {
	struct vb_xrc_request head;
	uint8_t data[VB_XRC_DATA_BYTES];
};
_Static_assert(sizeof(struct message) <= VB_RPC_MAX_BYTES, "a message fits");

struct answer {
	struct vb_xrc_reply head;
	uint8_t data[VB_XRC_DATA_BYTES];
};

struct vb_xrc_remote {
	struct vb_list connections;
	struct connection *at; /* the one that has the queue srqn; NULL: none is selected */
	uint32_t srqn;
	struct message message;
	struct answer answer;
};

/* ---- asking ---- */

/* The answer, which says of itself how it went; or why there is none. */
static int ask(int fd, const struct message *m, size_t data_bytes, struct answer *a, size_t *answer_bytes)
{
	ssize_t n = vb_rpc_call(fd, m, sizeof(m->head) + data_bytes, a, sizeof(*a));
	if (n < (ssize_t)sizeof(a->head))
		return -EIO;
	*answer_bytes = (size_t)n - sizeof(a->head);
	return a->head.err > 0 || a->head.err < -4095 ? -EIO : 0;
}

static void drop(struct vb_xrc_remote *remote, struct connection *c)
{
	if (remote->at == c)
		remote->at = NULL;
	vb_list_del(&c->node);
	vb_fd_close(c->fd);
	free(c);
}

/* With `data_bytes` of remote->message.data. wanted: bytes that a good answer has. */
static int call(struct vb_qp *qp, struct vb_xrc_request head, size_t data_bytes, size_t wanted)
{
	struct vb_xrc_remote *remote = qp->remote;
	size_t got;
	if (!remote || !remote->at)
		return -EIO;
	head.version = VB_XRC_VERSION;
	head.qpn = qp->qpn;
	head.src_qpn = qp->attr.dest_qp_num;
	head.access = vb_qp_attr(qp, qp_access_flags);
	head.srqn = remote->srqn;
	remote->message.head = head;
	int err = ask(remote->at->fd, &remote->message, data_bytes, &remote->answer, &got);
	if (!err && !remote->answer.head.err && got != wanted)
		err = -EIO;
	if (!err)
		return remote->answer.head.err;
	drop(remote, remote->at);
	return err;
}

/* ---- finding the queue ---- */

static struct vb_xrc_remote *have(struct vb_qp *qp)
{
	if (qp->remote)
		return qp->remote;
	qp->remote = malloc(sizeof(*qp->remote));
	if (!qp->remote)
		return NULL;
	vb_list_init(&qp->remote->connections);
	qp->remote->at = NULL;
	return qp->remote;
}

static struct connection *find(struct vb_xrc_remote *remote, uint32_t slot)
{
	struct connection *c;
	vb_list_for_each(c, &remote->connections, node)
		if (c->slot == slot)
			return c;
	return NULL;
}

static struct connection *connect_to(struct vb_xrc_remote *remote, const struct vb_xrc_server *share,
				     uint32_t slot)
{
	char name[VB_RPC_NAME];
	struct connection *c = malloc(sizeof(*c));
	if (!c)
		return NULL;
	c->slot = slot;
	vb_xrc_server_name(share, VB_XRC_QUEUES, slot << VB_SLOT_SHIFT, name);
	if (vb_rpc_connect(name, &c->fd)) {
		free(c);
		return NULL;
	}
	vb_list_add_tail(&remote->connections, &c->node);
	return c;
}

/* A process that has ended may have a successor in its slot. */
static struct connection *connection_of(struct vb_xrc_remote *remote, const struct vb_xrc_server *share,
				  uint32_t slot)
{
	struct connection *c = find(remote, slot);
	if (c && vb_link_has_hung_up(c->fd)) {
		drop(remote, c);
		c = NULL;
	}
	return c ? c : connect_to(remote, share, slot);
}

int vb_xrc_remote_select(struct vb_qp *qp, uint32_t srqn)
{
	const struct vb_xrc_server *share = qp->xrcd->share;
	uint32_t slot = srqn >> VB_SLOT_SHIFT;
	if (!share || vb_slot_is_mine(slot))
		return -EINVAL;
	struct vb_xrc_remote *remote = have(qp);
	if (!remote)
		return -ENOMEM;
	if (remote->at && remote->srqn == srqn && !vb_link_has_hung_up(remote->at->fd))
		return 0;
	remote->srqn = srqn;
	remote->at = connection_of(remote, share, slot);
	int err = remote->at ? call(qp, (struct vb_xrc_request){ .op = VB_XRC_SELECT }, 0, 0) : -EINVAL;
	if (err)
		remote->at = NULL;
	return err ? -EINVAL : 0;
}

/* ---- requests ---- */

int vb_xrc_remote_take(struct vb_qp *qp)
{
	return call(qp, (struct vb_xrc_request){ .op = VB_XRC_TAKE }, 0, 0);
}

static int call_with_data(struct vb_qp *qp, struct vb_xrc_request head, const void *bytes, size_t n)
{
	if (!qp->remote || n > VB_XRC_DATA_BYTES)
		return -EIO;
	memcpy(qp->remote->message.data, bytes, n);
	return call(qp, head, n, 0);
}

int vb_xrc_remote_place(struct vb_qp *qp, uint64_t offset, const void *bytes, size_t n,
			enum ibv_wc_status *status)
{
	int err = call_with_data(qp, (struct vb_xrc_request){ .op = VB_XRC_PLACE, .address = offset }, bytes,
				 n);
	*status = err && qp->remote && qp->remote->at ?
			  (enum ibv_wc_status)qp->remote->answer.head.receive_status :
			  IBV_WC_SUCCESS;
	return err;
}

void vb_xrc_remote_done(struct vb_qp *qp, const struct vb_received *r)
{
	vb_traffic_add(&qp->received, r->bytes);
	uint64_t how = (r->is_write ? VB_XRC_IS_WRITE : 0) | (r->solicited ? VB_XRC_IS_SOLICITED : 0);
	(void)call(qp,
		   (struct vb_xrc_request){ .op = VB_XRC_DONE,
					    .kind = r->tail,
					    .length = r->bytes,
					    .operands = { r->tail_value, how } },
		   0, 0);
}

void vb_xrc_remote_end(struct vb_qp *qp, enum ibv_wc_status status)
{
	struct vb_xrc_remote *remote = qp->remote;
	if (!remote || !remote->at)
		return;
	struct vb_xrc_request end = { .version = VB_XRC_VERSION,
				      .op = VB_XRC_END,
				      .kind = status,
				      .qpn = qp->qpn,
				      .srqn = remote->srqn,
				      .src_qpn = qp->attr.dest_qp_num };
	if (vb_link_send(remote->at->fd, &end, sizeof(end), NULL, 0))
		drop(remote, remote->at);
}

int vb_xrc_remote_check(struct vb_qp *qp, uint32_t rkey, uint64_t address, uint64_t length,
			enum vb_access access)
{
	return call(qp,
		    (struct vb_xrc_request){ .op = VB_XRC_CHECK,
					     .rkey = rkey,
					     .address = address,
					     .length = length,
					     .kind = access },
		    0, 0);
}

int vb_xrc_remote_write(struct vb_qp *qp, uint32_t rkey, uint64_t address, const void *bytes, size_t n)
{
	return call_with_data(qp,
			      (struct vb_xrc_request){ .op = VB_XRC_WRITE, .rkey = rkey, .address = address },
			      bytes, n);
}

int vb_xrc_remote_read(struct vb_qp *qp, uint32_t rkey, uint64_t address, void *bytes, size_t n)
{
	int err = call(
		qp,
		(struct vb_xrc_request){ .op = VB_XRC_READ, .rkey = rkey, .address = address, .length = n },
		0, n);
	if (!err)
		memcpy(bytes, qp->remote->answer.data, n);
	return err;
}

int vb_xrc_remote_atomic(struct vb_qp *qp, const struct vb_atomic *atomic, uint64_t *original)
{
	int err = call(qp,
		       (struct vb_xrc_request){ .op = VB_XRC_ATOMIC,
						.rkey = atomic->rkey,
						.address = atomic->addr,
						.kind = atomic->kind,
						.operands = { atomic->swap_or_add, atomic->compare } },
		       0, 0);
	if (!err)
		*original = qp->remote->answer.head.value;
	return err;
}

int vb_xrc_remote_invalidate(struct vb_qp *qp, uint32_t rkey)
{
	return call(qp, (struct vb_xrc_request){ .op = VB_XRC_INVALIDATE, .rkey = rkey }, 0, 0);
}

void vb_xrc_remote_forget(struct vb_qp *qp)
{
	struct vb_xrc_remote *remote = qp->remote;
	if (!remote)
		return;
	while (!vb_list_is_empty(&remote->connections))
		drop(remote, vb_container_of(remote->connections.next, struct connection, node));
	free(remote);
	qp->remote = NULL;
}

/* ---- further handles ---- */

static int ask_owner(int fd, struct vb_xrc_request head, const struct ibv_qp_attr *sent,
		     struct ibv_qp_attr *got)
{
	struct {
		struct vb_xrc_request head;
		struct ibv_qp_attr attr;
	} m = { .head = head };
	struct {
		struct vb_xrc_reply head;
		struct ibv_qp_attr attr;
	} a;
	size_t bytes = sizeof(m.head), wanted = sizeof(a.head) + (got ? sizeof(a.attr) : 0);
	m.head.version = VB_XRC_VERSION;
	if (sent) {
		m.attr = *sent;
		bytes = sizeof(m);
	}
	ssize_t n = vb_rpc_call(fd, &m, bytes, &a, sizeof(a));
	if (n < (ssize_t)sizeof(a.head) || a.head.err > 0 || a.head.err < -4095 ||
	    (!a.head.err && (size_t)n != wanted))
		return -EIO;
	if (!a.head.err && got)
		*got = a.attr;
	return a.head.err;
}

int vb_xrc_remote_open_qp(const struct vb_xrcd *xrcd, uint32_t qpn, int *fd)
{
	char name[VB_RPC_NAME];
	if (!xrcd->share || vb_slot_is_mine(qpn >> VB_SLOT_SHIFT))
		return -EINVAL;
	vb_xrc_server_name(xrcd->share, VB_XRC_HANDLES, qpn, name);
	if (vb_rpc_connect(name, fd))
		return -EINVAL;
	int err = ask_owner(*fd, (struct vb_xrc_request){ .op = VB_XRC_OPEN_QP, .qpn = qpn }, NULL, NULL);
	if (err)
		vb_fd_close(*fd);
	return err;
}

/* The queue pair's process would notice the end of the connection by itself, but later. */
void vb_xrc_remote_close_qp(int fd)
{
	(void)ask_owner(fd, (struct vb_xrc_request){ .op = VB_XRC_CLOSE_QP }, NULL, NULL);
	vb_fd_close(fd);
}

int vb_xrc_remote_query_qp(int fd, struct ibv_qp_attr *attr)
{
	return ask_owner(fd, (struct vb_xrc_request){ .op = VB_XRC_QUERY_QP }, NULL, attr);
}

int vb_xrc_remote_modify_qp(int fd, const struct ibv_qp_attr *attr, int mask)
{
	return ask_owner(fd, (struct vb_xrc_request){ .op = VB_XRC_MODIFY_QP, .kind = (uint32_t)mask }, attr,
			 NULL);
}
