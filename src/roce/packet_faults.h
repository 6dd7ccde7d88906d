/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults on purpose, to packets (adapter/fault_injection.h). What goes out meets them one by one where it is
 * handed to UDP, also packets of QP 1; what comes in for a queue pair where it is about to be delivered. What
 * is held back on its way out is sent by a timer; on its way in it goes through this process's own inbox
 * afterwards. Only with vb_faults_on_wire.
 */
#ifndef VB_ROCE_PACKET_FAULTS_H
#define VB_ROCE_PACKET_FAULTS_H

#include "adapter/fault_injection.h"
#include "roce/port.h"

int vb_roce_transmit_faulty(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment);

/* As vb_udp_send. */
static inline int vb_roce_transmit(const struct vb_roce_route *route, const void *bytes, size_t len,
				   size_t segment)
{
	return vb_unlikely(vb_faults_on_wire) ? vb_roce_transmit_faulty(route, bytes, len, segment) :
						vb_roce_transmit_now(route, bytes, len, segment);
}

/* How many times a packet is to be delivered now: 0, 1 or 2. */
unsigned vb_roce_fault_arrives(const struct vb_inbox_msg *msg);

#endif
