/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Verbs on an rdma_cm_id: shorter names for registering memory, posting and reaping, with the id's own
 * domain, queue pair and completion queues. Link with -lrdmacm -libverbs. rdma_cm(7)
 *
 * All calls that give an int give 0, or -1 with errno; calls that give a pointer NULL with errno. context
 * comes back as the completion's wr_id. EINVAL: the id has no queue pair (or completion queue) yet.
 */
#ifndef RDMA_VERBS_H
#define RDMA_VERBS_H

#include <assert.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From what a verb gives, 0 or an errno value of either sign, to the convention here. */
static inline int rdma_seterrno(int ret)
{
	if (!ret)
		return 0;
	errno = ret < 0 ? -ret : ret;
	return -1;
}

/*
 * Make an SRQ as id->srq, in pd or, if that is NULL, in the default domain; end it. rdma_create_srq(3),
 * rdma_destroy_srq(3)
 */
int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr);
void rdma_destroy_srq(struct rdma_cm_id *id);

/* Register memory for messages, for the peer to read, for the peer to write. rdma_reg_msgs(3) and so on */
static inline struct ibv_mr *rdma_reg_msgs(struct rdma_cm_id *id, void *addr, size_t length)
{
	return ibv_reg_mr(id->pd, addr, length, IBV_ACCESS_LOCAL_WRITE);
}

