/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions. */
#include <stdlib.h>
#include <string.h>

#include "host/memory/memory.h"
#include "verbs/verbs.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static void explain_reg(const char *call, int err, const void *addr, uint64_t length, unsigned access)
{
	if ((access & VB_REMOTE_WRITES) && !(access & IBV_ACCESS_LOCAL_WRITE))
		vb_explain(
			call,
			"access 0x%x: IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE",
			access);
	else if (err == -EINVAL)
		vb_explain(
			call,
			"access flags 0x%x are not all known, or address %p + %llu bytes leaves the address space (all of it, NULL "
			"and SIZE_MAX, needs IBV_ACCESS_ON_DEMAND)",
			access, addr, (unsigned long long)length);
	else if (err == -EBUSY)
		vb_explain(call, "memory windows are bound to it");
	else if (err == -EFAULT)
		vb_explain(call, "not all of the %llu bytes at %p are mapped%s", (unsigned long long)length,
			   addr,
			   access & IBV_ACCESS_LOCAL_WRITE ?
				   " and writable, as IBV_ACCESS_LOCAL_WRITE needs" :
				   "");
	else
		vb_explain_limit(call, "no memory or no key left: %s", strerror(-err));
}

static void show_mr(struct vb_verbs_mr *mr, void *addr)
{
	mr->pub.addr = addr;
	mr->pub.length = mr->mr.length;
	mr->pub.handle = mr->pub.lkey = mr->pub.rkey = mr->mr.key;
}

struct ibv_mr *vb_make_mr(const char *call, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			  unsigned access)
{
	int err = vb_refuse_call(pd->context, call);
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
	if (vb_check_enabled)
		vb_check_key_made(&mr->mr);
	return &mr->pub;
}

VB_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return vb_make_mr("ibv_reg_mr", pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

VB_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
					 int access)
{
	return vb_make_mr("ibv_reg_mr_iova", pd, addr, length, iova, (unsigned)access);
}

VB_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
					  unsigned access)
{
	return vb_make_mr("ibv_reg_mr", pd, addr, length, iova, access);
}

static int check_dmabuf(uint64_t offset, size_t length, uint64_t iova, int access)
{
	enum {
		KNOWN = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING
	};
	uint64_t page = vb_page_bytes();
	if (!length || offset + length < offset)
		vb_explain("ibv_reg_dmabuf_mr",
			   "a region of a dma-buf is at least a byte long and within it");
	else if ((unsigned)access & ~(unsigned)KNOWN)
		vb_explain("ibv_reg_dmabuf_mr", "access 0x%x: 0x%x is possible", (unsigned)access, KNOWN);
	else if (offset % page != iova % page)
		vb_explain("ibv_reg_dmabuf_mr", "offset and iova must be equally far into a page");
	else
		return 0;
	return -EINVAL;
}

/* The adapter reaches the buffer by a mapping, so its exporter must allow mmap. */
VB_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
					   int fd, int access)
{
	static const char call[] = "ibv_reg_dmabuf_mr";
	uint64_t into = offset % vb_page_bytes();
	void *mapping;
	int err = vb_refuse_inherited(pd->context, call);
	/* programs ask so whether regions of dma-bufs can be had at all: they can, says this errno */
	if (!err && fd < 0) {
		vb_explain_limit(call, "descriptor %d is none", fd);
		err = vb_fault_call(call, 0);
		return vb_fail_null(err ? err : -EBADF);
	}
	if (!err)
		err = check_dmabuf(offset, length, iova, access);
	if (err)
		return vb_fail_null(err);
	err = vb_file_map(fd, offset - into, into + length, access & IBV_ACCESS_LOCAL_WRITE, &mapping);
	if (err) {
		vb_explain(call, "descriptor %d cannot be mapped: %s", fd, strerror(-err));
		return vb_fail_null(err);
	}
	struct ibv_mr *pub = vb_make_mr(call, pd, (char *)mapping + into, length, iova, (unsigned)access);
	if (!pub) {
		vb_unmap(mapping, into + length);
		return NULL;
	}
	struct vb_verbs_mr *mr = vb_container_of(pub, struct vb_verbs_mr, pub);
	mr->mapping = mapping;
	mr->mapping_bytes = into + length;
	mr->is_fixed = true;
	pub->addr = NULL;
	return pub;
}

struct ibv_mr *vb_alloc_null_mr(struct ibv_pd *pd)
{
	int err = vb_refuse_call(pd->context, "ibv_alloc_null_mr");
	struct vb_verbs_mr *mr = err ? NULL : calloc(1, sizeof(*mr));
	if (!mr)
		return vb_fail_null(err ? err : -ENOMEM);
	err = vb_mr_init_null(&mr->mr, vb_pd_of(pd));
	if (err) {
		explain_reg("ibv_alloc_null_mr", err, NULL, 0, 0);
		free(mr);
		return vb_fail_null(err);
	}
	mr->is_fixed = true;
	mr->pub = (struct ibv_mr){
		.context = pd->context, .pd = pd, .length = SIZE_MAX, .handle = mr->mr.key, .lkey = mr->mr.key
	};
	return &mr->pub;
}

int vb_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list,
		 uint32_t n)
{
	int err = vb_refuse_call(pd->context, "ibv_advise_mr");
	if (err)
		return -err;
	err = vb_mr_advise(vb_pd_of(pd), advice, flags, list, n);
	if (err)
		vb_explain(
			"ibv_advise_mr", "advice %d, flags 0x%x, %u ranges: %s", (int)advice, flags, n,
			err == -EFAULT ?
				"a range is not of a region with IBV_ACCESS_ON_DEMAND of this domain, or not mapped in this process" :
			err == -EINVAL ?
				"IBV_ADVISE_MR_FLAG_FLUSH is the only flag, and there is at least one range" :
				"unknown advice");
	return -err;
}

