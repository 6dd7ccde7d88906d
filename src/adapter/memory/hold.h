/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting until nobody accesses memory by a key that was revoked. Two kinds of access are waited for: those
 * of this process's threads between vb_memory_hold and vb_memory_release, and those of peers that have mapped
 * memory of this process, in their busy sections (busy.h).
 */
#ifndef VB_ADAPTER_HOLD_H
#define VB_ADAPTER_HOLD_H

#include "base/base.h"

/*
 * While held, memory of this process that a key check has allowed stays allowed: revocation waits. For paths
 * that read and write registered memory on their own, not through the shared arena's busy sections. Held for
 * short; not across waits. What hold returns is for release.
 */
unsigned vb_memory_hold(void);
void vb_memory_release(unsigned held);

/*
 * Set once, by a constructor. await returns true once every access of a busy section that was in flight at
 * the call, in any process, has ended; false if the deadline came before.
 */
void vb_memory_set_peers(bool (*await)(uint64_t deadline_ns));

/* Returns once every access that was in flight at the call has ended. */
void vb_memory_quiesce(void);
/* False: it takes longer. */
bool vb_memory_quiesce_until(uint64_t deadline_ns);

#endif