static inline struct ibv_mr *rdma_reg_read(struct rdma_cm_id *id, void *addr, size_t length)
{
	return ibv_reg_mr(id->pd, addr, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
}

static inline struct ibv_mr *rdma_reg_write(struct rdma_cm_id *id, void *addr, size_t length)
{
	return ibv_reg_mr(id->pd, addr, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

/* End a region. rdma_dereg_mr(3) */
static inline int rdma_dereg_mr(struct ibv_mr *mr)
{
	return rdma_seterrno(ibv_dereg_mr(mr));
}

/* The scatter entry for length bytes at addr; without a region (inline data) the key is 0. */
static inline struct ibv_sge rdma_sge_of_(void *addr, size_t length, struct ibv_mr *mr)
{
	struct ibv_sge sge;

	sge.addr = (uintptr_t)addr;
	sge.length = (uint32_t)length;
	sge.lkey = mr ? mr->lkey : 0;
	return sge;
}

/* Fill what every send request has. */
static inline void rdma_send_wr_of_(struct ibv_send_wr *wr, enum ibv_wr_opcode opcode, void *context,
				    struct ibv_sge *sgl, int nsge, int flags)
{
	wr->wr_id = (uintptr_t)context;
	wr->next = NULL;
	wr->sg_list = sgl;
	wr->num_sge = nsge;
	wr->opcode = opcode;
	wr->send_flags = (unsigned int)flags;
}

/* Post one send request on the id's QP. */
static inline int rdma_post_one_(struct rdma_cm_id *id, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return rdma_seterrno(id->qp ? ibv_post_send(id->qp, wr, &bad) : EINVAL);
}

/* The same for a request to the peer's memory. */
static inline int rdma_post_rdma_(struct rdma_cm_id *id, enum ibv_wr_opcode opcode, void *context,
				  struct ibv_sge *sgl, int nsge, int flags, uint64_t remote_addr,
				  uint32_t rkey)
{
	struct ibv_send_wr wr;

	rdma_send_wr_of_(&wr, opcode, context, sgl, nsge, flags);
	wr.wr.rdma.remote_addr = remote_addr;
	wr.wr.rdma.rkey = rkey;
	return rdma_post_one_(id, &wr);
}

/* Post a receive for nsge pieces of memory, on the id's SRQ if it has one. rdma_post_recvv(3) */
static inline int rdma_post_recvv(struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge)
{
	struct ibv_recv_wr wr, *bad;

	wr.wr_id = (uintptr_t)context;
	wr.next = NULL;
	wr.sg_list = sgl;
	wr.num_sge = nsge;
	if (id->srq)
		return rdma_seterrno(ibv_post_srq_recv(id->srq, &wr, &bad));
	return rdma_seterrno(id->qp ? ibv_post_recv(id->qp, &wr, &bad) : EINVAL);
}

/* Post a send of nsge pieces; flags are enum ibv_send_flags, here and below. rdma_post_sendv(3) */
static inline int rdma_post_sendv(struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge,
				  int flags)
{
	struct ibv_send_wr wr;

	rdma_send_wr_of_(&wr, IBV_WR_SEND, context, sgl, nsge, flags);
	return rdma_post_one_(id, &wr);
}

/* Post a read of the peer's memory into nsge pieces. rdma_post_readv(3) */
static inline int rdma_post_readv(struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge,
				  int flags, uint64_t remote_addr, uint32_t rkey)
{
	return rdma_post_rdma_(id, IBV_WR_RDMA_READ, context, sgl, nsge, flags, remote_addr, rkey);
}

/* Post a write of nsge pieces to the peer's memory. rdma_post_writev(3) */
static inline int rdma_post_writev(struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge,
				   int flags, uint64_t remote_addr, uint32_t rkey)
{
	return rdma_post_rdma_(id, IBV_WR_RDMA_WRITE, context, sgl, nsge, flags, remote_addr, rkey);
}

/* Post a receive into length bytes at addr, which must lie in mr. rdma_post_recv(3) */
static inline int rdma_post_recv(struct rdma_cm_id *id, void *context, void *addr, size_t length,
				 struct ibv_mr *mr)
{
	struct ibv_sge sge = rdma_sge_of_(addr, length, mr);

	assert(addr >= mr->addr && (char *)addr + length <= (char *)mr->addr + mr->length);
	return rdma_post_recvv(id, context, &sge, 1);
}

/* Post a send of length bytes at addr; mr may be NULL with IBV_SEND_INLINE. rdma_post_send(3) */
static inline int rdma_post_send(struct rdma_cm_id *id, void *context, void *addr, size_t length,
				 struct ibv_mr *mr, int flags)
{
	struct ibv_sge sge = rdma_sge_of_(addr, length, mr);

	return rdma_post_sendv(id, context, &sge, 1, flags);
}

/* Post a read of length bytes of the peer's memory to addr. rdma_post_read(3) */
static inline int rdma_post_read(struct rdma_cm_id *id, void *context, void *addr, size_t length,
				 struct ibv_mr *mr, int flags, uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge = rdma_sge_of_(addr, length, mr);

	return rdma_post_readv(id, context, &sge, 1, flags, remote_addr, rkey);
}

/*
 * Post a write of length bytes at addr to the peer's memory; mr may be NULL with IBV_SEND_INLINE.
 * rdma_post_write(3)
 */
static inline int rdma_post_write(struct rdma_cm_id *id, void *context, void *addr, size_t length,
				  struct ibv_mr *mr, int flags, uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge = rdma_sge_of_(addr, length, mr);

	return rdma_post_writev(id, context, &sge, 1, flags, remote_addr, rkey);
}

/*
 * Post a datagram of length bytes at addr to a QP behind ah, with the key RDMA_UDP_QKEY.
 * rdma_post_ud_send(3)
 */
static inline int rdma_post_ud_send(struct rdma_cm_id *id, void *context, void *addr, size_t length,
				    struct ibv_mr *mr, int flags, struct ibv_ah *ah, uint32_t remote_qpn)
{
	struct ibv_sge sge = rdma_sge_of_(addr, length, mr);
	struct ibv_send_wr wr;

	rdma_send_wr_of_(&wr, IBV_WR_SEND, context, &sge, 1, flags);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = remote_qpn;
	wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
	return rdma_post_one_(id, &wr);
}

/*
 * Wait for the next completion of cq, asleep on channel when there is none. A completion that slips in while
 * the event is being armed is found by the second poll. Returns 1, or -1 with errno.
 */
static inline int rdma_get_comp_(struct rdma_cm_id *id, struct ibv_cq *cq, struct ibv_comp_channel *channel,
				 struct ibv_wc *wc)
{
	struct ibv_cq *ev_cq;
	void *ev_context;
	int ret;

	if (!cq)
		return rdma_seterrno(EINVAL);
	for (;;) {
		ret = ibv_poll_cq(cq, 1, wc);
		if (ret)
			break;
		ret = ibv_req_notify_cq(cq, 0);
		if (ret)
			return rdma_seterrno(ret);
		ret = ibv_poll_cq(cq, 1, wc);
		if (ret)
			break;
		ret = ibv_get_cq_event(channel, &ev_cq, &ev_context);
		if (ret)
			return ret;
		assert(ev_cq == cq && ev_context == id);
		ibv_ack_cq_events(cq, 1);
	}
	(void)id;
	return ret < 0 ? rdma_seterrno(ret) : ret;
}

/*
 * Wait for the next completion of a send, read or write. Returns 1, or -1 with errno. rdma_get_send_comp(3)
 */
static inline int rdma_get_send_comp(struct rdma_cm_id *id, struct ibv_wc *wc)
{
	return rdma_get_comp_(id, id->send_cq, id->send_cq_channel, wc);
}

/* Wait for the next completion of a receive. Returns 1, or -1 with errno. rdma_get_recv_comp(3) */
static inline int rdma_get_recv_comp(struct rdma_cm_id *id, struct ibv_wc *wc)
{
	return rdma_get_comp_(id, id->recv_cq, id->recv_cq_channel, wc);
}

#ifdef __cplusplus
}
#endif

#endif /* RDMA_VERBS_H */
