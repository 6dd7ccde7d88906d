/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registry of devices, which follow their network interfaces. Locks: the registry's, then a device's,
 * then those of a context's event queue.
 */
#include "adapter/device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/memory/arena.h"
#include "base/device_caps.h"
#include "faults/plan.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
/* each holds a reference while its interface is there */
static struct vb_list registry = VB_LIST_INIT(registry);
static unsigned next_number;
/* faults on purpose: devices whose links are down; "": all. Under the registry's lock */
static const char *cut_names[VB_FAULT_RULES];
static unsigned cuts;
static atomic_bool has_cuts; /* some device's link is, or was */

/* ---- one device ---- */

/* EUI-64 of the MAC; the loopback has none and gets one from the locally administered range. */
static uint64_t guid_of(const struct vb_netif *netif)
{
	static const uint8_t no_mac[6];
	uint8_t eui[8] = { 0x02, 'v', 'b', 0xff, 0xfe, 0, 0, (uint8_t)netif->index };
	uint64_t guid;
	if (memcmp(netif->mac, no_mac, sizeof(no_mac))) {
		memcpy(eui, netif->mac, 3);
		memcpy(eui + 5, netif->mac + 3, 3);
		eui[0] ^= 2;
	}
	memcpy(&guid, eui, sizeof(guid));
	return guid;
}

static bool is_called(const struct vb_device *dev, const char *name)
{
	return !*name || strcmp(dev->name, name) == 0;
}

static bool is_cut_locked(const struct vb_device *dev)
{
	bool cut = false;
	for (unsigned i = 0; i < cuts && !cut; i++)
		cut = is_called(dev, cut_names[i]);
	return cut;
}

static struct vb_device *create_locked(const struct vb_netif *netif)
{
	struct vb_device *dev = calloc(1, sizeof(*dev));
	if (!dev)
		return NULL;
	snprintf(dev->name, sizeof(dev->name), "vb_%s", netif->name);
	memcpy(dev->ifname, netif->name, sizeof(dev->ifname));
	dev->ifindex = netif->index;
	dev->number = next_number++;
	dev->guid = guid_of(netif);
	atomic_init(&dev->refs, 1);
	pthread_mutex_init(&dev->lock, NULL);
	vb_list_init(&dev->contexts);
	dev->port_state = IBV_PORT_NOP;
	dev->is_cut = is_cut_locked(dev);
	vb_list_add_tail(&registry, &dev->node);
	return dev;
}

void vb_device_get(struct vb_device *dev)
{
	atomic_fetch_add(&dev->refs, 1);
}

void vb_device_put(struct vb_device *dev)
{
	if (atomic_fetch_sub(&dev->refs, 1) != 1)
		return;
	pthread_mutex_destroy(&dev->lock);
	free(dev);
}

static bool has_gid(struct vb_device *dev, const struct in6_addr *gid)
{
	bool found = false;
	pthread_mutex_lock(&dev->lock);
	for (unsigned i = 0; i < dev->gids && !found; i++)
		found = IN6_ARE_ADDR_EQUAL(&dev->gid[i], gid);
	pthread_mutex_unlock(&dev->lock);
	return found;
}

/* ---- following the interface ---- */

static void raise_all_locked(struct vb_device *dev, enum ibv_event_type type)
{
	struct vb_context *ctx;
	vb_list_for_each(ctx, &dev->contexts, node)
		vb_async_raise(ctx, type, VB_ASYNC_PORT, NULL, NULL, 1);
}

