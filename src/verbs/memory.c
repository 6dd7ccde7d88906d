/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains and memory regions. */
#include <stdlib.h>
#include <string.h>

#include "verbs/verbs.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* ---- protection domains ---- */

VB_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct vb_verbs_context *c = vb_verbs_context_of(context);
	int err = vb_refuse_inherited(context, "ibv_alloc_pd");
	if (err)
		return vb_fail_null(err);
	struct vb_verbs_pd *pd = calloc(1, sizeof(*pd));
	if (!pd)
		return vb_fail_null(-ENOMEM);
	vb_pd_init(&pd->pd, &c->ctx);
	pd->pub.context = context;
	pd->pub.handle = pd->pd.number;
	vb_verbs_context_hold(context);
	return &pd->pub;
}

VB_EXPORT int ibv_dealloc_pd(struct ibv_pd *pub)
{
	struct vb_verbs_pd *pd = vb_container_of(pub, struct vb_verbs_pd, pub);
	if (!vb_is_inherited(pub->context)) {
		unsigned users = atomic_load(&pd->pd.refs);
		int err = vb_pd_fini(&pd->pd);
		if (err) {
			vb_explain("ibv_dealloc_pd", "%u memory regions, queues and address handles still use it", users);
			return vb_fail(err);
		}
	}
	vb_verbs_context_release(pub->context);
	free(pd);
	return 0;
}

/* ---- memory regions ---- */

enum { REMOTE_WRITES = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC };

static void explain_reg(const char *call, int err, const void *addr, uint64_t length, unsigned access)
{
	if ((access & REMOTE_WRITES) && !(access & IBV_ACCESS_LOCAL_WRITE))
		vb_explain(call, "access 0x%x: IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE", access);
	else if (err == -EINVAL)
		vb_explain(call, "access flags 0x%x are not all known, or address %p + %llu bytes leaves the address space", access, addr,
			   (unsigned long long)length);
	else if (err == -EFAULT)
		vb_explain(call, "not all of the %llu bytes at %p are mapped%s", (unsigned long long)length, addr,
			   access & IBV_ACCESS_LOCAL_WRITE ? " and writable, as IBV_ACCESS_LOCAL_WRITE needs" : "");
	else
		vb_explain(call, "no memory or no key left: %s", strerror(-err));
}

static void show_mr(struct vb_verbs_mr *mr, void *addr)
{
	mr->pub.addr = addr;
	mr->pub.length = mr->mr.length;
	mr->pub.handle = mr->pub.lkey = mr->pub.rkey = mr->mr.key;
}

static struct ibv_mr *reg_mr(const char *call, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	int err = vb_refuse_inherited(pd->context, call);
	if (err)
		return vb_fail_null(err);
	struct vb_verbs_mr *mr = calloc(1, sizeof(*mr));
	if (!mr)
		return vb_fail_null(-ENOMEM);
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	err = vb_mr_init(&mr->mr, vb_pd_of(pd), addr, length, iova, access);
	if (err) {
		explain_reg(call, err, addr, length, access);
		free(mr);
		return vb_fail_null(err);
	}
	mr->pub.context = pd->context;
	mr->pub.pd = pd;
	show_mr(mr, addr);
	return &mr->pub;
}

VB_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg_mr("ibv_reg_mr", pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

VB_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return reg_mr("ibv_reg_mr_iova", pd, addr, length, iova, (unsigned)access);
}

VB_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	return reg_mr("ibv_reg_mr", pd, addr, length, iova, access);
}

VB_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	vb_explain("ibv_reg_dmabuf_mr", "this device reaches memory of processes only, not dma-buf descriptors");
	return vb_fail_null(-EOPNOTSUPP);
}

VB_EXPORT int ibv_dereg_mr(struct ibv_mr *pub)
{
	struct vb_verbs_mr *mr = vb_container_of(pub, struct vb_verbs_mr, pub);
	int err = vb_is_inherited(pub->context) ? 0 : vb_mr_fini(&mr->mr);
	if (err)
		return vb_fail(err);
	free(mr);
	return 0;
}

static int check_rereg(struct ibv_mr *pub, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	static const char call[] = "ibv_rereg_mr";
	int err = vb_refuse_inherited(pub->context, call);
	if (err)
		return err;
	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED))
		vb_explain(call, "flags 0x%x: one or more of IBV_REREG_MR_CHANGE_TRANSLATION, _PD and _ACCESS must be set, and nothing else", flags);
	else if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length))
		vb_explain(call, "IBV_REREG_MR_CHANGE_TRANSLATION needs an address and a length");
	else if (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		vb_explain(call, "access 0x%x was given without IBV_REREG_MR_CHANGE_ACCESS", (unsigned)access);
	else if ((flags & IBV_REREG_MR_CHANGE_PD) && !pd)
		vb_explain(call, "IBV_REREG_MR_CHANGE_PD needs a protection domain");
	else if (flags & IBV_REREG_MR_CHANGE_PD)
		return vb_check_same_context(call, pub->context, "the protection domain", pd->context);
	else
		return 0;
	return -EINVAL;
}

/* A change that fails leaves the region as it was, which is what IBV_REREG_MR_ERR_INPUT says. */
VB_EXPORT int ibv_rereg_mr(struct ibv_mr *pub, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct vb_verbs_mr *mr = vb_container_of(pub, struct vb_verbs_mr, pub);
	int err = check_rereg(pub, flags, pd, addr, length, access);
	if (!err) {
		err = vb_mr_change(&mr->mr, flags, pd ? vb_pd_of(pd) : NULL, addr, length, (unsigned)access);
		if (err)
			explain_reg("ibv_rereg_mr", err, flags & IBV_REREG_MR_CHANGE_TRANSLATION ? addr : pub->addr,
				    flags & IBV_REREG_MR_CHANGE_TRANSLATION ? length : pub->length,
				    flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned)access : mr->mr.access);
	}
	if (err) {
		errno = -err;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		pub->pd = pd;
	show_mr(mr, flags & IBV_REREG_MR_CHANGE_TRANSLATION ? addr : pub->addr);
	return 0;
}
