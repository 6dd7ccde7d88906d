/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bound ports: a name in the kernel's registry per (port space, port number, address). An IPv6 wildcard
 * holds the IPv4 one too unless it is IPv6 only. A wildcard and an address on the same port number conflict,
 * as they do for sockets: the second one finds the name of the first, and fails.
 *
 * A number that was chosen for a reusable id is free for all who ask for it. Only who chooses a number passes
 * it by: the reservation is a name of its own kind.
 */
#include <stdlib.h>
#include <string.h>

#include "rdmacm/address/address.h"

enum { MAX_NAMES = 2, FIRST_EPHEMERAL = 32768, LAST_EPHEMERAL = 60999 };

struct vb_cma_port {
	unsigned names;
	struct vb_port sockets[MAX_NAMES];
};

struct vb_cm_service vb_cma_service(enum rdma_port_space ps, const struct vb_cma_addr *addr)
{
	struct vb_cm_service service = { .port_space = (uint16_t)ps,
					 .port = addr->port,
					 .scope = addr->scope };

	memcpy(service.ip, &addr->ip, sizeof(service.ip));
	return service;
}

static struct vb_cm_service_name name_of(enum rdma_port_space ps, const struct vb_cma_addr *addr)
{
	struct vb_cm_service service = vb_cma_service(ps, addr);

	return vb_cm_service_name(&service);
}

static struct vb_cma_addr wildcard(const struct vb_cma_addr *addr, sa_family_t family)
{
	struct vb_cma_addr any;

	vb_cma_addr_any(family, &any);
	any.port = addr->port;
	return any;
}

static bool is_held(enum rdma_port_space ps, const struct vb_cma_addr *addr)
{
	struct vb_cm_service_name n = name_of(ps, addr);

	return vb_port_is_bound(&n, sizeof(n));
}

/* Is a conflicting name with this port number and another address bound? */
static bool conflicts(enum rdma_port_space ps, const struct vb_cma_addr *addr)
{
	struct vb_cma_addr other = wildcard(addr, vb_ip_is_v4(&addr->ip) ? AF_INET : AF_INET6);
	struct vb_netif *list;
	unsigned count;
	bool found = false;

	if (!vb_cma_addr_is_any(addr))
		return is_held(ps, &other);
	if (vb_netif_list(&list, &count))
		return false;
	for (unsigned i = 0; i < count && !found; i++)
		for (unsigned a = 0; a < list[i].naddrs && !found; a++) {
			other.ip = list[i].addrs[a].ip;
			other.scope = IN6_IS_ADDR_LINKLOCAL(&other.ip) ? list[i].index : 0;
			found = vb_ip_is_v4(&other.ip) == vb_ip_is_v4(&addr->ip) &&
				is_held(ps, &other);
		}
	free(list);
	return found;
}

static int add_name(struct vb_cma_port *port, enum rdma_port_space ps, const struct vb_cma_addr *addr)
{
	struct vb_cm_service_name n = name_of(ps, addr);
	int err = vb_port_bind(&port->sockets[port->names], &n, sizeof(n));

	if (err)
		return err;
	port->names++;
	return conflicts(ps, addr) ? -EADDRINUSE : 0;
}

static bool means_v4_too(const struct vb_cma_addr *addr, bool afonly)
{
	return !afonly && addr->family != AF_INET && vb_cma_addr_is_any(addr) && !vb_ip_is_v4(&addr->ip);
}

bool vb_cma_port_is_held(enum rdma_port_space ps, const struct vb_cma_addr *addr, bool afonly)
{
	struct vb_cma_addr v4 = wildcard(addr, AF_INET);

	return is_held(ps, addr) || conflicts(ps, addr) ||
	       (means_v4_too(addr, afonly) && (is_held(ps, &v4) || conflicts(ps, &v4)));
}

static int bind_number(struct vb_cma_port *port, enum rdma_port_space ps, const struct vb_cma_addr *addr,
		       bool afonly)
{
	int err = add_name(port, ps, addr);

	if (!err && means_v4_too(addr, afonly)) {
		struct vb_cma_addr v4 = wildcard(addr, AF_INET);
		err = add_name(port, ps, &v4);
	}
	return err;
}

