/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls about forks. */
#include "verbs/verbs.h"

/* No public header declares these. */
VB_EXPORT int ibv_dontfork_range(void *base, size_t size);
VB_EXPORT int ibv_dofork_range(void *base, size_t size);

/* A fork leaves registered memory where it is: no pages are pinned, and peers reach the parent's memory. */
VB_EXPORT int ibv_fork_init(void) { return 0; }
VB_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
VB_EXPORT int ibv_dontfork_range(void *base, size_t size) { return 0; }
VB_EXPORT int ibv_dofork_range(void *base, size_t size) { return 0; }

