/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/inspection/registry.h"

#include <pthread.h>

#include "host/host.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list registries[VB_REGISTRIES];
static uint64_t last;

static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	for (unsigned i = 0; i < VB_REGISTRIES; i++)
		vb_list_init(&registries[i]);
}

__attribute__((constructor)) static void begin(void)
{
	forget();
	vb_host_at_fork(forget);
}

void vb_registry_add(enum vb_registry which, struct vb_registered *registered)
{
	pthread_mutex_lock(&lock);
	registered->serial = ++last;
	vb_list_add_tail(&registries[which], &registered->node);
	pthread_mutex_unlock(&lock);
}

void vb_registry_remove(struct vb_registered *registered)
{
	if (!registered->serial)
		return;
	pthread_mutex_lock(&lock);
	vb_list_del(&registered->node);
	pthread_mutex_unlock(&lock);
	registered->serial = 0;
}

bool vb_registry_look(enum vb_registry which, uint64_t *cursor,
		      bool (*look)(struct vb_registered *registered, void *arg), void *arg)
{
	struct vb_registered *registered;
	bool more = false;
	pthread_mutex_lock(&lock);
	vb_list_for_each(registered, &registries[which], node) {
		if (registered->serial <= *cursor)
			continue;
		more = !look(registered, arg);
		if (more)
			break;
		*cursor = registered->serial;
	}
	pthread_mutex_unlock(&lock);
	return more;
}
