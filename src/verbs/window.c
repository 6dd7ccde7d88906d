/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows (adapter/memory/window.h). */
#include <stdlib.h>

#include "verbs/verbs.h"

static struct vb_verbs_mw *of(struct ibv_mw *pub) { return vb_container_of(pub, struct vb_verbs_mw, pub); }

struct ibv_mw *vb_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	int err = vb_refuse_call(pd->context, "ibv_alloc_mw");
	if (err)
		return vb_fail_null(err);
	struct vb_verbs_mw *mw = calloc(1, sizeof(*mw));
	if (!mw)
		return vb_fail_null(-ENOMEM);
	err = vb_window_init(&mw->window, vb_pd_of(pd), type);
	if (err) {
		vb_explain("ibv_alloc_mw", "%s",
			   err == -EINVAL ? "a window is of type IBV_MW_TYPE_1 or IBV_MW_TYPE_2" :
					    "no key left");
		free(mw);
		return vb_fail_null(err);
	}
	mw->pub.context = pd->context;
	mw->pub.pd = pd;
	mw->pub.type = type;
	mw->pub.rkey = mw->pub.handle = mw->window.key;
	return &mw->pub;
}

int vb_dealloc_mw(struct ibv_mw *pub)
{
	struct vb_verbs_mw *mw = of(pub);
	int err = vb_is_inherited(pub->context) ? 0 : vb_window_fini(&mw->window);
	if (!err)
		free(mw);
	return -err;
}

/* A type 1 window gets its next key here, by an ordinary work request. */
int vb_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = { .mw = mw, .rkey = vb_key_of_next_bind(mw->rkey), .bind_info = bind->bind_info },
	};
	return ibv_post_send(qp, &wr, &bad);
}
