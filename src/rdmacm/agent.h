/* SPDX-License-Identifier: BSD-2-Clause */
/* The agent's side that faces the wire. */
#ifndef VB_RDMACM_AGENT_H
#define VB_RDMACM_AGENT_H

#include "rdmacm/cma.h"

/* A checked CM message. Without the lock. */
void vb_cma_agent_receive(const struct vb_cm_rx *rx);

#endif
