/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls about processes: forks, and objects of other processes. */
#include "verbs/verbs.h"

/* No public header declares these. */
VB_EXPORT int ibv_dontfork_range(void *base, size_t size);
VB_EXPORT int ibv_dofork_range(void *base, size_t size);

/*
 * Registered memory stays where it is across fork(): nothing has pinned its pages, and peers reach the
 * parent's.
 */
VB_EXPORT int ibv_fork_init(void) { return 0; }
VB_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
VB_EXPORT int ibv_dontfork_range(void *base, size_t size) { return 0; }
VB_EXPORT int ibv_dofork_range(void *base, size_t size) { return 0; }

