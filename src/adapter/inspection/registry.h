/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registries list objects for inspection (inspect.h) that no other table lists. An object is in its registry
 * from its creation to its destruction, which waits for a look at it. A forked child starts with empty
 * registries.
 */
#ifndef VB_ADAPTER_REGISTRY_H
#define VB_ADAPTER_REGISTRY_H

#include "base/base.h"
#include "base/list.h"

enum vb_registry { VB_REGISTRY_CONTEXTS, VB_REGISTRY_PDS, VB_REGISTRY_CQS, VB_REGISTRY_SRQS, VB_REGISTRIES };

struct vb_registered {
	struct vb_list node;
	uint64_t serial; /* in the order of creation, never 0 */
};

void vb_registry_add(enum vb_registry which, struct vb_registered *registered);
/* An object that is in no registry is left alone. */
void vb_registry_remove(struct vb_registered *registered);
/*
 * Calls look(registered, arg) for those that come after *cursor (a serial, 0 at first) until it returns
 * false; *cursor follows. False: that was all. look must not wait for anything: no object of the registry
 * is created or destroyed meanwhile.
 */
bool vb_registry_look(enum vb_registry which, uint64_t *cursor,
		      bool (*look)(struct vb_registered *registered, void *arg), void *arg);

#endif
