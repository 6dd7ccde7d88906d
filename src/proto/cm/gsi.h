/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CM messages as packets between QPs 1 (IB vol. 1, 13.6 and annex A17), and their receivers within a host. A
 * request goes to whoever has the port of its service. Any other message goes to the process that made the
 * communication id it names: the upper bits of an id are the number of that process's slot.
 */
#ifndef VB_PROTO_GSI_H
#define VB_PROTO_GSI_H

#include "proto/cm/cm.h"
#include "wire/opcode.h"

struct vb_gsi_packet {
	struct vb_bth bth;
	struct vb_deth deth;
	struct vb_mad mad;
};

void vb_gsi_packet_init(struct vb_gsi_packet *packet, const struct vb_mad *mad);
/* bytes: BTH to padding, without the ICRC. -EBADMSG: no CM message for QP 1, to be dropped in silence. */
int vb_gsi_packet_parse(const void *bytes, size_t len, struct vb_cm_msg *msg) VB_MUST_USE;

/* ---- services ---- */

/* An rdma_cm port as its listener is bound to it. */
struct vb_cm_service {
	uint16_t port_space; /* as enum rdma_port_space */
	uint16_t port;       /* host order */
	uint32_t scope;      /* interface index of a link-local address, else 0 */
	uint8_t ip[16];      /* IPv4 as ::ffff:a.b.c.d */
};

/*
 * The name under which a host's registry knows the port: what it is and in which version, then the members
 * above.
 */
struct vb_cm_service_name {
	char bytes[40];
};

struct vb_cm_service_name vb_cm_service_name(const struct vb_cm_service *service);
/* The same port on the wildcard address of the same family. */
struct vb_cm_service vb_cm_service_anywhere(const struct vb_cm_service *service);
/*
 * The service that a REQ or SIDR_REQ asks for, at the address that it came to. False: none that has a port.
 */
bool vb_cm_service_of(const struct vb_cm_msg *msg, const uint8_t ip[16], uint32_t scope,
		      struct vb_cm_service *service);
static inline uint64_t vb_cm_service_id(const struct vb_cm_service *service)
{
	return (uint64_t)service->port_space << 16 | service->port;
}

/* ---- communication ids ---- */

enum { VB_CM_ID_INDEX_BITS = 20, VB_CM_QPN_INDEX_BITS = 12 };

static inline uint32_t vb_cm_id_slot(uint32_t comm_id) { return comm_id >> VB_CM_ID_INDEX_BITS; }
static inline uint32_t vb_cm_id_make(uint32_t slot, uint32_t index)
{
	return slot << VB_CM_ID_INDEX_BITS | (index & ((1u << VB_CM_ID_INDEX_BITS) - 1));
}

/*
 * Does a communication id, with the queue pair that it is about, belong to a verbatim process? True only for
 * the first 4,095 queue pairs of a process.
 */
static inline bool vb_cm_is_of_process(uint32_t comm_id, uint32_t qpn)
{
	return vb_cm_id_slot(comm_id) && vb_cm_id_slot(comm_id) == qpn >> VB_CM_QPN_INDEX_BITS;
}

#endif
