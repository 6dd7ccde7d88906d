/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains and the memory that belongs to them: regions, windows, device memory. Thread, parent
 * and extended connection domains are here too. Part of <infiniband/verbs.h>.
 *
 * A protection domain ties together: work queues use only regions, windows and address handles of their own
 * domain. It cannot be released before them (EBUSY). Calls that give an int return 0 or an errno value;
 * calls that give a pointer return NULL with errno set; both give EOPNOTSUPP if the device lacks the verb.
 */
#ifndef INFINIBAND_VERBS_MEMORY_H
#define INFINIBAND_VERBS_MEMORY_H

#include <infiniband/verbs/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A protection domain. ibv_alloc_pd(3) */
struct ibv_pd {
	struct ibv_context	*context;
	uint32_t		handle;
};

/* Make a protection domain; it lives until ibv_dealloc_pd(). ibv_alloc_pd(3) */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context);

/* Release it. EBUSY: something still belongs to it. ibv_alloc_pd(3) */
int ibv_dealloc_pd(struct ibv_pd *pd);

/*
 * Use protection domain pd_handle of the process whose device was imported. Ends with ibv_unimport_pd().
 * ibv_import_pd(3)
 */
struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle);
void ibv_unimport_pd(struct ibv_pd *pd);

/*
 * A thread domain: its objects are used by one thread at a time, so they may go without locks.
 * ibv_alloc_td(3)
 */
struct ibv_td {
	struct ibv_context	*context;
};

/* comp_mask must be 0. ibv_alloc_td(3) */
struct ibv_td_init_attr {
	uint32_t	comp_mask;
};

/* Make a thread domain; it lives until ibv_dealloc_td(). ibv_alloc_td(3) */
static inline struct ibv_td *ibv_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *init_attr)
{
	return verbs_make_op_(context, alloc_td, context, init_attr);
}

/* Release it. EBUSY: a parent domain still uses it. ibv_alloc_td(3) */
static inline int ibv_dealloc_td(struct ibv_td *td)
{
	return verbs_call_op_(td->context, dealloc_td, td);
}

/* Which members of ibv_parent_domain_init_attr beyond pd and td are valid. ibv_alloc_parent_domain(3) */
enum ibv_parent_domain_init_attr_mask {
	IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS	= 1 << 0,
	IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT	= 1 << 1,
	IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2,
};

/* What the program's allocator returns to leave an allocation to the library. */
#define IBV_ALLOCATOR_USE_DEFAULT	((void *)-1)

/* A parent domain is pd with properties: a thread domain (or NULL), and allocators for the queues' memory. */
struct ibv_parent_domain_init_attr {
	struct ibv_pd	*pd;
	struct ibv_td	*td;
	uint32_t	comp_mask;	/* enum ibv_parent_domain_init_attr_mask */
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment,
		       uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type);
	void		*pd_context;
};

/*
 * Make a parent domain; it serves wherever a pd does and ends with ibv_dealloc_pd().
 * ibv_alloc_parent_domain(3)
 */
static inline struct ibv_pd *ibv_alloc_parent_domain(struct ibv_context *context,
						     struct ibv_parent_domain_init_attr *attr)
{
	return verbs_make_op_(context, alloc_parent_domain, context, attr);
}

/* Which members of ibv_xrcd_init_attr are valid. ibv_open_xrcd(3) */
enum ibv_xrcd_init_attr_mask {
	IBV_XRCD_INIT_ATTR_FD		= 1 << 0,
	IBV_XRCD_INIT_ATTR_OFLAGS	= 1 << 1,
	IBV_XRCD_INIT_ATTR_RESERVED	= 1 << 2,
};

/* The file whose inode names a shared domain (fd, or -1 for a private one), and O_CREAT and O_EXCL for it. */
struct ibv_xrcd_init_attr {
	uint32_t	comp_mask;	/* enum ibv_xrcd_init_attr_mask */
	int		fd;
	int		oflags;
};

