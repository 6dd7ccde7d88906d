/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fence between a side that is often there and one that rarely is (membarrier(2)). Both store something and
 * then look at what the other has stored; at least one of the two must see the other's. A light fence costs
 * the frequent side nothing but an order of its instructions; the rare side's heavy one makes all processors
 * that run a prepared process go through a full fence.
 *
 *	user of memory              its owner
 *	busy = odd                  key = 0
 *	light fence                 heavy fence
 *	is the key good?            is it busy?
 */
#ifndef VB_HOST_FENCE_H
#define VB_HOST_FENCE_H

#include "base/base.h"

/*
 * Prepares this process for both sides. False: the kernel does not have it, and both need full fences. Again
 * in a forked child.
 */
bool vb_fence_prepare(void);
extern atomic_bool vb_fence_is_prepared;
/* Do light fences suffice here, towards a side whose heavy ones work? */
static inline bool vb_fence_is_light(void)
{
	return atomic_load_explicit(&vb_fence_is_prepared, memory_order_relaxed);
}
/* False: nothing has happened. */
bool vb_fence_heavy(void);
/*
 * The same in a process that was prepared. Should it have forbidden itself the call since, light fences do
 * not suffice from here on, and it waits until any processor's stores are seen.
 */
void vb_fence_others(void);

#endif
