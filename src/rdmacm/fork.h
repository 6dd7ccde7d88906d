/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a forked child makes this library's parts forget. Run in the child's atfork handler, which is its only
 * thread.
 */
#ifndef VB_RDMACM_FORK_H
#define VB_RDMACM_FORK_H

void vb_cma_device_forget(void);
void vb_cma_neighbour_forget_all(void);
void vb_cma_interfaces_forget(void);
/* The ids keep their memory and lose their connections and ports, which are the parent's. */
void vb_cma_id_forget(void);

#endif
