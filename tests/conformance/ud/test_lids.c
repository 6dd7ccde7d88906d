/* SPDX-License-Identifier: BSD-2-Clause */
/* VERBATIM_LINK=infiniband: programs that know LIDs alone reach their peers on the same port. */
#include "ud.h"

#include <errno.h>
#include <stdlib.h>

enum { UC_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, BYTES = 3000 };

static struct ibv_port_attr open_port(struct end *e)
{
	struct params p = params();
	struct ibv_port_attr port;
	rc_open(e, &p);
	CHECK_EQ(ibv_query_port(e->ctx, 1, &port), 0);
	return port;
}

/* The port's LID, which it has for the setting alone. */
static uint16_t open_with_lid(struct end *e)
{
	struct ibv_port_attr port = open_port(e);
	CHECK_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
	CHECK(port.lid && port.lid < 0xc000);
	CHECK_EQ(port.sm_lid, port.lid);
	CHECK_EQ(port.flags & IBV_QPF_GRH_REQUIRED, 0);
	tell(e, port.lid);
	CHECK_EQ(hear(e), port.lid); /* of all processes */
	return port.lid;
}

static struct ibv_qp_attr to_lid(struct end *e, struct ibv_qp *qp, uint16_t lid)
{
	struct card peer = rc_swap_cards(e, qp);
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer.qpn,
		.rq_psn = peer.psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = lid, .port_num = 1 },
	};
}

static void exchange(struct end *e, struct ibv_qp *qp)
{
	if (e->passive) {
		CHECK_EQ(rc_post_recv(e, qp, 1, 0, BYTES), 0);
		meet(e);
		CHECK_EQ(rc_expect(e->rcq, 1, IBV_WC_SUCCESS).byte_len, BYTES);
		VERIFY(e->buf, BYTES, e->seed);
	} else {
		rc_fill(e->buf, BYTES, e->seed);
		meet(e);
		POST(e, .id = 2, .opcode = IBV_WR_SEND, .len = BYTES, .qp = qp);
		rc_expect(e->scq, 2, IBV_WC_SUCCESS);
	}
	meet(e);
}

/* What was set is told as it was set. */
static void rc__by_lid(struct end *e)
{
	uint16_t lid = open_with_lid(e);
	struct ibv_qp_attr a = to_lid(e, e->qp, lid ^ 1), got;
	struct ibv_qp_init_attr init;
	int mask = UC_MASK | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK_EQ(rc_to_init(e, e->qp), 0);
	CHECK_EQ(ibv_modify_qp(e->qp, &a, mask), EINVAL);
	a.ah_attr.dlid = 0;
	CHECK_EQ(ibv_modify_qp(e->qp, &a, mask), EINVAL);
	a.ah_attr.dlid = lid;
	CHECK_EQ(ibv_modify_qp(e->qp, &a, mask), 0);
	CHECK_EQ(ibv_query_qp(e->qp, &got, IBV_QP_AV, &init), 0);
	CHECK_EQ(got.ah_attr.is_global, 0);
	CHECK_EQ(got.ah_attr.dlid, lid);
	CHECK_EQ(rc_to_rts(e, e->qp), 0);
	exchange(e, e->qp);
	rc_finish(e);
}

static void uc__by_lid(struct end *e)
{
	uint16_t lid = open_with_lid(e);
	struct ibv_qp_init_attr init = {
		.send_cq = e->scq, .recv_cq = e->rcq, .cap = e->p.cap, .qp_type = IBV_QPT_UC
	};
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);
	CHECK(qp);
	struct ibv_qp_attr a = to_lid(e, qp, lid);
	CHECK_EQ(rc_to_init(e, qp), 0);
	CHECK_EQ(ibv_modify_qp(qp, &a, UC_MASK), 0);
	CHECK_EQ(rc_to_rts(e, qp), 0);
	meet(e);
	exchange(e, qp);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	rc_finish(e);
}

static void ud__by_lid(struct end *e)
{
	struct ibv_ah_attr attr = { .port_num = 1, .dlid = open_with_lid(e) };
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = ud_make_qp(e);
	e->peer = rc_swap_cards(e, e->qp);
	struct ibv_ah *ah = ibv_create_ah(e->pd, &attr);
	CHECK(ah);
	attr.dlid ^= 1;
	CHECK(!ibv_create_ah(e->pd, &attr) && errno == EINVAL);
	attr.dlid = 0xffff;
	CHECK(!ibv_create_ah(e->pd, &attr) && errno == EINVAL);
	if (e->passive) {
		rc_recv(e, 1, 0, GRH + 100);
		meet(e);
		ud_expect_recv(e, 1, 100);
		VERIFY(e->buf + GRH, 100, e->seed);
	} else {
		rc_fill(e->buf, 100, e->seed);
		meet(e);
		SEND(e, .id = 2, .len = 100, .ah = ah);
		rc_expect(e->scq, 2, IBV_WC_SUCCESS);
	}
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rc_finish(e);
}

/* Other values mean nothing. */
static void port__without_the_setting(struct end *e)
{
	setenv("VERBATIM_LINK", "ethernet", 1);
	struct ibv_port_attr port = open_port(e);
	CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	CHECK_EQ(port.lid | port.sm_lid, 0);
	CHECK(port.flags & IBV_QPF_GRH_REQUIRED);
	struct ibv_ah_attr attr = { .port_num = 1, .dlid = 1 };
	CHECK(!ibv_create_ah(e->pd, &attr) && errno == EINVAL);
	rc_close(e);
}

static const struct body bodies[] = {
	BODY(rc__by_lid),
	BODY(uc__by_lid),
	BODY(ud__by_lid),
	BODY_IN(port__without_the_setting, ALONE),
};

/* Before there are threads: they read the environment. */
int main(int argc, char **argv)
{
	setenv("VERBATIM_LINK", "infiniband", 1);
	return rc_main(argc, argv, bodies, sizeof(bodies) / sizeof((bodies)[0]));
}
