/* SPDX-License-Identifier: BSD-2-Clause */
/* The queue pair of a local address: buffers, header, life. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/device/device.h"
#include "base/waits.h"
#include "rsocket/datagram/datagram.h"

enum { MIN_BUFFERS = 16 };

static void *zeroed(size_t n, size_t size) { return calloc(n ? n : 1, size); }

void vb_rs_port_free(struct vb_rs *s, struct vb_rs_port *p)
{
	bool is_ours = !vb_rs_is_inherited(s);

	if (is_ours && p->id && p->id->qp)
		rdma_destroy_qp(p->id);
	if (is_ours && p->send_mr)
		ibv_dereg_mr(p->send_mr);
	if (is_ours && p->receive_mr)
		ibv_dereg_mr(p->receive_mr);
	if (is_ours && p->cq)
		ibv_destroy_cq(p->cq);
	if (is_ours && p->channel)
		ibv_destroy_comp_channel(p->channel);
	else if (p->channel)
		close(p->channel->fd);
	if (is_ours && p->id)
		rdma_destroy_id(p->id);
	free(p->send_buffers);
	free(p->receive_buffers);
	free(p->free_buffers);
	free(p->ready);
	free(p);
}

static void make_header(struct vb_rs_port *p)
{
	struct vb_rs_name name = vb_rs_name_of(&p->addr);

	p->header_bytes = (uint8_t)vb_rs_ud_header_make(&name, p->header);
}

static uint32_t buffers_of(uint32_t queue, uint32_t bytes)
{
	uint32_t n = vb_min_u32(queue, bytes / VB_RS_BUFFER_BYTES);

	return n < MIN_BUFFERS ? MIN_BUFFERS : n;
}

static int allocate_buffers(struct vb_rs *s, struct vb_rs_port *p)
{
	p->num_send = buffers_of(s->options.send_queue, s->options.send_bytes);
	p->num_receive = buffers_of(s->options.receive_queue, s->options.receive_bytes);
	p->send_buffers = zeroed(p->num_send, VB_RS_BUFFER_BYTES);
	p->receive_buffers = zeroed(p->num_receive, VB_RS_RECEIVE_BUFFER);
	p->free_buffers = zeroed(p->num_send, sizeof(*p->free_buffers));
	p->ready = zeroed(p->num_receive, sizeof(*p->ready));
	if (!p->send_buffers || !p->receive_buffers || !p->free_buffers || !p->ready)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->num_send; i++)
		p->free_buffers[p->num_free++] = i;
	return 0;
}

int vb_rs_port_post_receive(struct vb_rs_port *p, uint32_t buffer)
{
	struct ibv_sge sge = { (uintptr_t)p->receive_buffers + (size_t)buffer * VB_RS_RECEIVE_BUFFER,
			       VB_RS_GRH_BYTES + VB_RS_BUFFER_BYTES, p->receive_mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 };

	return -ibv_post_recv(p->id->qp, &wr, &bad);
}

static int bind_port(struct vb_rs_port *p)
{
	struct vb_cma_addr any_port = p->addr;
	struct sockaddr_storage ss;

	any_port.port = 0;
	vb_cma_addr_format(&any_port, &ss);
	return rdma_create_id(NULL, &p->id, NULL, RDMA_PS_UDP) ||
			       rdma_bind_addr(p->id, (struct sockaddr *)&ss) ?
		       -errno :
		       0;
}

static int create_qp(struct vb_rs *s, struct vb_rs_port *p)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = p->num_send,
			 .max_recv_wr = p->num_receive,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_port_attr port_attr;

	if (rdma_create_qp(p->id, NULL, &attr) || ibv_query_port(p->id->verbs, p->id->port_num, &port_attr))
		return -errno;
	p->largest = vb_min_u32(VB_RS_BUFFER_BYTES, vb_mtu_bytes(port_attr.active_mtu));
	p->send_mr = ibv_reg_mr(p->id->pd, p->send_buffers, (size_t)p->num_send * VB_RS_BUFFER_BYTES,
				IBV_ACCESS_LOCAL_WRITE);
	p->receive_mr = ibv_reg_mr(p->id->pd, p->receive_buffers,
				   (size_t)p->num_receive * VB_RS_RECEIVE_BUFFER, IBV_ACCESS_LOCAL_WRITE);
	return p->send_mr && p->receive_mr ? 0 : -ENOMEM;
}

static int start_port(struct vb_rs *s, struct vb_rs_port *p)
{
	struct epoll_event event = { .events = EPOLLIN };
	int err = bind_port(p);

	if (!err)
		err = allocate_buffers(s, p);
	if (!err)
		err = vb_rs_cq_create(p->id, p->num_send + p->num_receive, &p->channel, &p->cq);
	if (!err)
		err = create_qp(s, p);
	for (uint32_t i = 0; i < p->num_receive && !err; i++)
		err = vb_rs_port_post_receive(p, i);
	if (!err && vb_epoll_ctl(s->datagram->epfd, EPOLL_CTL_ADD, p->channel->fd, &event))
		err = -errno;
	return err;
}

static int create_port(struct vb_rs *s, const struct vb_cma_addr *addr, struct vb_rs_port **out)
{
	VB_UNCANCELLED;
	struct vb_rs_port *p = calloc(1, sizeof(*p));
	char text[VB_CMA_TEXT];

	if (!p)
		return -ENOMEM;
	p->addr = *addr;
	make_header(p);
	int err = start_port(s, p);
	if (err) {
		vb_explain("rsocket", "no queue pair for datagrams from %s: %s", vb_cma_addr_text(addr, text),
			   strerror(-err));
		vb_rs_port_free(s, p);
		return err;
	}
	vb_list_add_tail(&s->datagram->ports, &p->node);
	*out = p;
	return 0;
}

int vb_rs_port_get(struct vb_rs *s, const struct vb_cma_addr *addr, struct vb_rs_port **out)
{
	struct vb_rs_port *p;

	vb_list_for_each(p, &s->datagram->ports, node) {
		if (!memcmp(&p->addr.ip, &addr->ip, sizeof(addr->ip)) && p->addr.scope == addr->scope &&
		    p->addr.port == addr->port) {
			*out = p;
			return 0;
		}
	}
	return create_port(s, addr, out);
}