/* Of an imported handle, which has no region of its own: only the region's owner may. */
static int refuse_imported(const char *call, const struct vb_verbs_mr *mr)
{
	if (mr->mr.key || vb_is_inherited(mr->pub.context))
		return 0;
	vb_explain(call, "this is a handle of ibv_import_mr: the region's owner may, and ibv_unimport_mr "
			 "releases the handle");
	return -EINVAL;
}

VB_EXPORT int ibv_dereg_mr(struct ibv_mr *pub)
{
	struct vb_verbs_mr *mr = vb_container_of(pub, struct vb_verbs_mr, pub);
	int refused = vb_fault_call("ibv_dereg_mr", 0);
	if (!refused)
		refused = refuse_imported("ibv_dereg_mr", mr);
	if (refused)
		return vb_fail(refused);
	bool checks = vb_check_enabled && !vb_is_inherited(pub->context);
	if (checks)
		vb_check_key_end(&mr->mr, false);
	int err = vb_is_inherited(pub->context) ? 0 : vb_mr_fini(&mr->mr);
	if (checks && !err)
		vb_check_key_gone(mr->mr.key);
	if (err) {
		explain_reg("ibv_dereg_mr", err, pub->addr, pub->length, mr->mr.access);
		return vb_fail(err);
	}
	if (mr->dm_regions)
		atomic_fetch_sub(mr->dm_regions, 1);
	if (mr->dmah_regions)
		atomic_fetch_sub(mr->dmah_regions, 1);
	if (mr->mapping)
		vb_unmap(mr->mapping, mr->mapping_bytes);
	free(mr);
	return 0;
}

static int check_rereg(struct ibv_mr *pub, int flags, struct ibv_pd *pd, void *addr, size_t length,
		       int access)
{
	static const char call[] = "ibv_rereg_mr";
	int err = vb_refuse_call(pub->context, call);
	if (!err)
		err = refuse_imported(call, vb_container_of(pub, struct vb_verbs_mr, pub));
	if (err)
		return err;
	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED))
		vb_explain(
			call,
			"flags 0x%x: one or more of IBV_REREG_MR_CHANGE_TRANSLATION, _PD and _ACCESS must be set, and nothing else",
			flags);
	else if (vb_container_of(pub, struct vb_verbs_mr, pub)->is_fixed && (flags != IBV_REREG_MR_CHANGE_PD))
		vb_explain(
			call,
			"of a region of device memory, of a dma-buf or of nothing only the protection domain can be changed");
	else if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length))
		vb_explain(call, "IBV_REREG_MR_CHANGE_TRANSLATION needs an address and a length");
	else if (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		vb_explain(call, "access 0x%x was given without IBV_REREG_MR_CHANGE_ACCESS",
			   (unsigned)access);
	else if ((flags & IBV_REREG_MR_CHANGE_PD) && !pd)
		vb_explain(call, "IBV_REREG_MR_CHANGE_PD needs a protection domain");
	else if (flags & IBV_REREG_MR_CHANGE_PD)
		return vb_check_same_context(call, pub->context, "the protection domain", pd->context);
	else
		return 0;
	return -EINVAL;
}

/* A change that fails leaves the region as it was; IBV_REREG_MR_ERR_INPUT says so. */
VB_EXPORT int ibv_rereg_mr(struct ibv_mr *pub, int flags, struct ibv_pd *pd, void *addr, size_t length,
			   int access)
{
	struct vb_verbs_mr *mr = vb_container_of(pub, struct vb_verbs_mr, pub);
	int err = check_rereg(pub, flags, pd, addr, length, access);
	if (!err && vb_check_enabled)
		vb_check_key_end(&mr->mr, true);
	if (!err) {
		err = vb_mr_change(&mr->mr, flags, pd ? vb_pd_of(pd) : NULL, addr, length, (unsigned)access);
		if (err)
			explain_reg("ibv_rereg_mr", err,
				    flags & IBV_REREG_MR_CHANGE_TRANSLATION ? addr : pub->addr,
				    flags & IBV_REREG_MR_CHANGE_TRANSLATION ? length : pub->length,
				    flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned)access : mr->mr.access);
	}
	if (err) {
		errno = -err;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (vb_check_enabled) {
		vb_check_key_gone(mr->mr.key);
		vb_check_key_made(&mr->mr);
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		pub->pd = pd;
	if (!mr->is_fixed)
		show_mr(mr, flags & IBV_REREG_MR_CHANGE_TRANSLATION ? addr : pub->addr);
	return 0;
}

/* ---- imports ---- */

/* A further handle on a region of this process. */
VB_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	uint64_t length;
	int err = vb_refuse_call(pd->context, "ibv_import_mr");
	if (err)
		return vb_fail_null(err);
	err = vb_mr_find(handle, vb_pd_of(pd)->number, &length);
	if (err) {
		vb_explain("ibv_import_mr",
			   "there is no memory region of handle %u in this protection domain", handle);
		return vb_fail_null(err);
	}
	struct vb_verbs_mr *mr = calloc(1, sizeof(*mr));
	if (!mr)
		return vb_fail_null(-ENOMEM);
	mr->pub = (struct ibv_mr){ .context = pd->context,
				   .pd = pd,
				   .length = length,
				   .handle = handle,
				   .lkey = handle,
				   .rkey = handle };
	return &mr->pub;
}

VB_EXPORT void ibv_unimport_mr(struct ibv_mr *pub)
{
	free(vb_container_of(pub, struct vb_verbs_mr, pub));
}
