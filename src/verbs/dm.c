/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory, which here is ordinary memory. The program reaches it by copies, and work requests reach it
 * by zero-based regions. Copies are in units of four bytes, which is what programs expect. A forked child
 * can allocate and use device memory on an inherited context, since no queue is involved.
 */
#include <stdlib.h>
#include <string.h>

#include "verbs/verbs.h"

enum { UNIT = 4, MAX_LOG_ALIGN = 21 };

struct vb_verbs_dm {
	struct ibv_dm pub;
	uint8_t *bytes;
	size_t length;
	atomic_uint regions; /* on this handle */
	/* handles on the same bytes: the one that ibv_alloc_dm gave, and imported ones */
	atomic_uint *shares;
	struct vb_list node; /* under lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list all = VB_LIST_INIT(all);
static size_t allocated;
static uint32_t last_handle;

static struct vb_verbs_dm *of(struct ibv_dm *pub) { return vb_container_of(pub, struct vb_verbs_dm, pub); }

/* ---- copies ---- */

static int check_copy(const struct vb_verbs_dm *dm, uint64_t offset, size_t length, const char *call)
{
	if (offset > dm->length || length > dm->length - offset) {
		vb_explain(call, "bytes %llu to %llu are not within the %zu of the device memory",
			   (unsigned long long)offset, (unsigned long long)offset + length, dm->length);
		return EFAULT;
	}
	if (offset % UNIT || length % UNIT) {
		vb_explain(call, "offset %llu and length %zu must be multiples of %d",
			   (unsigned long long)offset, length, UNIT);
		return EINVAL;
	}
	return 0;
}

static int copy_to(struct ibv_dm *pub, uint64_t offset, const void *from, size_t length)
{
	struct vb_verbs_dm *dm = of(pub);
	int err = check_copy(dm, offset, length, "ibv_memcpy_to_dm");
	if (!err)
		memcpy(dm->bytes + offset, from, length);
	return err;
}

static int copy_from(void *to, struct ibv_dm *pub, uint64_t offset, size_t length)
{
	struct vb_verbs_dm *dm = of(pub);
	int err = check_copy(dm, offset, length, "ibv_memcpy_from_dm");
	if (!err)
		memcpy(to, dm->bytes + offset, length);
	return err;
}

/* ---- allocation ---- */

static struct vb_verbs_dm *make(struct ibv_context *context, uint8_t *bytes, size_t length, uint32_t handle)
{
	struct vb_verbs_dm *dm = calloc(1, sizeof(*dm));
	if (!dm)
		return NULL;
	dm->pub = (struct ibv_dm){ .context = context, .memcpy_to_dm = copy_to, .memcpy_from_dm = copy_from,
				   .comp_mask = IBV_DM_MASK_HANDLE, .handle = handle };
	dm->bytes = bytes;
	dm->length = length;
	vb_verbs_context_hold(context);
	return dm;
}

static bool reserve(size_t length)
{
	pthread_mutex_lock(&lock);
	bool fits = length <= VB_MAX_DM_BYTES - allocated;
	if (fits)
		allocated += length;
	pthread_mutex_unlock(&lock);
	return fits;
}

static void unreserve(size_t length)
{
	pthread_mutex_lock(&lock);
	allocated -= length;
	pthread_mutex_unlock(&lock);
}

static int check_alloc(const struct ibv_alloc_dm_attr *attr)
{
	static const char call[] = "ibv_alloc_dm";
	if (attr->comp_mask)
		vb_explain(call, "comp_mask is 0x%x: it must be 0", attr->comp_mask);
	else if (!attr->length || attr->length > VB_MAX_DM_BYTES)
		vb_explain(call, "length is %zu: the device has 1 to %d bytes (max_dm_size)", attr->length,
			   VB_MAX_DM_BYTES);
	else if (attr->log_align_req > MAX_LOG_ALIGN)
		vb_explain(call, "log_align_req is %u, the most is %d", attr->log_align_req, MAX_LOG_ALIGN);
	else
		return 0;
	return -EINVAL;
}

static uint8_t *take_bytes(const struct ibv_alloc_dm_attr *attr)
{
	size_t align = VB_CACHE_LINE;
	void *bytes;
	if (align < (size_t)1 << attr->log_align_req)
		align = (size_t)1 << attr->log_align_req;
	if (posix_memalign(&bytes, align, attr->length))
		return NULL;
	return memset(bytes, 0, attr->length);
}

static void enlist(struct vb_verbs_dm *dm)
{
	pthread_mutex_lock(&lock);
	dm->pub.handle = ++last_handle;
	vb_list_add_tail(&all, &dm->node);
	pthread_mutex_unlock(&lock);
}

struct ibv_dm *vb_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	int err = vb_fault_call("ibv_alloc_dm", 0); /* in a forked child as well: it is memory */
	if (!err)
		err = check_alloc(attr);
	if (err)
		return vb_fail_null(err);
	if (!reserve(attr->length)) {
		vb_explain_limit("ibv_alloc_dm",
				 "%d bytes (max_dm_size) are all that there is, and the rest is too little",
				 VB_MAX_DM_BYTES);
		return vb_fail_null(-ENOMEM);
	}
	uint8_t *bytes = take_bytes(attr);
	atomic_uint *shares = malloc(sizeof(*shares));
	struct vb_verbs_dm *dm = bytes && shares ? make(context, bytes, attr->length, 0) : NULL;
	if (!dm) {
		free(bytes);
		free(shares);
		unreserve(attr->length);
		return vb_fail_null(-ENOMEM);
	}
	atomic_init(shares, 1);
	dm->shares = shares;
	enlist(dm);
	return &dm->pub;
}

