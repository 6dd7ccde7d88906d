/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "adapter/device/device.h"
#include "adapter/fault_injection.h"
#include "adapter/start.h"

int vb_context_init(struct vb_context *ctx, struct vb_device *dev)
{
	int err = vb_adapter_start();
	if (err == -EAGAIN) /* for what needs no thread: queue pairs ask again */
		err = vb_adapter_open();
	if (err)
		return err;
	vb_device_follow_network();
	err = vb_notifier_init(&ctx->async_notifier);
	if (err)
		return err;
	ctx->device = dev;
	ctx->generation = vb_host_generation();
	pthread_mutex_init(&ctx->async_lock, NULL);
	pthread_cond_init(&ctx->async_acked, NULL);
	vb_list_init(&ctx->async_events);
	vb_device_get(dev);
	pthread_mutex_lock(&dev->lock);
	vb_list_add_tail(&dev->contexts, &ctx->node);
	pthread_mutex_unlock(&dev->lock);
	vb_registry_add(VB_REGISTRY_CONTEXTS, &ctx->registered);
	if (vb_faults_on)
		vb_fault_begin();
	return 0;
}

static void free_events(struct vb_context *ctx)
{
	struct vb_list *node;
	while ((node = vb_list_pop(&ctx->async_events)))
		free(vb_container_of(node, struct vb_async_event, node));
}

/* One that a forked child inherited is in no list there, and nobody waits for its locks. */
void vb_context_fini(struct vb_context *ctx)
{
	if (ctx->generation == vb_host_generation()) {
		vb_registry_remove(&ctx->registered);
		pthread_mutex_lock(&ctx->device->lock);
		vb_list_del(&ctx->node);
		pthread_mutex_unlock(&ctx->device->lock);
		pthread_cond_destroy(&ctx->async_acked);
		pthread_mutex_destroy(&ctx->async_lock);
	}
	free_events(ctx);
	vb_notifier_fini(&ctx->async_notifier);
	vb_device_put(ctx->device);
}
