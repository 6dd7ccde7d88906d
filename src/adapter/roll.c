/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/roll.h"

#include <pthread.h>

#include "host/host.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list rolls[VB_ROLLS];
static uint64_t last;

static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	for (unsigned i = 0; i < VB_ROLLS; i++)
		vb_list_init(&rolls[i]);
}

__attribute__((constructor)) static void begin(void)
{
	forget();
	vb_host_at_fork(forget);
}

void vb_roll_add(enum vb_roll roll, struct vb_rolled *rolled)
{
	pthread_mutex_lock(&lock);
	rolled->serial = ++last;
	vb_list_add_tail(&rolls[roll], &rolled->node);
	pthread_mutex_unlock(&lock);
}

void vb_roll_remove(struct vb_rolled *rolled)
{
	if (!rolled->serial)
		return;
	pthread_mutex_lock(&lock);
	vb_list_del(&rolled->node);
	pthread_mutex_unlock(&lock);
	rolled->serial = 0;
}

bool vb_roll_look(enum vb_roll roll, uint64_t *cursor, bool (*look)(struct vb_rolled *rolled, void *arg), void *arg)
{
	struct vb_rolled *rolled;
	bool more = false;
	pthread_mutex_lock(&lock);
	vb_list_for_each(rolled, &rolls[roll], node) {
		if (rolled->serial <= *cursor)
			continue;
		more = !look(rolled, arg);
		if (more)
			break;
		*cursor = rolled->serial;
	}
	pthread_mutex_unlock(&lock);
	return more;
}
