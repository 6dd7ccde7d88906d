/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conformance of unreliable datagrams: the ends of ../rc/rc.h with a UD queue pair in place of the connected
 * one. Datagrams of one process to another arrive in order here, so a datagram that arrives says that those
 * before it were dropped or delivered.
 */
#ifndef VB_CONFORMANCE_UD_H
#define VB_CONFORMANCE_UD_H

#include "../rc/rc.h"

enum { GRH = 40, QKEY = 0x11111111 };

/* rc_open with a UD QP as e->qp, in RTS; e->peer is the other end's card. */
void ud_start(struct end *e, const struct params *p);
/* A further one, in RTS. */
struct ibv_qp *ud_make_qp(struct end *e);
void ud_to_rts(struct ibv_qp *qp);
/* To the other end. */
struct ibv_ah *ud_ah(struct end *e);
uint32_t ud_mtu(struct end *e);

/* A datagram; what is left out is 0, or the default that is named. */
struct dgram {
	uint64_t id;
	uint64_t at;          /* in the end's buffer */
	uint32_t len;
	uint32_t imm;         /* host order; not 0: SEND with immediate */
	unsigned flags;       /* besides SIGNALED */
	struct ibv_ah *ah;
	uint32_t qpn, qkey;   /* the peer's, QKEY */
	struct ibv_qp *qp;    /* e->qp */
	struct ibv_sge *sge;  /* one entry by at and len */
	int nsge;
	uint32_t lkey;        /* the end's */
};

int ud_post(struct end *e, const struct dgram *d);
#define SEND(e, ...) CHECK_EQ(ud_post(e, &(struct dgram){ __VA_ARGS__ }), 0)
/* The next receive completion, which must be this one, of so many bytes without the GRH. */
struct ibv_wc ud_expect_recv(struct end *e, uint64_t id, uint32_t bytes);

#endif
