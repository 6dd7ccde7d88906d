/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses, the devices that have them, and the ports bound to them. Nothing here knows of ids. */
#ifndef VB_RDMACM_ADDRESS_H
#define VB_RDMACM_ADDRESS_H

#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/inet.h"
#include "base/list.h"
#include "host/host.h"
#include "proto/cm/gsi.h"
#include "wire/packet.h"

/* ---- addresses ---- */

/*
 * An IP endpoint; IPv4 as ::ffff:a.b.c.d. family is that of the sockaddr it came from and goes back to. With
 * AF_IB the address is a GID, which with RoCEv2 is an IP address, and the port is the lower end of a service
 * id.
 */
struct vb_cma_addr {
	struct in6_addr ip;
	uint32_t scope; /* interface index of a link-local address, else 0 */
	uint16_t port;  /* host order */
	sa_family_t family;
	uint16_t port_space; /* AF_IB: of the service id; 0: that of the id */
};

/* -EINVAL: NULL or not AF_INET, AF_INET6 or AF_IB. */
int vb_cma_addr_parse(const struct sockaddr *sa, struct vb_cma_addr *addr);
void vb_cma_addr_format(const struct vb_cma_addr *addr, struct sockaddr_storage *ss);
void vb_cma_addr_any(sa_family_t family, struct vb_cma_addr *addr);
bool vb_cma_addr_is_any(const struct vb_cma_addr *addr);
/* A destination that is unspecified means this host, as for connect(2). */
void vb_cma_addr_settle(struct vb_cma_addr *dst);
/*
 * Is it a result of rdma_getaddrinfo, or a copy of one, that means this host rather than one of its devices?
 */
bool vb_cma_addrinfo_is_host(const struct sockaddr *sa);

enum { VB_CMA_TEXT = 64 };
/* "[::1]:7471" for explanations; returns text. */
const char *vb_cma_addr_text(const struct vb_cma_addr *addr, char text[VB_CMA_TEXT]);

/* ---- devices ---- */

/* An opened device: open until the process ends, as the man page of rdma_get_devices promises. */
struct vb_cma_device {
	struct vb_list node;
	struct ibv_context *verbs;
	struct ibv_pd *pd; /* the default protection domain of ids on this device */
	struct ibv_xrcd *xrcd; /* the default XRC domain; NULL until it is needed */
	uint8_t max_responder_resources, max_initiator_depth;
	uint64_t guid;     /* host order */
};

/* Where an address lives. */
struct vb_cma_source {
	struct vb_cma_device *device;
	uint8_t port_num;
	uint8_t gid_index;
	enum ibv_mtu mtu;
	unsigned ifindex;
};

/* The device, port and GID of a local address. -ENODEV if it has none; -ENOMEM. */
int vb_cma_device_find(const struct vb_cma_addr *addr, struct vb_cma_source *source);
/* The domain that ties receiving XRC QPs to SRQs, unless the program brings its own. NULL with errno. */
struct ibv_xrcd *vb_cma_device_xrcd(struct vb_cma_device *dev);
/* In a forked child: the devices are the parent's. */
void vb_cma_device_forget(void);

/* ---- bound ports ---- */

struct vb_cma_port;

/*
 * Takes (port space, address). If the port number is 0, chooses one and writes it to addr. afonly: an IPv6
 * wildcard leaves IPv4 alone. -EADDRINUSE, -ENOMEM, …. Call neither this nor the close under the lock.
 */
int vb_cma_port_bind(enum rdma_port_space ps, struct vb_cma_addr *addr, bool afonly,
		     struct vb_cma_port **port);
/* Is it taken, or does an address that is stand in its way? */
bool vb_cma_port_is_held(enum rdma_port_space ps, const struct vb_cma_addr *addr, bool afonly);
/*
 * Chooses a port number as vb_cma_port_bind does and writes it to addr. It is not taken, but nobody else is
 * given it until the close.
 */
int vb_cma_port_reserve(enum rdma_port_space ps, struct vb_cma_addr *addr, bool afonly,
			struct vb_cma_port **port);
/* arg: for `arrived`. */
int vb_cma_port_listen(struct vb_cma_port *port, vb_inbox_handler *arrived, void *arg);
void vb_cma_port_close(struct vb_cma_port *port);
/* The port as a service of the network (proto/cm/gsi.h). */
struct vb_cm_service vb_cma_service(enum rdma_port_space ps, const struct vb_cma_addr *addr);
/* A number in the ephemeral range. */
uint16_t vb_cma_port_random(void);

#endif
