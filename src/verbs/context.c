/* SPDX-License-Identifier: BSD-2-Clause */
/* Open devices: references to them, and what a fork does to them. */
#include <stdlib.h>

#include "host/memory/memory.h"
#include "verbs/faulty_ops.h"
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

void vb_verbs_context_enlist(struct vb_verbs_context *c)
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
