/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The devices. Each is opened when it is first needed, and stays open. Each look-up of an address reads the
 * GID tables, since addresses come and go.
 */
#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/address/address.h"
#include "rdmacm/fail.h"

enum { MAX_GIDS = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list devices = VB_LIST_INIT(devices);

void vb_cma_device_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	vb_list_init(&devices);
}

static uint8_t at_most_255(int v)
{
	return v < 0 ? 0 : v > UINT8_MAX ? UINT8_MAX : (uint8_t)v;
}

static struct vb_cma_device *open_locked(struct ibv_device *device)
{
	struct vb_cma_device *dev = calloc(1, sizeof(*dev));
	struct ibv_device_attr attr;

	if (!dev)
		return NULL;
	dev->verbs = ibv_open_device(device);
	if (!dev->verbs)
		goto no_context;
	if (ibv_query_device(dev->verbs, &attr))
		goto no_pd;
	dev->pd = ibv_alloc_pd(dev->verbs);
	if (!dev->pd)
		goto no_pd;
	dev->max_responder_resources = at_most_255(attr.max_qp_rd_atom);
	dev->max_initiator_depth = at_most_255(attr.max_qp_init_rd_atom);
	dev->guid = be64toh(attr.node_guid);
	vb_list_add_tail(&devices, &dev->node);
	return dev;
no_pd:
	ibv_close_device(dev->verbs);
no_context:
	free(dev);
	return NULL;
}

static struct vb_cma_device *get_locked(struct ibv_device *device)
{
	struct vb_cma_device *dev;

	vb_list_for_each(dev, &devices, node)
		if (dev->verbs->device == device) /* not by name, which another device may have by now */
			return dev;
	return open_locked(device);
}

/* 127.0.0.2 and its like have no GID of their own: they belong to 127.0.0.1's device. */
static bool gid_is(const struct ibv_gid_entry *entry, const struct vb_cma_addr *addr)
{
	const struct in6_addr *gid = (const struct in6_addr *)entry->gid.raw;

	if (addr->scope && entry->ndev_ifindex && entry->ndev_ifindex != addr->scope)
		return false;
	if (memcmp(gid, &addr->ip, sizeof(*gid)) == 0)
		return true;
	return vb_ip_is_v4(&addr->ip) && vb_ip_is_loopback(&addr->ip) && vb_ip_is_v4(gid) &&
	       vb_ip_is_loopback(gid);
}

static int find_on_locked(struct vb_cma_device *dev, const struct vb_cma_addr *addr,
			  struct vb_cma_source *source)
{
	struct ibv_gid_entry *table = calloc(MAX_GIDS, sizeof(*table));
	ssize_t count = table ? ibv_query_gid_table(dev->verbs, table, MAX_GIDS, 0) : -ENOMEM;
	struct ibv_port_attr port;
	int err = count == -ENOMEM ? -ENOMEM : -ENODEV;

	for (ssize_t i = 0; i < count && err; i++) {
		if (!gid_is(&table[i], addr) || ibv_query_port(dev->verbs, (uint8_t)table[i].port_num, &port))
			continue;
		source->device = dev;
		source->port_num = (uint8_t)table[i].port_num;
		source->gid_index = (uint8_t)table[i].gid_index;
		source->mtu = port.active_mtu;
		source->ifindex = table[i].ndev_ifindex;
		err = 0;
	}
	free(table);
	return err;
}

int vb_cma_device_find(const struct vb_cma_addr *addr, struct vb_cma_source *source)
{
	pthread_mutex_lock(&lock);
	struct ibv_device **list = ibv_get_device_list(NULL);
	int err = list ? -ENODEV : -errno;
	for (struct ibv_device **d = list; d && *d && err; d++) {
		struct vb_cma_device *dev = get_locked(*d);
		int result = dev ? find_on_locked(dev, addr, source) : -errno;
		if (!result || result == -ENOMEM) /* an unread table may have had it */
			err = result;
	}
	if (list)
		ibv_free_device_list(list);
	pthread_mutex_unlock(&lock);
	return err;
}

struct ibv_xrcd *vb_cma_device_xrcd(struct vb_cma_device *dev)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };

	pthread_mutex_lock(&lock);
	if (!dev->xrcd)
		dev->xrcd = ibv_open_xrcd(dev->verbs, &attr);
	struct ibv_xrcd *xrcd = dev->xrcd;
	pthread_mutex_unlock(&lock);
	return xrcd;
}

VB_EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context **contexts = NULL;
	int listed = 0, opened = 0;

	if (num_devices)
		*num_devices = 0;
	if (vb_cma_is_faulty(__func__))
		return NULL;
	pthread_mutex_lock(&lock);
	struct ibv_device **list = ibv_get_device_list(&listed);
	if (list)
		contexts = calloc((size_t)listed + 1, sizeof(*contexts));
	for (int i = 0; contexts && i < listed; i++) {
		struct vb_cma_device *dev = get_locked(list[i]);
		if (dev)
			contexts[opened++] = dev->verbs;
	}
	if (list)
		ibv_free_device_list(list);
	pthread_mutex_unlock(&lock);
	if (!contexts) {
		vb_explain(__func__, "the list of devices is not to be had: %s", strerror(errno));
		return NULL;
	}
	if (num_devices)
		*num_devices = opened;
	return contexts;
}

VB_EXPORT void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
