/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/memory/fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/nanoseconds.h"
#include "host/host.h"

enum { STORE_NS = 10 * VB_NS_PER_MS }; /* after which any processor's stores are visible */

atomic_bool vb_fence_is_prepared;

bool vb_fence_heavy(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

bool vb_fence_prepare(void)
{
#ifdef __SANITIZE_THREAD__
	bool works = false; /* ThreadSanitizer understands only full fences */
#else
	bool works = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
		     vb_fence_heavy();
#endif
	atomic_store(&vb_fence_is_prepared, works);
	if (works)
		vb_lock_fence = vb_fence_others; /* for good: locks may have owners by now */
	return works;
}

void vb_fence_others(void)
{
	if (vb_fence_heavy())
		return;
	atomic_store(&vb_fence_is_prepared, false);
	vb_sleep_ns(STORE_NS);
}
