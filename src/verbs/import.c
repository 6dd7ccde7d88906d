/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Imports: further handles on a device that is open in this process, and on its protection domains and
 * regions (device memory: dm.c). The descriptor cmd_fd is the device's name and no more, so another process
 * that gets it can do nothing with it: regions are addresses of this process.
 */
#include <stdlib.h>

#include "verbs/verbs.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list domains = VB_LIST_INIT(domains);

void vb_importable_add_pd(struct vb_verbs_pd *pd)
{
	pthread_mutex_lock(&lock);
	vb_list_add_tail(&domains, &pd->node);
	pthread_mutex_unlock(&lock);
}

void vb_importable_remove_pd(struct vb_verbs_pd *pd)
{
	pthread_mutex_lock(&lock);
	vb_list_del(&pd->node);
	pthread_mutex_unlock(&lock);
}

/* A forked child has none of its parent's. */
static void forget(void)
{
	struct vb_verbs_pd *pd;
	pthread_mutex_init(&lock, NULL);
	vb_list_for_each(pd, &domains, node)
		vb_list_del(&pd->node);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

/* ---- devices ---- */

VB_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_device *device = vb_context_device_of_fd(cmd_fd);
	if (!device) {
		vb_explain(
			"ibv_import_device",
			"descriptor %d is not the cmd_fd of a device that this process has open: devices are not "
			"shared between processes",
			cmd_fd);
		return vb_fail_null(-EOPNOTSUPP);
	}
	struct ibv_context *context = vb_open_device(device, cmd_fd);
	vb_verbs_device_release(vb_container_of(device, struct vb_verbs_device, pub));
	return context;
}

/* ---- protection domains ---- */

static bool exists_locked(uint32_t handle)
{
	struct vb_verbs_pd *pd;
	vb_list_for_each(pd, &domains, node)
		if (pd->pub.handle == handle)
			return true;
	return false;
}

VB_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	int err = vb_refuse_call(context, "ibv_import_pd");
	if (err)
		return vb_fail_null(err);
	pthread_mutex_lock(&lock);
	bool exists = exists_locked(handle);
	pthread_mutex_unlock(&lock);
	if (!exists) {
		vb_explain("ibv_import_pd", "there is no protection domain of handle %u in this process",
			   handle);
		return vb_fail_null(-ENOENT);
	}
	struct vb_verbs_pd *pd = calloc(1, sizeof(*pd));
	if (!pd)
		return vb_fail_null(-ENOMEM);
	vb_pd_init_alias(&pd->pd, &vb_verbs_context_of(context)->ctx, handle);
	vb_list_init(&pd->node);
	pd->pub.context = context;
	pd->pub.handle = handle;
	vb_verbs_context_hold(context);
	return &pd->pub;
}

VB_EXPORT void ibv_unimport_pd(struct ibv_pd *pub)
{
	struct vb_verbs_pd *pd = vb_container_of(pub, struct vb_verbs_pd, pub);
	vb_verbs_context_release(pub->context);
	free(pd);
}

/* ---- regions ---- */

VB_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	uint64_t length;
	int err = vb_refuse_call(pd->context, "ibv_import_mr");
	if (!err)
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
