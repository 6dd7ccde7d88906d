/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The interface between rdma-core's libibverbs and its provider libraries, by name only. Every name exists,
 * so programs that are linked with libmlx5 or libefa start. None of those devices exists here, so nothing
 * calls what would drive one; a call fails with EOPNOTSUPP. Arguments are not used, so the prototypes do not
 * matter.
 */
#include "verbs/verbs.h"

/*
 * Constructors of provider libraries announce themselves; there is nothing to match them with. Each release
 * has a name of its own.
 */
#define REGISTRATION(release)                                                 \
	VB_EXPORT void verbs_register_driver_##release(const void *ops);      \
	VB_EXPORT void verbs_register_driver_##release(const void *ops) { }
REGISTRATION(34)
REGISTRATION(57)
REGISTRATION(59)
REGISTRATION(64)
REGISTRATION(65)

/* The same, as provider libraries of before 2017 did it. */
VB_EXPORT void old_register_driver(const char *name, void *init);
VB_EXPORT void old_register_driver(const char *name, void *init) { }
VB_SYMVER(old_register_driver, "ibv_register_driver", "IBVERBS_1.1");

/*
 * Providers read this variable when they destroy an object of an unplugged device. Its C name differs from
 * the exported one: with link-time optimisation, gcc cannot export a variable's own name at several versions.
 */
extern VB_EXPORT bool allow_disassociate_destroy;
VB_EXPORT bool allow_disassociate_destroy;
VB_PRIVATE_AS(allow_disassociate_destroy, "verbs_allow_disassociate_destroy");

VB_EXPORT void __verbs_log(void *context, uint32_t level, const char *fmt, ...);
VB_EXPORT void __verbs_log(void *context, uint32_t level, const char *fmt, ...) { }
VB_PRIVATE(__verbs_log);

VB_EXPORT unsigned __ioctl_final_num_attrs(unsigned num_attrs, void *link);
VB_EXPORT unsigned __ioctl_final_num_attrs(unsigned num_attrs, void *link) { return num_attrs; }
VB_PRIVATE(__ioctl_final_num_attrs);

#define NOTHING(name)                 \
	VB_EXPORT void name(void);    \
	VB_EXPORT void name(void) { } \
	VB_PRIVATE(name);
NOTHING(ibv_dmabuf_heap_destroy)
NOTHING(ibv_dmabuf_heap_free)
NOTHING(verbs_init_cq)
NOTHING(verbs_set_ops)
NOTHING(verbs_uninit_context)

#define NO_OBJECT(name)                                                  \
	VB_EXPORT void *name(void);                                      \
	VB_EXPORT void *name(void) { return vb_fail_null(-EOPNOTSUPP); } \
	VB_PRIVATE(name);
NO_OBJECT(_verbs_init_and_alloc_context)
NO_OBJECT(verbs_open_device)
NO_OBJECT(ibv_dmabuf_heap_alloc)
NO_OBJECT(ibv_dmabuf_heap_cc_shared_init)

#define REFUSAL(name)                                                    \
	VB_EXPORT int name(void);                                        \
	VB_EXPORT int name(void) { return vb_fail(-EOPNOTSUPP); }        \
	VB_PRIVATE(name);
REFUSAL(execute_ioctl)
REFUSAL(ibv_cmd_advise_mr)
REFUSAL(ibv_cmd_alloc_dm)
REFUSAL(ibv_cmd_alloc_dmah)
REFUSAL(ibv_cmd_alloc_mw)
REFUSAL(ibv_cmd_alloc_pd)
REFUSAL(ibv_cmd_attach_mcast)
REFUSAL(ibv_cmd_close_xrcd)
REFUSAL(ibv_cmd_create_ah)
REFUSAL(ibv_cmd_create_comp_cntr)
REFUSAL(ibv_cmd_create_counters)
REFUSAL(ibv_cmd_create_cq)
REFUSAL(ibv_cmd_create_cq_ex)
REFUSAL(ibv_cmd_create_cq_ex2)
REFUSAL(ibv_cmd_create_flow)
REFUSAL(ibv_cmd_create_flow_action_esp)
REFUSAL(ibv_cmd_create_qp)
REFUSAL(ibv_cmd_create_qp_ex)
REFUSAL(ibv_cmd_create_qp_ex2)
REFUSAL(ibv_cmd_create_rwq_ind_table)
REFUSAL(ibv_cmd_create_srq)
REFUSAL(ibv_cmd_create_srq_ex)
REFUSAL(ibv_cmd_create_wq)
REFUSAL(ibv_cmd_dealloc_mw)
REFUSAL(ibv_cmd_dealloc_pd)
REFUSAL(ibv_cmd_dereg_mr)
REFUSAL(ibv_cmd_destroy_ah)
REFUSAL(ibv_cmd_destroy_comp_cntr)
REFUSAL(ibv_cmd_destroy_counters)
REFUSAL(ibv_cmd_destroy_cq)
REFUSAL(ibv_cmd_destroy_flow)
REFUSAL(ibv_cmd_destroy_flow_action)
REFUSAL(ibv_cmd_destroy_qp)
REFUSAL(ibv_cmd_destroy_rwq_ind_table)
REFUSAL(ibv_cmd_destroy_srq)
REFUSAL(ibv_cmd_destroy_wq)
REFUSAL(ibv_cmd_detach_mcast)
REFUSAL(ibv_cmd_export_dmabuf_fd)
REFUSAL(ibv_cmd_free_dm)
REFUSAL(ibv_cmd_free_dmah)
REFUSAL(ibv_cmd_get_context)
REFUSAL(ibv_cmd_inc_comp_cntr)
REFUSAL(ibv_cmd_inc_err_comp_cntr)
REFUSAL(ibv_cmd_modify_cq)
REFUSAL(ibv_cmd_modify_flow_action_esp)
REFUSAL(ibv_cmd_modify_qp)
REFUSAL(ibv_cmd_modify_qp_ex)
REFUSAL(ibv_cmd_modify_srq)
REFUSAL(ibv_cmd_modify_wq)
REFUSAL(ibv_cmd_open_qp)
REFUSAL(ibv_cmd_open_xrcd)
REFUSAL(ibv_cmd_poll_cq)
REFUSAL(ibv_cmd_post_recv)
REFUSAL(ibv_cmd_post_send)
REFUSAL(ibv_cmd_post_srq_recv)
REFUSAL(ibv_cmd_qp_attach_comp_cntr)
REFUSAL(ibv_cmd_query_comp_cntr_caps)
REFUSAL(ibv_cmd_query_context)
REFUSAL(ibv_cmd_query_device_any)
REFUSAL(ibv_cmd_query_mr)
REFUSAL(ibv_cmd_query_port)
REFUSAL(ibv_cmd_query_port_speed)
REFUSAL(ibv_cmd_query_qp)
REFUSAL(ibv_cmd_query_srq)
REFUSAL(ibv_cmd_read_comp_cntr)
REFUSAL(ibv_cmd_read_counters)
REFUSAL(ibv_cmd_read_err_comp_cntr)
REFUSAL(ibv_cmd_reg_dm_mr)
REFUSAL(ibv_cmd_reg_dmabuf_mr)
REFUSAL(ibv_cmd_reg_mr)
REFUSAL(ibv_cmd_reg_mr_ex)
REFUSAL(ibv_cmd_req_notify_cq)
REFUSAL(ibv_cmd_rereg_mr)
REFUSAL(ibv_cmd_resize_cq)
REFUSAL(ibv_cmd_set_comp_cntr)
REFUSAL(ibv_cmd_set_err_comp_cntr)