/* An extended reliable connection domain: XRC queue pairs and SRQs meet in it. ibv_open_xrcd(3) */
struct ibv_xrcd {
	struct ibv_context	*context;
};

/* Open a domain; it lives until ibv_close_xrcd(). ibv_open_xrcd(3) */
static inline struct ibv_xrcd *ibv_open_xrcd(struct ibv_context *context,
					     struct ibv_xrcd_init_attr *xrcd_init_attr)
{
	return verbs_make_op_(context, open_xrcd, context, xrcd_init_attr);
}

/* Close it. EBUSY: XRC objects of this process still use it. ibv_open_xrcd(3) */
static inline int ibv_close_xrcd(struct ibv_xrcd *xrcd)
{
	return verbs_get_ctx(xrcd->context)->close_xrcd(xrcd);
}

/*
 * Rights on a region. Local reading is always allowed; remote writes and atomics need LOCAL_WRITE beside
 * them. ZERO_BASED: addresses count from the region's start. ibv_reg_mr(3)
 */
enum ibv_access_flags {
	IBV_ACCESS_LOCAL_WRITE		= 1 << 0,
	IBV_ACCESS_REMOTE_WRITE		= 1 << 1,
	IBV_ACCESS_REMOTE_READ		= 1 << 2,
	IBV_ACCESS_REMOTE_ATOMIC	= 1 << 3,
	IBV_ACCESS_MW_BIND		= 1 << 4,
	IBV_ACCESS_ZERO_BASED		= 1 << 5,
	IBV_ACCESS_ON_DEMAND		= 1 << 6,
	IBV_ACCESS_HUGETLB		= 1 << 7,
	IBV_ACCESS_FLUSH_GLOBAL		= 1 << 8,
	IBV_ACCESS_FLUSH_PERSISTENT	= 1 << 9,
	IBV_ACCESS_RELAXED_ORDERING	= IBV_ACCESS_OPTIONAL_FIRST,
};

/*
 * A memory region: length bytes at addr, named by lkey in local work requests and by rkey for peers.
 * ibv_reg_mr(3)
 */
struct ibv_mr {
	struct ibv_context	*context;
	struct ibv_pd		*pd;
	void			*addr;
	size_t			length;
	uint32_t		handle;
	uint32_t		lkey;
	uint32_t		rkey;
};

/*
 * Register memory. What work requests and peers use as the address of the first byte is iova. Bits of access
 * out of IBV_ACCESS_OPTIONAL_RANGE that the device does not know are ignored. The inline calls below use it.
 * ibv_reg_mr(3)
 */
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access);

/*
 * Register length bytes at addr; the region lives until ibv_dereg_mr() and the memory must live as long.
 * EINVAL: bad access flags; ENOMEM; EFAULT: no such memory. ibv_reg_mr(3)
 */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);

/* The same with another address for the first byte than addr. ibv_reg_mr(3) */
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access);

/*
 * The two calls are macros, so that a program which uses no optional access flag, and whose compiler can see
 * that, keeps working with a library from before ibv_reg_mr_iova2(). Write (ibv_reg_mr)(...) for the
 * function itself.
 */
static inline __attribute__((__always_inline__)) struct ibv_mr *
__ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access,
		  int is_access_const)
{
	if (!is_access_const || (access & IBV_ACCESS_OPTIONAL_RANGE))
		return ibv_reg_mr_iova2(pd, addr, length, iova, access);
	return ibv_reg_mr_iova(pd, addr, length, iova, (int)access);
}

static inline __attribute__((__always_inline__)) struct ibv_mr *
__ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned int access, int is_access_const)
{
	if (!is_access_const || (access & IBV_ACCESS_OPTIONAL_RANGE))
		return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
	return ibv_reg_mr(pd, addr, length, (int)access);
}

