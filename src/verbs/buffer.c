/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buffers, DMA handles and the call that registers memory of any kind. To this device all memory is equal.
 * So a buffer is pages of the program, and a DMA handle is a hint that is checked and not used.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/memory/memory.h"
#include "verbs/verbs.h"

/* ---- DMA handles ---- */

struct vb_verbs_dmah {
	struct ibv_dmah pub;
	atomic_uint regions; /* that name it */
};

static struct vb_verbs_dmah *dmah_of(struct ibv_dmah *pub)
{
	return vb_container_of(pub, struct vb_verbs_dmah, pub);
}

static int check_dmah(const struct ibv_dmah_init_attr *attr)
{
	static const char call[] = "ibv_alloc_dmah";
	enum {
		KNOWN = IBV_DMAH_INIT_ATTR_MASK_CPU_ID | IBV_DMAH_INIT_ATTR_MASK_PH |
			IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE,
		MAX_HINT = 3
	};
	if (attr->comp_mask & ~(uint32_t)KNOWN) {
		vb_explain_limit(call, "comp_mask 0x%x: this device knows 0x%x only", attr->comp_mask, KNOWN);
		return -EOPNOTSUPP;
	}
	if ((attr->comp_mask & IBV_DMAH_INIT_ATTR_MASK_CPU_ID) &&
	    (long)attr->cpu_id >= sysconf(_SC_NPROCESSORS_CONF))
		vb_explain(call, "cpu_id %u: there is no such processor", attr->cpu_id);
	else if ((attr->comp_mask & IBV_DMAH_INIT_ATTR_MASK_PH) && attr->ph > MAX_HINT)
		vb_explain(call, "ph %u: processing hints have two bits", attr->ph);
	else if ((attr->comp_mask & IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE) &&
		 attr->tph_mem_type > IBV_TPH_MEM_TYPE_PM)
		vb_explain(call, "tph_mem_type %u: volatile or persistent it can be", attr->tph_mem_type);
	else
		return 0;
	return -EINVAL;
}

VB_EXPORT struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr)
{
	int err = vb_refuse_call(context, "ibv_alloc_dmah");
	if (!err)
		err = check_dmah(attr);
	struct vb_verbs_dmah *dmah = err ? NULL : calloc(1, sizeof(*dmah));
	if (!dmah)
		return vb_fail_null(err ? err : -ENOMEM);
	dmah->pub.context = context;
	vb_verbs_context_hold(context);
	return &dmah->pub;
}

VB_EXPORT int ibv_dealloc_dmah(struct ibv_dmah *pub)
{
	unsigned users = atomic_load(&dmah_of(pub)->regions);
	if (users && !vb_is_inherited(pub->context)) {
		vb_explain("ibv_dealloc_dmah", "%u memory regions name it", users);
		return vb_fail(-EBUSY);
	}
	vb_verbs_context_release(pub->context);
	free(dmah_of(pub));
	return 0;
}

/* ---- buffers ---- */

struct ibv_buf {
	struct ibv_pd *pd;
	uint8_t *at;
	size_t bytes;
};

VB_EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **out)
{
	int err = vb_refuse_call(pd->context, "ibv_alloc_buf");
	if (!err && !size) {
		vb_explain("ibv_alloc_buf", "a buffer has at least one byte");
		err = -EINVAL;
	}
	if (err)
		return vb_fail_null(err);
	struct ibv_buf *buf = malloc(sizeof(*buf));
	void *at = NULL;
	if (!buf || posix_memalign(&at, vb_page_bytes(), size)) {
		free(buf);
		return vb_fail_null(-ENOMEM);
	}
	*buf = (struct ibv_buf){ .pd = pd, .at = at, .bytes = size };
	*out = buf;
	return memset(at, 0, size);
}

VB_EXPORT void ibv_free_buf(struct ibv_buf *buf)
{
	free(buf->at);
	free(buf);
}

static int check_buf(const char *call, const struct ibv_pd *pd, const struct ibv_buf *buf, const void *addr,
		     size_t length)
{
	size_t into = (size_t)((uintptr_t)addr - (uintptr_t)buf->at);
	if (buf->pd != pd)
		vb_explain(call, "the buffer was made in another protection domain");
	else if ((uintptr_t)addr < (uintptr_t)buf->at || into > buf->bytes || length > buf->bytes - into)
		vb_explain(call, "%zu bytes at %p are not within the %zu of the buffer", length, addr,
			   buf->bytes);
	else
		return 0;
	return -EINVAL;
}

