/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening a device, and importing one that is open. The descriptor cmd_fd only names the device. Another
 * process that gets it can do nothing with it, because regions are addresses of this process.
 */
#include <stdlib.h>

#include "host/memory/memory.h"
#include "verbs/faulty_ops.h"
#include "verbs/verbs.h"

static void fill_public(struct vb_verbs_context *c, struct ibv_device *device, int cmd_fd)
{
	struct ibv_context *pub = &c->ext.context;
	vb_ops_fill(&c->ext);
	if (vb_faults_on)
		vb_fault_wrap(&c->ext);
	if (vb_check_enabled)
		vb_checked_ops(&c->ext);
	c->ext.sz = sizeof(c->ext);
	pub->device = device;
	pub->async_fd = c->ctx.async_notifier.fd;
	pub->cmd_fd = cmd_fd;
	pub->num_comp_vectors = 1;
	pthread_mutex_init(&pub->mutex, NULL);
	atomic_init(&c->refs, 1);
	pub->abi_compat = __VERBS_ABI_IS_EXTENDED;
}

/*
 * No kernel driver stands behind a device. So what programs duplicate and import is a token with the name of
 * an open device.
 */
static int name_of(struct ibv_device *device, int cmd_fd)
{
	return cmd_fd >= 0 ? cmd_fd : vb_token_create(device->name);
}

static struct ibv_context *open_device(struct ibv_device *device, int cmd_fd)
{
	struct vb_verbs_device *d = vb_container_of(device, struct vb_verbs_device, pub);
	struct vb_verbs_context *c = calloc(1, sizeof(*c));
	if (!c)
		return vb_fail_null(-ENOMEM);
	int err = vb_context_init(&c->ctx, d->dev);
	if (err) {
		vb_explain_limit("ibv_open_device", "cannot start the adapter for %s: error %d", device->name,
				 -err);
		free(c);
		return vb_fail_null(err);
	}
	int name = name_of(device, cmd_fd);
	if (name < 0) {
		vb_context_fini(&c->ctx);
		free(c);
		return vb_fail_null(name);
	}
	vb_verbs_device_hold(d);
	fill_public(c, device, name);
	vb_verbs_context_enlist(c);
	return &c->ext.context;
}

VB_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	int err = vb_fault_call("ibv_open_device", 0);
	return err ? vb_fail_null(err) : open_device(device, -1);
}

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
	struct ibv_context *context = open_device(device, cmd_fd);
	vb_verbs_device_release(vb_container_of(device, struct vb_verbs_device, pub));
	return context;
}
