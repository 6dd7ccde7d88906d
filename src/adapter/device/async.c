/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events: one queue per open device. The notifier is raised while the queue is not empty. */
#include <errno.h>
#include <stdlib.h>

#include "adapter/object.h"
#include "base/cancel.h"

/* Without memory for it an event is lost: there is nobody to tell. */
void vb_async_raise(struct vb_context *ctx, enum ibv_event_type type, enum vb_async_kind kind, void *object,
		    struct vb_async_source *source, int port)
{
	struct vb_async_event *event = malloc(sizeof(*event));
	if (!event)
		return;
	*event = (struct vb_async_event){
		.type = type, .kind = kind, .object = object, .source = source, .port = port
	};
	pthread_mutex_lock(&ctx->async_lock);
	vb_list_add_tail(&ctx->async_events, &event->node);
	vb_notifier_raise(&ctx->async_notifier);
	pthread_mutex_unlock(&ctx->async_lock);
	vb_notifier_wake(&ctx->async_notifier);
}

static void update_notifier_locked(struct vb_context *ctx)
{
	if (vb_list_is_empty(&ctx->async_events))
		vb_notifier_clear(&ctx->async_notifier);
}

static struct vb_async_event *take_locked(struct vb_context *ctx)
{
	struct vb_list *node = vb_list_pop(&ctx->async_events);
	if (!node)
		return NULL;
	struct vb_async_event *event = vb_container_of(node, struct vb_async_event, node);
	if (event->source)
		event->source->raised++;
	update_notifier_locked(ctx);
	return event;
}

int vb_async_get(struct vb_context *ctx, struct vb_async_event **event)
{
	for (;;) {
		pthread_mutex_lock(&ctx->async_lock);
		*event = take_locked(ctx);
		uint32_t sequence = vb_notifier_sequence(&ctx->async_notifier);
		pthread_mutex_unlock(&ctx->async_lock);
		if (*event)
			return 0;
		int err = vb_notifier_wait(&ctx->async_notifier, sequence);
		if (err)
			return err;
	}
}

void vb_async_ack(struct vb_context *ctx, struct vb_async_source *source)
{
	pthread_mutex_lock(&ctx->async_lock);
	source->acked++;
	pthread_cond_broadcast(&ctx->async_acked);
	pthread_mutex_unlock(&ctx->async_lock);
}

void vb_async_forget(struct vb_context *ctx, struct vb_async_source *source)
{
	struct vb_async_event *event;

	pthread_mutex_lock(&ctx->async_lock);
	vb_list_for_each(event, &ctx->async_events, node) {
		if (event->source != source)
			continue;
		vb_list_del(&event->node);
		free(event);
	}
	update_notifier_locked(ctx);
	while ((int32_t)(source->raised - source->acked) > 0)
		vb_cond_wait(&ctx->async_acked, &ctx->async_lock);
	pthread_mutex_unlock(&ctx->async_lock);
}