static void drop_names(struct vb_cma_port *port)
{
	while (port->names)
		vb_port_close(&port->sockets[--port->names]);
}

/* ---- numbers that are chosen ---- */

struct reservation {
	char bytes[16];
};

static struct reservation reservation_of(enum rdma_port_space ps, uint16_t number)
{
	struct reservation r = { "rdma_cm/any/" };
	uint16_t port_space = (uint16_t)ps;

	memcpy(r.bytes + 12, &port_space, 2);
	memcpy(r.bytes + 14, &number, 2);
	return r;
}

/* Two that choose at the same time take their names first and look for the other's then. */
static int choose_to_hold(struct vb_cma_port *port, enum rdma_port_space ps, const struct vb_cma_addr *addr,
			  bool afonly)
{
	struct reservation r = reservation_of(ps, addr->port);
	int err = bind_number(port, ps, addr, afonly);

	return !err && vb_port_is_bound(&r, sizeof(r)) ? -EADDRINUSE : err;
}

static int choose_to_reserve(struct vb_cma_port *port, enum rdma_port_space ps,
			     const struct vb_cma_addr *addr, bool afonly)
{
	struct reservation r = reservation_of(ps, addr->port);
	int err = vb_port_bind(&port->sockets[0], &r, sizeof(r));

	if (err)
		return err;
	port->names = 1;
	return vb_cma_port_is_held(ps, addr, afonly) ? -EADDRINUSE : 0;
}

typedef int choose(struct vb_cma_port *port, enum rdma_port_space ps, const struct vb_cma_addr *addr,
		   bool afonly);

uint16_t vb_cma_port_random(void)
{
	uint32_t r;

	vb_random(&r, sizeof(r));
	return (uint16_t)(FIRST_EPHEMERAL + r % (LAST_EPHEMERAL - FIRST_EPHEMERAL + 1));
}

static int choose_number(struct vb_cma_port *port, enum rdma_port_space ps, struct vb_cma_addr *addr,
			 bool afonly, choose *chooses)
{
	uint16_t first = vb_cma_port_random();
	int err;

	addr->port = first;
	do {
		err = chooses(port, ps, addr, afonly);
		if (err != -EADDRINUSE)
			return err;
		drop_names(port);
		addr->port = addr->port == LAST_EPHEMERAL ? FIRST_EPHEMERAL : (uint16_t)(addr->port + 1);
	} while (addr->port != first);
	return -EADDRINUSE;
}

int vb_cma_port_bind(enum rdma_port_space ps, struct vb_cma_addr *addr, bool afonly, struct vb_cma_port **out)
{
	struct vb_cma_port *port = calloc(1, sizeof(*port));
	int err;

	if (!port)
		return -ENOMEM;
	if (addr->port)
		err = bind_number(port, ps, addr, afonly);
	else
		err = choose_number(port, ps, addr, afonly, choose_to_hold);
	if (err)
		vb_cma_port_close(port);
	else
		*out = port;
	return err;
}

int vb_cma_port_reserve(enum rdma_port_space ps, struct vb_cma_addr *addr, bool afonly,
			struct vb_cma_port **out)
{
	struct vb_cma_port *port = calloc(1, sizeof(*port));

	if (!port)
		return -ENOMEM;
	int err = choose_number(port, ps, addr, afonly, choose_to_reserve);
	if (err)
		vb_cma_port_close(port);
	else
		*out = port;
	return err;
}

int vb_cma_port_listen(struct vb_cma_port *port, vb_inbox_handler *arrived, void *arg)
{
	int err = 0;

	for (unsigned i = 0; i < port->names && !err; i++)
		err = vb_port_listen(&port->sockets[i], arrived, arg);
	return err;
}

void vb_cma_port_close(struct vb_cma_port *port)
{
	if (!port)
		return;
	drop_names(port);
	free(port);
}
