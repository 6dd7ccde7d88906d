/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel allows only with a capability. */
#ifndef VB_HOST_PRIVILEGE_H
#define VB_HOST_PRIVILEGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

/*
 * May this process bind this port? Below net.ipv4.ip_unprivileged_port_start that takes CAP_NET_BIND_SERVICE.
 */
VB_EXPORT bool vb_may_bind_port(uint16_t port);

#endif
