/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls about processes: forks, and objects of other processes. */
#include "verbs/verbs.h"

/* No public header declares these. */
VB_EXPORT int ibv_dontfork_range(void *base, size_t size);
VB_EXPORT int ibv_dofork_range(void *base, size_t size);

/* Registered memory stays where it is across fork(): nothing has pinned its pages, and peers reach the parent's. */
VB_EXPORT int ibv_fork_init(void) { return 0; }
VB_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
VB_EXPORT int ibv_dontfork_range(void *base, size_t size) { return 0; }
VB_EXPORT int ibv_dofork_range(void *base, size_t size) { return 0; }

/* Objects are imported through the kernel driver's descriptor, and there is none. */
static void *no_import(const char *call)
{
	vb_explain(call, "objects cannot be shared between processes: there is no kernel device behind them");
	return vb_fail_null(-EOPNOTSUPP);
}

VB_EXPORT struct ibv_context *ibv_import_device(int cmd_fd) { return no_import("ibv_import_device"); }
VB_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle) { return no_import("ibv_import_pd"); }
VB_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle) { return no_import("ibv_import_mr"); }
VB_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle) { return no_import("ibv_import_dm"); }

/* Nothing can have been imported. */
VB_EXPORT void ibv_unimport_pd(struct ibv_pd *pd) { }
VB_EXPORT void ibv_unimport_mr(struct ibv_mr *mr) { }
VB_EXPORT void ibv_unimport_dm(struct ibv_dm *dm) { }