static void destroy(struct vb_verbs_dm *dm)
{
	pthread_mutex_lock(&lock);
	vb_list_del(&dm->node);
	bool last = atomic_fetch_sub(dm->shares, 1) == 1;
	if (last)
		allocated -= dm->length;
	pthread_mutex_unlock(&lock);
	if (last) {
		free(dm->bytes);
		free(dm->shares);
	}
	vb_verbs_context_release(dm->pub.context);
	free(dm);
}

int vb_free_dm(struct ibv_dm *pub)
{
	struct vb_verbs_dm *dm = of(pub);
	unsigned users = atomic_load(&dm->regions);
	if (users) {
		vb_explain("ibv_free_dm", "%u memory regions still use it", users);
		return vb_fail(-EBUSY);
	}
	destroy(dm);
	return 0;
}

/* ---- regions ---- */

struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *pub, uint64_t offset, size_t length,
			    unsigned access)
{
	static const char call[] = "ibv_reg_dm_mr";
	struct vb_verbs_dm *dm = of(pub);
	if (!(access & IBV_ACCESS_ZERO_BASED) || (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB))) {
		vb_explain(
			call,
			"access 0x%x: IBV_ACCESS_ZERO_BASED is needed, paging on demand and huge pages do not go with it",
			access);
		return vb_fail_null(-EINVAL);
	}
	if (offset > dm->length || length > dm->length - offset) {
		vb_explain(call, "%zu bytes from %llu on are not within the %zu of the device memory", length,
			   (unsigned long long)offset, dm->length);
		return vb_fail_null(-EINVAL);
	}
	int err = vb_check_same_context(call, pd->context, "the device memory", pub->context);
	if (err)
		return vb_fail_null(err);
	struct ibv_mr *mr = vb_make_mr(call, pd, dm->bytes + offset, length, 0, access);
	if (!mr)
		return NULL;
	struct vb_verbs_mr *own = vb_container_of(mr, struct vb_verbs_mr, pub);
	own->is_fixed = true;
	mr->addr = NULL; /* addresses count from 0 */
	atomic_fetch_add(&dm->regions, 1);
	own->dm_regions = &dm->regions;
	return mr;
}

/* ---- imports: a further handle on the same bytes ---- */

static struct vb_verbs_dm *find_locked(uint32_t handle)
{
	struct vb_verbs_dm *dm;
	vb_list_for_each(dm, &all, node)
		if (dm->pub.handle == handle)
			return dm;
	return NULL;
}

VB_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	pthread_mutex_lock(&lock);
	struct vb_verbs_dm *found = find_locked(handle);
	struct vb_verbs_dm *dm = found ? make(context, found->bytes, found->length, handle) : NULL;
	if (dm) {
		dm->shares = found->shares;
		atomic_fetch_add(dm->shares, 1);
		vb_list_init(&dm->node);
	}
	pthread_mutex_unlock(&lock);
	if (!found)
		vb_explain("ibv_import_dm", "there is no device memory of handle %u in this process", handle);
	return dm ? &dm->pub : vb_fail_null(found ? -ENOMEM : -ENOENT);
}

VB_EXPORT void ibv_unimport_dm(struct ibv_dm *pub)
{
	unsigned users = atomic_load(&of(pub)->regions);
	if (users)
		vb_explain("ibv_unimport_dm",
			   "%u memory regions that were made with the handle still exist: it stays", users);
	else
		destroy(of(pub));
}

/* ---- forks ---- */

static void forget_lock(void)
{
	pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget_lock);
}
