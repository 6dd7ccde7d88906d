/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asymmetric fences (membarrier(2)), for a frequent and a rare side. Each side stores something and then
 * loads what the other stores; at least one of the two must see the other's store. The frequent side's light
 * fence only orders its instructions for the compiler. The rare side's heavy fence makes all processors that
 * run a prepared process execute a full fence.
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
 * Prepares this process for both sides. False: the kernel lacks it, and both sides need full fences. A forked
 * child calls it again.
 */
bool vb_fence_prepare(void);
extern atomic_bool vb_fence_is_prepared;
/* Do light fences suffice in this process, if the other side's heavy ones work? */
static inline bool vb_fence_is_light(void)
{
	return atomic_load_explicit(&vb_fence_is_prepared, memory_order_relaxed);
}
/* False: it failed, and was no fence. */
bool vb_fence_heavy(void);
/*
 * The same in a process that was prepared. If a system call filter forbids it by now, light fences do not
 * suffice from here on, and this waits until all processors' stores are visible.
 */
void vb_fence_others(void);

#endif
