/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA devices: one per usable network interface (vb_<interface>, the loopback last as vb_lo), each with one
 * port. A device exists as long as someone refers to it, even after its interface has gone (port DOWN). Its
 * GID table follows the interface's addresses: all RoCE v2; index 0 the IPv6 link-local address or the one
 * that the MAC would give (EUI-64), index 1 the first IPv4 address, then the others; on vb_lo index 0 is
 * 127.0.0.1 and 1 is ::1. An entry keeps its index while its address stays; a removed address leaves a zero
 * entry that a new address may fill.
 */
#ifndef VB_ADAPTER_DEVICE_H
#define VB_ADAPTER_DEVICE_H

#include "adapter/object.h"

/* sgid_index has 8 bits. */
enum { VB_GID_TABLE = 256 };

struct vb_device {
	char name[64];         /* vb_eth0 */
	char ifname[VB_NETIF_NAME];
	unsigned ifindex;
	unsigned number;       /* ibv_get_device_index, stable for the process */
	uint64_t guid;         /* network order */
	atomic_uint refs;
	/* the interface was not there any more at the last look; under the registry's lock */
	bool gone;
	pthread_mutex_t lock;  /* guards what follows, but for node */
	struct vb_netif netif; /* as last seen */
	enum ibv_port_state port_state;
	atomic_bool is_cut;    /* a fault has taken its link down (fault_injection.h) */
	enum ibv_mtu active_mtu;
	unsigned gids;         /* entries in use, holes included */
	struct in6_addr gid[VB_GID_TABLE];
	struct vb_list contexts;
	struct vb_list node;   /* in the registry, under its lock */
};

/* A malloc'ed array of referenced devices; creates those of new interfaces. */
int vb_device_list(struct vb_device ***list, unsigned *count);
void vb_device_get(struct vb_device *dev);
void vb_device_put(struct vb_device *dev);
/* From the first call on, and in forked children, devices follow their interfaces. */
void vb_device_follow_network(void);

/*
 * Has changed(arg) called when interfaces, their addresses or link addresses have changed, after the devices
 * have followed. From the progress thread, without locks. One subscriber per process; a second call replaces
 * the first.
 */
VB_EXPORT void vb_netif_change_subscribe(void (*changed)(void *arg), void *arg);

void vb_device_attr(struct vb_device *dev, struct ibv_device_attr *attr);
void vb_port_attr(struct vb_device *dev, struct ibv_port_attr *attr);
/* What the interface carries; an assumption where it does not say. */
uint32_t vb_port_mbps(struct vb_device *dev);
/* -EINVAL beyond the table, -ENODATA for a hole (gid is zero then). */
int vb_device_gid(struct vb_device *dev, unsigned index, struct in6_addr *gid);
/* All at one moment. Returns how many entries are written; a hole among them is zero. */
unsigned vb_device_gids(struct vb_device *dev, struct in6_addr table[VB_GID_TABLE]);
/* Is it a GID of one of this host's known devices? An EUI-64 GID need not be an address of the interface. */
bool vb_device_gid_is_local(const struct in6_addr *gid);

/* ---- faults on purpose: name is a device's, or "" for all ---- */

bool vb_device_is_there(const char *name);
/*
 * Takes the links of these devices down, also of those that come later, and lets all others be up, with the
 * port events that go with it. At most VB_FAULT_RULES; the names stay where they are.
 */
void vb_device_cut(const char *const *names, unsigned count);
/* Is this the address of a device whose link was taken down? */
bool vb_device_is_cut(const struct in6_addr *gid);
static inline bool vb_device_has_no_link(const struct vb_device *dev) { return atomic_load(&dev->is_cut); }
/* Raises an event of port or device in all contexts. */
void vb_device_raise(const char *name, enum ibv_event_type type);

/*
 * 0, unless ports are to look like InfiniBand's (vb_link_is_infiniband): then the same for all processes of
 * the host.
 */
uint16_t vb_device_lid(const struct vb_device *dev);
/*
 * Fills in the GIDs that this port's own LID stands for; is_global and other destinations stay as they are.
 */
void vb_ah_complete(struct vb_device *dev, struct ibv_ah_attr *attr);
/*
 * Can the device reach a destination so described? 0 with the source address, or -EINVAL with a sentence
 * under the call's name.
 */
int vb_ah_check(struct vb_device *dev, const struct ibv_ah_attr *attr, const char *call,
		struct in6_addr *sgid);

/*
 * The GID table's rules, for the table of a device whose interface looks like netif (also netif's first
 * time).
 */
void vb_gids_update(struct in6_addr table[VB_GID_TABLE], unsigned *used, const struct vb_netif *netif);
/* The largest path MTU whose packets fit an interface MTU (bytes). */
VB_EXPORT enum ibv_mtu vb_mtu_for(unsigned netif_mtu);
static inline uint32_t vb_mtu_bytes(enum ibv_mtu mtu) { return 128u << mtu; }

#endif
