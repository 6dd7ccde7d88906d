/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The RDMA IP CM service (IB vol. 1 annex A11): service ids from ports, and the 36 bytes of addresses that
 * begin the private data of a REQ or SIDR_REQ.
 */
#ifndef VB_WIRE_IP_CM_H
#define VB_WIRE_IP_CM_H

#include "base/base.h"
#include "wire/field.h"

#define VB_IP_CM_BYTES 36

#define VB_IP_CM_ROWS(F, B, P, O)       \
	F(P, O, major_version, 0, 0, 4) \
	F(P, O, minor_version, 0, 4, 4) \
	F(P, O, ip_version, 1, 0, 4)    \
	F(P, O, port, 2, 0, 16)         \
	B(P, O, source, 4, 16)          \
	B(P, O, destination, 20, 16)
VB_FIELD_ACCESSORS(vb_ip_cm_header, VB_IP_CM_BYTES, 0, VB_IP_CM_ROWS)

/* Addresses of 4 or 16 bytes in network order, by ip_version 4 or 6. */
struct vb_ip_cm {
	uint8_t ip_version;
	uint16_t source_port;		/* host order */
	uint8_t source[16], destination[16];
};

/* Port space byte of the service id: rdma_cm's RDMA_PS_TCP 0x06, _UDP 0x11 (any value passes). */
uint64_t vb_ip_cm_service_id(uint8_t port_space, uint16_t port);
/* false if the id is not one of the IP CM service (RDMA_PS_IB chooses its own). */
bool vb_ip_cm_service_id_parse(uint64_t service_id, uint8_t *port_space, uint16_t *port);

void vb_ip_cm_encode(const struct vb_ip_cm *ip, uint8_t bytes[VB_IP_CM_BYTES]);
/* -EBADMSG on a version other than 0.0 or an IP version other than 4 and 6. */
int vb_ip_cm_decode(const void *bytes, size_t len, struct vb_ip_cm *ip) VB_MUST_USE;

extern const struct vb_field_table *const vb_ip_cm_fields;

#endif
