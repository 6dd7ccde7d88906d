/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/cma.h"

VB_EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
#define NAME(name) [RDMA_CM_EVENT_##name] = "RDMA_CM_EVENT_" #name
	static const char *const names[] = {
		NAME(ADDR_RESOLVED),	 NAME(ADDR_ERROR),	 NAME(ROUTE_RESOLVED), NAME(ROUTE_ERROR),
		NAME(CONNECT_REQUEST),	 NAME(CONNECT_RESPONSE), NAME(CONNECT_ERROR),  NAME(UNREACHABLE),
		NAME(REJECTED),		 NAME(ESTABLISHED),	 NAME(DISCONNECTED),   NAME(DEVICE_REMOVAL),
		NAME(MULTICAST_JOIN),	 NAME(MULTICAST_ERROR),	 NAME(ADDR_CHANGE),    NAME(TIMEWAIT_EXIT),
		NAME(ADDRINFO_RESOLVED), NAME(ADDRINFO_ERROR),	 NAME(USER),	       NAME(INTERNAL),
	};
#undef NAME

	return (unsigned)event < VB_ARRAY_LEN(names) ? names[event] : "UNKNOWN EVENT";
}