#define ibv_reg_mr_iova(pd, addr, length, iova, access)					\
	__ibv_reg_mr_iova(pd, addr, length, iova, access,				\
			  __builtin_constant_p((access) & IBV_ACCESS_OPTIONAL_RANGE))
#define ibv_reg_mr(pd, addr, length, access)						\
	__ibv_reg_mr(pd, addr, length, access,						\
		     __builtin_constant_p((access) & IBV_ACCESS_OPTIONAL_RANGE))

/* Register length bytes from offset on of the dma-buf fd; first byte's address is iova. ibv_reg_mr(3) */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
				 int access);

/* A region without memory: reads as zeros, swallows writes. Has an lkey only. ibv_alloc_null_mr(3) */
static inline struct ibv_mr *ibv_alloc_null_mr(struct ibv_pd *pd)
{
	return verbs_make_op_(pd->context, alloc_null_mr, pd);
}

/* What ibv_rereg_mr() is to change. ibv_rereg_mr(3) */
enum ibv_rereg_mr_flags {
	IBV_REREG_MR_CHANGE_TRANSLATION	= 1 << 0,
	IBV_REREG_MR_CHANGE_PD		= 1 << 1,
	IBV_REREG_MR_CHANGE_ACCESS	= 1 << 2,
	IBV_REREG_MR_FLAGS_SUPPORTED	= 7,
};

/*
 * Why ibv_rereg_mr() failed, and what is left: after INPUT and DONT_FORK_NEW the region is as before, after
 * DO_FORK_OLD it is changed, after the others it is good for nothing but ibv_dereg_mr(). ibv_rereg_mr(3)
 */
enum ibv_rereg_mr_err_code {
	IBV_REREG_MR_ERR_INPUT			= -1,
	IBV_REREG_MR_ERR_DONT_FORK_NEW		= -2,
	IBV_REREG_MR_ERR_DO_FORK_OLD		= -3,
	IBV_REREG_MR_ERR_CMD			= -4,
	IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW	= -5,
};

/*
 * Change a region in place: its memory, domain or rights, as flags say. The keys may change. 0 or an enum
 * ibv_rereg_mr_err_code value, with errno. ibv_rereg_mr(3)
 */
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access);

/*
 * End a region; no peer touches the memory afterwards. EBUSY: a memory window is bound to it. ibv_reg_mr(3)
 */
int ibv_dereg_mr(struct ibv_mr *mr);

/*
 * Use region mr_handle of the process that pd was imported from. Ends with ibv_unimport_mr().
 * ibv_import_mr(3)
 */
struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle);
void ibv_unimport_mr(struct ibv_mr *mr);

/* Say what will be done with ranges of regions; num_sge entries. ibv_advise_mr(3) */
static inline int ibv_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
				struct ibv_sge *sg_list, uint32_t num_sge)
{
	return verbs_call_op_(pd->context, advise_mr, pd, advice, flags, sg_list, num_sge);
}

/* A memory window: a right to a part of a region, granted and withdrawn by work requests. ibv_alloc_mw(3) */
struct ibv_mw {
	struct ibv_context	*context;
	struct ibv_pd		*pd;
	uint32_t		rkey;
	uint32_t		handle;
	enum ibv_mw_type	type;
};

/*
 * What a window shows: length bytes at addr of mr, which must have IBV_ACCESS_MW_BIND. Length 0 shows
 * nothing.
 */
struct ibv_mw_bind_info {
	struct ibv_mr	*mr;
	uint64_t	addr;
	uint64_t	length;
	unsigned int	mw_access_flags;	/* enum ibv_access_flags, the remote ones and ZERO_BASED */
};

/* The work request of ibv_bind_mw(). */
struct ibv_mw_bind {
	uint64_t		wr_id;
	unsigned int		send_flags;	/* enum ibv_send_flags */
	struct ibv_mw_bind_info	bind_info;
};

