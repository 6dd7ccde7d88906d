/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "adapter/memory/window.h"
#include "adapter/object.h"
#include "adapter/start.h"

int vb_window_init(struct vb_window *w, struct vb_pd *pd, enum ibv_mw_type type)
{
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return -EINVAL;
	int err = vb_adapter_open();
	if (!err)
		err = vb_key_take(&w->key);
	if (err)
		return err;
	w->pd = pd;
	vb_window_begin(w->key, type, pd->number);
	atomic_fetch_add(&pd->refs, 1);
	return 0;
}

int vb_window_fini(struct vb_window *w)
{
	vb_window_end(w->key);
	atomic_fetch_sub(&w->pd->refs, 1);
	return 0;
}
