/* SPDX-License-Identifier: BSD-2-Clause */
#include "ends.h"

struct ibv_mr *second_of(struct end *e)
{
	struct ibv_mr *mr = ibv_reg_mr(e->pd, e->buf, e->p.bytes, e->p.mr_access);
	CHECK(mr);
	return mr;
}

void close_second(struct end *e, struct ibv_mr *mr)
{
	struct ibv_pd *pd = mr ? mr->pd : e->pd;
	if (mr)
		CHECK_EQ(ibv_dereg_mr(mr), 0);
	if (pd != e->pd)
		CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

void deregister(struct end *e, struct ibv_mr **mr)
{
	CHECK_EQ(ibv_dereg_mr(*mr), 0);
	*mr = NULL;
}

void deregister_and_use_its_place(struct end *e, struct ibv_mr **mr)
{
	deregister(e, mr);
	*mr = second_of(e);
}

void show_its_other_half(struct end *e, struct ibv_mr **mr)
{
	size_t half = e->p.bytes / 2;
	CHECK_EQ(ibv_rereg_mr(*mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, e->buf + half, half, 0), 0);
}

void take_it_to_another_domain(struct end *e, struct ibv_mr **mr)
{
	struct ibv_pd *pd = ibv_alloc_pd(e->ctx);
	CHECK(pd);
	CHECK_EQ(ibv_rereg_mr(*mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0);
	CHECK((*mr)->pd == pd);
}