/* Make a window, bound to nothing; it lives until ibv_dealloc_mw(). ibv_alloc_mw(3) */
static inline struct ibv_mw *ibv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_context *context = pd->context;

	if (context->ops.alloc_mw)
		return context->ops.alloc_mw(pd, type);
	errno = EOPNOTSUPP;
	return NULL;
}

/* Release a window, bound or not. ibv_alloc_mw(3) */
static inline int ibv_dealloc_mw(struct ibv_mw *mw)
{
	return mw->context->ops.dealloc_mw(mw);
}

/*
 * The key with its low byte, which the program may choose for a type 2 window, advanced by one.
 * ibv_inc_rkey(3)
 */
static inline uint32_t ibv_inc_rkey(uint32_t rkey)
{
	return (rkey & 0xffffff00) | ((rkey + 1) & 0xff);
}

/*
 * Post a bind of a type 1 window on qp; on success mw->rkey is the new key. EINVAL: type 2, or a range
 * without a region; EPERM: window and region of different domains; ENOMEM: queue full. ibv_bind_mw(3)
 */
static inline int ibv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *mw_bind)
{
	const struct ibv_mw_bind_info *info = &mw_bind->bind_info;

	if (mw->type != IBV_MW_TYPE_1)
		return EINVAL;
	if (info->mr && info->mr->pd != mw->pd)
		return EPERM;
	if (!info->mr && (info->addr || info->length))
		return EINVAL;
	return mw->context->ops.bind_mw(qp, mw, mw_bind);
}

/* Size in bytes and alignment (2^log_align_req) of device memory; comp_mask must be 0. ibv_alloc_dm(3) */
struct ibv_alloc_dm_attr {
	size_t		length;
	uint32_t	log_align_req;
	uint32_t	comp_mask;
};

/* Which members of struct ibv_dm from handle on are valid. */
enum ibv_dm_mask {
	IBV_DM_MASK_HANDLE	= 1 << 0,
};

/* Memory of the device, reached by copies and through regions. ibv_alloc_dm(3) */
struct ibv_dm {
	struct ibv_context	*context;
	int (*memcpy_to_dm)(struct ibv_dm *dm, uint64_t dm_offset, const void *host_addr, size_t length);
	int (*memcpy_from_dm)(void *host_addr, struct ibv_dm *dm, uint64_t dm_offset, size_t length);
	uint32_t		comp_mask;	/* enum ibv_dm_mask */
	uint32_t		handle;
};

/* Take device memory; it lives until ibv_free_dm(). ibv_alloc_dm(3) */
static inline struct ibv_dm *ibv_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	return verbs_make_op_(context, alloc_dm, context, attr);
}

/* Give it back. EBUSY: a region still uses it. ibv_alloc_dm(3) */
static inline int ibv_free_dm(struct ibv_dm *dm)
{
	return verbs_call_op_(dm->context, free_dm, dm);
}

/*
 * Use device memory dm_handle of the process whose device was imported. Ends with ibv_unimport_dm().
 * ibv_import_dm(3)
 */
struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle);
void ibv_unimport_dm(struct ibv_dm *dm);

/* Copy length bytes between the program's memory and device memory from dm_offset on. ibv_alloc_dm(3) */
static inline int ibv_memcpy_to_dm(struct ibv_dm *dm, uint64_t dm_offset, const void *host_addr,
	size_t length)
{
	return dm->memcpy_to_dm(dm, dm_offset, host_addr, length);
}

static inline int ibv_memcpy_from_dm(void *host_addr, struct ibv_dm *dm, uint64_t dm_offset, size_t length)
{
	return dm->memcpy_from_dm(host_addr, dm, dm_offset, length);
}

/*
 * Register length bytes of device memory; access must have ZERO_BASED, addresses count from dm_offset.
 * ibv_alloc_dm(3)
 */
static inline struct ibv_mr *ibv_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t dm_offset,
					   size_t length, unsigned int access)
{
	return verbs_make_op_(pd->context, reg_dm_mr, pd, dm, dm_offset, length, access);
}

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_MEMORY_H */
