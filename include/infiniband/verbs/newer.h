/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What rdma-core has had since the release that the other headers are of (44): DMA handles, one call for all
 * kinds of regions, buffers, the speed of a port, completion counters. A program that uses any of it needs a
 * library that has it. Part of <infiniband/verbs.h>.
 *
 * Calls that give an int return 0 or an errno value, calls that give a pointer NULL with errno set.
 */
#ifndef INFINIBAND_VERBS_NEWER_H
#define INFINIBAND_VERBS_NEWER_H

#include <infiniband/verbs/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- DMA handles (58) ---- */

enum ibv_tph_mem_type {
	IBV_TPH_MEM_TYPE_VM,	/* volatile memory */
	IBV_TPH_MEM_TYPE_PM,	/* persistent memory */
};

/* Which members of ibv_dmah_init_attr are valid. */
enum ibv_dmah_init_attr_mask {
	IBV_DMAH_INIT_ATTR_MASK_CPU_ID		= 1 << 0,
	IBV_DMAH_INIT_ATTR_MASK_PH		= 1 << 1,
	IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE	= 1 << 2,
};

struct ibv_dmah_init_attr {
	uint32_t	comp_mask;	/* enum ibv_dmah_init_attr_mask */
	uint32_t	cpu_id;
	uint8_t		ph;		/* the two bits of a PCIe processing hint */
	uint8_t		tph_mem_type;	/* enum ibv_tph_mem_type */
};

/* How memory is going to be used, for regions that name it. ibv_alloc_dmah(3) */
struct ibv_dmah {
	struct ibv_context	*context;
};

struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr);

/* EBUSY: regions name it. ibv_alloc_dmah(3) */
int ibv_dealloc_dmah(struct ibv_dmah *dmah);

/* ---- buffers (64) ---- */

/* Memory as the device likes it best; *buf is its handle. ibv_alloc_buf(3) */
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);

/* Register bytes of a buffer in the domain that it was made in. ibv_alloc_buf(3) */
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access);

/* A new descriptor of the dma-buf that a buffer lies in, or -1. ENODATA: it lies in none. ibv_alloc_buf(3) */
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);

/* The same of device memory. ibv_dm_export_dmabuf_fd(3) */
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);

/* ---- regions of any kind (58) ---- */

/* Which members of ibv_mr_init_attr beyond length and access are valid. */
enum ibv_mr_init_attr_mask {
	IBV_REG_MR_MASK_IOVA		= 1 << 0,
	IBV_REG_MR_MASK_ADDR		= 1 << 1,
	IBV_REG_MR_MASK_FD		= 1 << 2,
	IBV_REG_MR_MASK_FD_OFFSET	= 1 << 3,
	IBV_REG_MR_MASK_DMAH		= 1 << 4,
	IBV_REG_MR_MASK_BUF		= 1 << 5,
};

/* Memory at addr, or of a dma-buf from fd_offset on; buf beside addr: of that buffer. */
struct ibv_mr_init_attr {
	size_t		length;
	int		access;		/* enum ibv_access_flags */
	uint64_t	comp_mask;	/* enum ibv_mr_init_attr_mask */
	uint64_t	iova;
	void		*addr;
	int		fd;
	uint64_t	fd_offset;
	struct ibv_dmah	*dmah;
	struct ibv_buf	*buf;
};

/* ibv_reg_mr_ex(3) */
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *mr_init_attr);

/* ---- descriptors ---- */

struct ibv_fd_arr {
	int		*arr;
	uint32_t	count;
};

/* ---- ports (62) ---- */

/* What a port carries, in units of 100 Mbit/s. ibv_query_port_speed(3) */
int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);

/* ---- completion counters (65) ---- */

enum ibv_comp_cntr_type {
	IBV_COMP_CNTR_TYPE_WRS,		/* counts work requests */
	IBV_COMP_CNTR_TYPE_BYTES,
};

struct ibv_comp_cntr_init_attr {
	uint32_t		comp_mask;	/* 0 */
	enum ibv_comp_cntr_type	type;
	uint32_t		flags;		/* 0 */
};

/* Two numbers: what was done, and what failed. ibv_create_comp_cntr(3) */
struct ibv_comp_cntr {
	struct ibv_context	*context;
	uint32_t		handle;
};

struct ibv_comp_cntr_caps {
	uint64_t	max_value;
	uint32_t	max_counters;
	uint32_t	supported_qp_attach_ops;	/* enum ibv_qp_attach_comp_cntr_op */
};

/* Whose completions count: this queue pair's own work, or what its peer does to this side's memory. */
enum ibv_qp_attach_comp_cntr_op {
	IBV_QP_ATTACH_COMP_CNTR_OP_SEND			= 1 << 0,
	IBV_QP_ATTACH_COMP_CNTR_OP_RECV			= 1 << 1,
	IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ		= 1 << 2,
	IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ	= 1 << 3,
	IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE		= 1 << 4,
	IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE	= 1 << 5,
};

struct ibv_qp_attach_comp_cntr_attr {
	uint32_t	comp_mask;	/* 0 */
	uint32_t	op_mask;	/* enum ibv_qp_attach_comp_cntr_op */
};

/* What the inline call stands on: caps_size is the caller's sizeof(struct ibv_comp_cntr_caps). */
int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t caps_size);

/* ibv_query_comp_cntr_caps(3) */
static inline int ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps)
{
	return _ibv_query_comp_cntr_caps(context, caps, sizeof(*caps));
}

struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr);

/* EBUSY: a queue pair counts in it. ibv_create_comp_cntr(3) */
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *comp_cntr);

int ibv_set_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t *value);

/*
 * From now on completions of qp count, until it is destroyed. In RESET or INIT (else EINVAL). EBUSY: another
 * counter has one of these operations. ibv_qp_attach_comp_cntr(3)
 */
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *comp_cntr,
	struct ibv_qp_attach_comp_cntr_attr *attr);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_NEWER_H */
