/* SPDX-License-Identifier: BSD-2-Clause */
/* What all devices can do: device_cap_flags of ibv_query_device(3), and the caps of `rdma -d dev`. */
#ifndef VB_BASE_DEVICE_CAPS_H
#define VB_BASE_DEVICE_CAPS_H

#include <infiniband/verbs.h>

#define VB_DEVICE_CAPS                                                                       \
	(IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | \
	 IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |           \
	 IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC |      \
	 IBV_DEVICE_RAW_IP_CSUM |                                                              \
	 IBV_DEVICE_MANAGED_FLOW_STEERING)

#endif