VB_EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
					int access)
{
	static const char call[] = "ibv_reg_buf_mr";
	int err = check_buf(call, pd, buf, addr, length);
	return err ? vb_fail_null(err) :
		     vb_make_mr(call, pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

/* A dma-buf is an object of a kernel driver, and this device has no driver. */
VB_EXPORT int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
	vb_explain_limit("ibv_export_buf_dmabuf_fd", "the buffer is ordinary memory, of no dma-buf");
	return vb_fail_minus1(-ENODATA);
}

VB_EXPORT int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
	vb_explain_limit("ibv_dm_export_dmabuf_fd",
			 "device memory is ordinary memory here; a dma-buf of it would need a kernel driver");
	return vb_fail_minus1(-EOPNOTSUPP);
}

/* ---- regions of any kind ---- */

static int check_mr_attr(struct ibv_pd *pd, const struct ibv_mr_init_attr *attr)
{
	static const char call[] = "ibv_reg_mr_ex";
	enum {
		FILE_BITS = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET,
		KNOWN = IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR | FILE_BITS | IBV_REG_MR_MASK_DMAH |
			IBV_REG_MR_MASK_BUF
	};
	uint64_t mask = attr->comp_mask;
	if (mask & ~(uint64_t)KNOWN) {
		vb_explain_limit(call, "comp_mask 0x%llx: this device knows 0x%x only",
				 (unsigned long long)mask, KNOWN);
		return -EOPNOTSUPP;
	}
	if (!(mask & IBV_REG_MR_MASK_ADDR) == !(mask & IBV_REG_MR_MASK_FD))
		vb_explain(call, "comp_mask 0x%llx: a region has IBV_REG_MR_MASK_ADDR or IBV_REG_MR_MASK_FD",
			   (unsigned long long)mask);
	else if ((mask & IBV_REG_MR_MASK_ADDR) && (mask & FILE_BITS))
		vb_explain(call, "comp_mask 0x%llx: an offset is of a descriptor", (unsigned long long)mask);
	else if ((mask & IBV_REG_MR_MASK_DMAH) && (attr->access & IBV_ACCESS_ON_DEMAND))
		vb_explain(call, "a region on demand takes no DMA handle");
	else if ((mask & IBV_REG_MR_MASK_BUF) && !(mask & IBV_REG_MR_MASK_ADDR))
		vb_explain(call, "IBV_REG_MR_MASK_BUF needs IBV_REG_MR_MASK_ADDR");
	else if (((mask & IBV_REG_MR_MASK_DMAH) && !attr->dmah) ||
		 ((mask & IBV_REG_MR_MASK_BUF) && !attr->buf))
		vb_explain(call, "comp_mask 0x%llx: dmah or buf is NULL", (unsigned long long)mask);
	else if (mask & IBV_REG_MR_MASK_BUF)
		return check_buf(call, pd, attr->buf, attr->addr, attr->length);
	else
		return 0;
	return -EINVAL;
}

static struct ibv_mr *make_mr(struct ibv_pd *pd, const struct ibv_mr_init_attr *attr)
{
	bool has_iova = attr->comp_mask & IBV_REG_MR_MASK_IOVA;
	if (attr->comp_mask & IBV_REG_MR_MASK_ADDR)
		return vb_make_mr("ibv_reg_mr_ex", pd, attr->addr, attr->length,
				  has_iova ? attr->iova : (uintptr_t)attr->addr, (unsigned)attr->access);
	uint64_t offset = attr->comp_mask & IBV_REG_MR_MASK_FD_OFFSET ? attr->fd_offset : 0;
	return ibv_reg_dmabuf_mr(pd, offset, attr->length, has_iova ? attr->iova : offset, attr->fd,
				 attr->access);
}

VB_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	int err = check_mr_attr(pd, attr);
	bool has_hint = attr->comp_mask & IBV_REG_MR_MASK_DMAH;
	if (!err && has_hint)
		err = vb_check_same_context("ibv_reg_mr_ex", pd->context, "the DMA handle",
					    attr->dmah->context);
	if (err)
		return vb_fail_null(err);
	struct ibv_mr *pub = make_mr(pd, attr);
	if (pub && has_hint) {
		atomic_fetch_add(&dmah_of(attr->dmah)->regions, 1);
		vb_container_of(pub, struct vb_verbs_mr, pub)->dmah_regions = &dmah_of(attr->dmah)->regions;
	}
	return pub;
}