static void set_state_locked(struct vb_device *dev, enum ibv_port_state state)
{
	if (dev->port_state == state)
		return;
	dev->port_state = state;
	raise_all_locked(dev, state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

static void follow_link_locked(struct vb_device *dev)
{
	set_state_locked(dev, dev->netif.up && dev->netif.running && !dev->is_cut ? IBV_PORT_ACTIVE :
										    IBV_PORT_DOWN);
}

static void update(struct vb_device *dev, const struct vb_netif *netif)
{
	pthread_mutex_lock(&dev->lock);
	struct in6_addr before[VB_GID_TABLE];
	memcpy(before, dev->gid, sizeof(before));
	dev->netif = *netif;
	dev->active_mtu = vb_mtu_for(netif->mtu);
	vb_gids_update(dev->gid, &dev->gids, netif);
	follow_link_locked(dev);
	if (memcmp(before, dev->gid, sizeof(before)))
		raise_all_locked(dev, IBV_EVENT_GID_CHANGE);
	pthread_mutex_unlock(&dev->lock);
}

static struct vb_device *find_locked(const struct vb_netif *netif)
{
	struct vb_device *dev;
	vb_list_for_each(dev, &registry, node)
		if (dev->ifindex == netif->index && !strcmp(dev->ifname, netif->name))
			return dev;
	return NULL;
}

static bool is_listed(const struct vb_device *dev, const struct vb_netif *list, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (list[i].index == dev->ifindex && !strcmp(list[i].name, dev->ifname))
			return true;
	return false;
}

/* Drops the registry's reference to devices whose interface has gone; their users keep theirs. */
static void drop_missing_locked(const struct vb_netif *list, unsigned count)
{
	struct vb_device *dev;
	vb_list_for_each(dev, &registry, node) {
		if (is_listed(dev, list, count))
			continue;
		pthread_mutex_lock(&dev->lock);
		set_state_locked(dev, IBV_PORT_DOWN);
		pthread_mutex_unlock(&dev->lock);
		dev->gone = true;
		vb_list_del(&dev->node);
		vb_device_put(dev);
	}
}

/* Worth a device: an interface that can reach somebody. One that goes down later keeps its device. */
static bool is_usable(const struct vb_netif *netif)
{
	return netif->loopback || (netif->up && netif->naddrs);
}

/* The loopback, which the list has last, stays last. */
static int refresh_locked(void)
{
	struct vb_netif *list;
	unsigned count;
	int err = vb_netif_list(&list, &count);
	if (err)
		return err;
	drop_missing_locked(list, count);
	for (unsigned i = 0; i < count; i++) {
		struct vb_device *dev = find_locked(&list[i]);
		if (!dev && !is_usable(&list[i]))
			continue;
		if (!dev)
			dev = create_locked(&list[i]);
		if (!dev) {
			err = -ENOMEM;
			break;
		}
		update(dev, &list[i]);
		vb_list_del(&dev->node);
		vb_list_add_tail(&registry, &dev->node);
	}
	free(list);
	return err;
}

static void (*_Atomic subscriber)(void *arg);
static void *_Atomic subscriber_arg;

void vb_netif_change_subscribe(void (*changed)(void *arg), void *arg)
{
	atomic_store(&subscriber_arg, arg);
	atomic_store(&subscriber, changed);
}

/* From the progress thread: only known devices can have listeners, but new ones do no harm. */
static void network_changed(void *arg)
{
	pthread_mutex_lock(&registry_lock);
	refresh_locked();
	pthread_mutex_unlock(&registry_lock);
	void (*changed)(void *) = atomic_load(&subscriber);
	if (changed)
		changed(atomic_load(&subscriber_arg));
}

int vb_device_list(struct vb_device ***list, unsigned *count)
{
	struct vb_device *dev;
	unsigned n = 0;

	pthread_mutex_lock(&registry_lock);
	int err = refresh_locked();
	vb_list_for_each(dev, &registry, node)
		n++;
	*list = err ? NULL : malloc((n + 1) * sizeof(**list));
	*count = 0;
	if (!err && !*list)
		err = -ENOMEM;
	if (!err)
		vb_list_for_each(dev, &registry, node) {
			vb_device_get(dev);
			(*list)[(*count)++] = dev;
		}
	pthread_mutex_unlock(&registry_lock);
	return err;
}

/* ---- faults on purpose ---- */

bool vb_device_is_there(const char *name)
{
	struct vb_device *dev;
	bool found = false;
	pthread_mutex_lock(&registry_lock);
	vb_list_for_each(dev, &registry, node)
		found = found || is_called(dev, name);
	pthread_mutex_unlock(&registry_lock);
	return found;
}

void vb_device_cut(const char *const *names, unsigned count)
{
	struct vb_device *dev;
	if (count)
		atomic_store(&has_cuts, true);
	pthread_mutex_lock(&registry_lock);
	for (cuts = 0; cuts < count; cuts++)
		cut_names[cuts] = names[cuts];
	vb_list_for_each(dev, &registry, node) {
		pthread_mutex_lock(&dev->lock);
		dev->is_cut = is_cut_locked(dev);
		follow_link_locked(dev);
		pthread_mutex_unlock(&dev->lock);
	}
	pthread_mutex_unlock(&registry_lock);
}

bool vb_device_is_cut(const struct in6_addr *gid)
{
	struct vb_device *dev;
	bool cut = false;
	if (!atomic_load(&has_cuts))
		return false;
	pthread_mutex_lock(&registry_lock);
	vb_list_for_each(dev, &registry, node)
		cut = cut || (dev->is_cut && has_gid(dev, gid));
	pthread_mutex_unlock(&registry_lock);
	return cut;
}

void vb_device_raise(const char *name, enum ibv_event_type type)
{
	struct vb_device *dev;
	pthread_mutex_lock(&registry_lock);
	vb_list_for_each(dev, &registry, node) {
		if (!is_called(dev, name))
			continue;
		pthread_mutex_lock(&dev->lock);
		raise_all_locked(dev, type);
		pthread_mutex_unlock(&dev->lock);
	}
	pthread_mutex_unlock(&registry_lock);
}

/* ---- start and forks ---- */

/* The child has none of its parent's contexts; devices it may open anew. */
static void forget_parent(void)
{
	struct vb_device *dev;
	pthread_mutex_init(&registry_lock, NULL);
	cuts = 0;
	atomic_store(&has_cuts, false);
	vb_list_for_each(dev, &registry, node) {
		dev->is_cut = false;
		pthread_mutex_init(&dev->lock, NULL);
		vb_list_init(&dev->contexts);
	}
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget_parent);
}

void vb_device_follow_network(void)
{
	vb_netif_watch(network_changed, NULL);
}

/* ---- queries ---- */

enum {
	MANY      = 1 << 24, /* objects that only memory limits */
	ACK_DELAY = 15,      /* 4.096 µs · 2^15: how late a busy machine may answer */
	VENDOR    = 0xffffff, /* no OUI */
};

void vb_device_attr(struct vb_device *dev, struct ibv_device_attr *attr)
{
	const int max_qp = VB_ARENA_SLOTS * VB_SLOT_QPS;
	*attr = (struct ibv_device_attr){
		.fw_ver = "verbatim",
		.node_guid = dev->guid,
		.sys_image_guid = dev->guid,
		.max_mr_size = 1ull << 47,
		.page_size_cap = 0xfffff000,
		.vendor_id = VENDOR,
		.max_qp = max_qp,
		.max_qp_wr = VB_MAX_WR,
		.device_cap_flags = VB_DEVICE_CAPS,
		.max_sge = VB_MAX_SGE,
		.max_sge_rd = VB_MAX_SGE,
		.max_cq = MANY,
		.max_cqe = VB_MAX_CQE,
		.max_mr = VB_MAX_MR,
		.max_mw = VB_MAX_MR,
		.max_pd = MANY,
		.max_qp_rd_atom = VB_MAX_RD_ATOMIC,
		.max_res_rd_atom = VB_MAX_RD_ATOMIC * max_qp,
		.max_qp_init_rd_atom = VB_MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mcast_grp = VB_MAX_MCAST,
		.max_mcast_qp_attach = VB_MAX_MCAST,
		.max_total_mcast_qp_attach = VB_MAX_MCAST,
		.max_ah = MANY,
		.max_srq = MANY,
		.max_srq_wr = VB_MAX_WR,
		.max_srq_sge = VB_MAX_SGE,
		.max_pkeys = VB_PKEYS,
		.local_ca_ack_delay = ACK_DELAY,
		.phys_port_cnt = 1,
	};
}

/*
 * An interface without a link (loopback, virtual ones) has no speed. Its port then says about what this
 * adapter carries, since programs choose their protocols by it. Below some 50 Gbit/s, for example, UCX copies
 * messages of 64 KiB in pieces instead of reading them.
 */
static uint32_t mbps_of(const struct vb_netif *netif)
{
	enum { WITHOUT_LINK = 200000 };
	return netif->speed_mbps ? netif->speed_mbps : WITHOUT_LINK;
}

uint32_t vb_port_mbps(struct vb_device *dev)
{
	pthread_mutex_lock(&dev->lock);
	uint32_t mbps = mbps_of(&dev->netif);
	pthread_mutex_unlock(&dev->lock);
	return mbps;
}

/* Lanes and speed per lane, as codes, that come to at most an Ethernet speed. */
static void set_speed(struct ibv_port_attr *attr, const struct vb_netif *netif)
{
	enum { X1 = 1, X4 = 2, GB_2_5 = 1, GB_10 = 4, GB_25 = 32, GB_50 = 64, GB_100 = 128 };
	static const struct {
		uint32_t mbps;
		uint8_t width, speed;
	} speeds[] = {
		{ 400000, X4, GB_100 }, { 200000, X4, GB_50 }, { 100000, X4, GB_25 }, { 50000, X1, GB_50 },
		{ 40000, X4, GB_10 },   { 25000, X1, GB_25 },  { 10000, X1, GB_10 },  { 0, X1, GB_2_5 },
	};
	uint32_t mbps = mbps_of(netif);
	unsigned i = 0;
	while (speeds[i].mbps > mbps)
		i++;
	attr->active_width = speeds[i].width;
	attr->active_speed = speeds[i].speed;
	attr->active_speed_ex = speeds[i].speed;
}

uint16_t vb_device_lid(const struct vb_device *dev)
{
	enum { LAST_UNICAST_LID = 0xbfff };
	return vb_link_is_infiniband() ? (uint16_t)((dev->ifindex - 1) % LAST_UNICAST_LID + 1) : 0;
}

void vb_port_attr(struct vb_device *dev, struct ibv_port_attr *attr)
{
	enum { LINK_UP = 5, DISABLED = 3 };
	pthread_mutex_lock(&dev->lock);
	*attr = (struct ibv_port_attr){
		.state = dev->port_state,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = dev->active_mtu,
		.gid_tbl_len = VB_GID_TABLE,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = VB_MAX_MSG,
		.pkey_tbl_len = VB_PKEYS,
		.max_vl_num = 1,
		.phys_state = dev->port_state == IBV_PORT_ACTIVE ? LINK_UP : DISABLED,
		.lid = vb_device_lid(dev),
		.sm_lid = vb_device_lid(dev),
		.link_layer = vb_link_is_infiniband() ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
		.flags = vb_link_is_infiniband() ? 0 : IBV_QPF_GRH_REQUIRED,
	};
	set_speed(attr, &dev->netif);
	pthread_mutex_unlock(&dev->lock);
}

int vb_device_gid(struct vb_device *dev, unsigned index, struct in6_addr *gid)
{
	*gid = in6addr_any;
	if (index >= VB_GID_TABLE)
		return -EINVAL;
	pthread_mutex_lock(&dev->lock);
	if (index < dev->gids)
		*gid = dev->gid[index];
	pthread_mutex_unlock(&dev->lock);
	return IN6_IS_ADDR_UNSPECIFIED(gid) ? -ENODATA : 0;
}

unsigned vb_device_gids(struct vb_device *dev, struct in6_addr table[VB_GID_TABLE])
{
	pthread_mutex_lock(&dev->lock);
	unsigned n = dev->gids;
	memcpy(table, dev->gid, n * sizeof(*table));
	pthread_mutex_unlock(&dev->lock);
	return n;
}

bool vb_device_gid_is_local(const struct in6_addr *gid)
{
	struct vb_device *dev;
	bool found = false;
	if (IN6_IS_ADDR_UNSPECIFIED(gid))
		return false;
	pthread_mutex_lock(&registry_lock);
	vb_list_for_each(dev, &registry, node)
		found = found || has_gid(dev, gid);
	pthread_mutex_unlock(&registry_lock);
	return found;
}
