/* SPDX-License-Identifier: BSD-2-Clause */
/* Open devices, and what a fork does to them. */
#include <stdlib.h>

#include "host/memory/memory.h"
#include "verbs/fault.h"
#include "verbs/verbs.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list contexts = VB_LIST_INIT(contexts);

static void disown_all(void)
{
	struct vb_verbs_context *c;
	pthread_mutex_init(&lock, NULL);
	vb_list_for_each(c, &contexts, node) {
		vb_ops_disable(&c->ext);
		vb_list_del(&c->node);
	}
}

static void enlist(struct vb_verbs_context *c)
{
	vb_host_at_fork(disown_all);
	pthread_mutex_lock(&lock);
	vb_list_add_tail(&contexts, &c->node);
	pthread_mutex_unlock(&lock);
}

static void delist(struct vb_verbs_context *c)
{
	pthread_mutex_lock(&lock);
	vb_list_del(&c->node);
	pthread_mutex_unlock(&lock);
}

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
 * There is no kernel driver behind a device: what can be duplicated, and be recognised then, is the name of
 * an open device.
 */
static int name_of(struct ibv_device *device, int cmd_fd)
{
	return cmd_fd >= 0 ? cmd_fd : vb_token_create(device->name);
}

struct ibv_context *vb_open_device(struct ibv_device *device, int cmd_fd)
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
	enlist(c);
	return &c->ext.context;
}

VB_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	int err = vb_fault_call("ibv_open_device", 0);
	return err ? vb_fail_null(err) : vb_open_device(device, -1);
}

struct ibv_device *vb_context_device_of_fd(int cmd_fd)
{
	struct ibv_device *device = NULL;
	struct vb_verbs_context *c;
	pthread_mutex_lock(&lock);
	vb_list_for_each(c, &contexts, node)
		if (!device && vb_token_is_same(c->ext.context.cmd_fd, cmd_fd))
			device = c->ext.context.device;
	if (device)
		vb_verbs_device_hold(vb_container_of(device, struct vb_verbs_device, pub));
	pthread_mutex_unlock(&lock);
	return device;
}

void vb_verbs_context_hold(struct ibv_context *pub)
{
	atomic_fetch_add(&vb_verbs_context_of(pub)->refs, 1);
}

void vb_verbs_context_release(struct ibv_context *pub)
{
	struct vb_verbs_context *c = vb_verbs_context_of(pub);
	struct vb_verbs_device *d = vb_container_of(pub->device, struct vb_verbs_device, pub);
	if (atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	delist(c);
	vb_context_fini(&c->ctx);
	vb_token_close(pub->cmd_fd);
	free(c);
	vb_verbs_device_release(d);
}

VB_EXPORT int ibv_close_device(struct ibv_context *context)
{
	int err = vb_fault_call("ibv_close_device", 0);
	if (err)
		return vb_fail_minus1(err);
	unsigned objects = atomic_load(&vb_verbs_context_of(context)->refs) - 1;
	if (objects)
		vb_explain_limit(
			"ibv_close_device",
			"%u protection domains, completion queues and channels made on %s still exist; it goes "
			"with the last of them",
			objects, context->device->name);
	vb_verbs_context_release(context);
	return 0;
}

int vb_refuse_inherited(struct ibv_context *pub, const char *call)
{
	if (vb_likely(!vb_is_inherited(pub)))
		return 0;
	vb_explain(
		call,
		"the device was opened before fork(), so its objects are the parent's: open it again in the child");
	return -EIO;
}

int vb_refuse_call(struct ibv_context *pub, const char *call)
{
	int err = vb_refuse_inherited(pub, call);
	return err ? err : vb_fault_call(call, 0);
}

int vb_check_same_context(const char *call, struct ibv_context *pub, const char *what,
			  const struct ibv_context *other)
{
	if (pub == other)
		return 0;
	vb_explain(call, "%s was made on another open device (or another opening of the same one)", what);
	return -EINVAL;
}
