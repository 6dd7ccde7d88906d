/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended reliable connections: the active end sends to shared receive queues, by number; the passive end
 * has the receiving queue pair.
 */
#ifndef VB_CONFORMANCE_XRC_H
#define VB_CONFORMANCE_XRC_H

#include "rc.h"

enum { RECEIVES = 32 };

struct queue {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct ibv_srq *srq;
	uint32_t number;
};

struct xrc {
	struct ibv_xrcd *xrcd;
	struct ibv_qp *qp; /* the active end's XRC_SEND, the passive end's XRC_RECV */
	struct queue q[2]; /* of the passive end */
	uint32_t number[2], rkey[2];
	uint64_t addr[2];
	struct card peer;
};

struct ibv_xrcd *open_domain(struct end *e, int fd, int oflags);
void make_queue(struct end *e, struct ibv_xrcd *xrcd, struct queue *q);
void free_queue(struct queue *q);
int post_srq(struct queue *q, uint64_t id, uint64_t at, uint32_t n);
struct ibv_qp *make_xrc_qp(struct end *e, struct xrc *x);
void connect_xrc_qp(struct end *e, struct xrc *x);
/* Posts one request of the active end's, with immediate data 99 and 5 to add where it has such. */
int post_xrc(struct end *e, struct xrc *x, uint64_t id, enum ibv_wr_opcode opcode, uint64_t at, uint32_t n,
	     uint32_t srqn, uint64_t remote, uint32_t rkey);
/* What a queue's owner tells of it. */
void tell_queue(struct end *to, const struct queue *q);

#endif
