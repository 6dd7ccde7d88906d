/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device list. A device keeps its struct ibv_device while its interface exists, or a list or an open
 * context refers to it. So a program gets the same pointer again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/verbs.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list devices = VB_LIST_INIT(devices);

static void forget_parent(void)
{
	pthread_mutex_init(&lock, NULL);
}

static struct vb_verbs_device *of(struct ibv_device *pub)
{
	return vb_container_of(pub, struct vb_verbs_device, pub);
}

static struct vb_verbs_device *create_locked(struct vb_device *dev)
{
	struct vb_verbs_device *d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->pub.node_type = IBV_NODE_CA;
	d->pub.transport_type = IBV_TRANSPORT_IB;
	snprintf(d->pub.name, sizeof(d->pub.name), "%s", dev->name);
	snprintf(d->pub.dev_name, sizeof(d->pub.dev_name), "uverbs%u", dev->number);
	snprintf(d->pub.dev_path, sizeof(d->pub.dev_path), "/sys/class/infiniband_verbs/uverbs%u",
		 dev->number);
	snprintf(d->pub.ibdev_path, sizeof(d->pub.ibdev_path), "/sys/class/infiniband/%s", dev->name);
	d->dev = dev;
	vb_device_get(dev);
	vb_list_add_tail(&devices, &d->node);
	return d;
}

static struct vb_verbs_device *find_locked(const struct vb_device *dev)
{
	struct vb_verbs_device *d;
	vb_list_for_each(d, &devices, node)
		if (d->dev == dev)
			return d;
	return NULL;
}

/* Frees devices without references whose interface has gone. */
static void sweep_locked(void)
{
	struct vb_verbs_device *d;
	vb_list_for_each(d, &devices, node) {
		if (d->refs || !d->dev->gone)
			continue;
		vb_list_del(&d->node);
		vb_device_put(d->dev);
		free(d);
	}
}

void vb_verbs_device_hold(struct vb_verbs_device *device)
{
	pthread_mutex_lock(&lock);
	device->refs++;
	pthread_mutex_unlock(&lock);
}

void vb_verbs_device_release(struct vb_verbs_device *device)
{
	pthread_mutex_lock(&lock);
	device->refs--;
	sweep_locked();
	pthread_mutex_unlock(&lock);
}

/* list has room for all and a NULL. */
static int fill_locked(struct ibv_device **list, struct vb_device **devs, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct vb_verbs_device *d = find_locked(devs[i]);
		if (!d)
			d = create_locked(devs[i]);
		if (!d)
			return -ENOMEM;
		list[i] = &d->pub;
	}
	for (unsigned i = 0; i < count; i++)
		of(list[i])->refs++;
	return 0;
}

VB_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct vb_device **devs;
	unsigned count;

	if (num_devices)
		*num_devices = 0;
	vb_host_at_fork(forget_parent);
	int err = vb_fault_call("ibv_get_device_list", 0);
	if (err)
		return vb_fail_null(err);
	err = vb_device_list(&devs, &count);
	if (err) {
		vb_explain_limit("ibv_get_device_list", "cannot list network interfaces: %s", strerror(-err));
		return vb_fail_null(err);
	}
	struct ibv_device **list = calloc(count + 1, sizeof(*list));
	pthread_mutex_lock(&lock);
	err = list ? fill_locked(list, devs, count) : -ENOMEM;
	pthread_mutex_unlock(&lock);
	for (unsigned i = 0; i < count; i++)
		vb_device_put(devs[i]);
	free(devs);
	if (err) {
		free(list);
		return vb_fail_null(err);
	}
	if (num_devices)
		*num_devices = (int)count;
	return list;
}

VB_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	if (!list)
		return;
	pthread_mutex_lock(&lock);
	for (struct ibv_device **d = list; *d; d++)
		of(*d)->refs--;
	sweep_locked();
	pthread_mutex_unlock(&lock);
	free(list);
}

VB_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

VB_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return of(device)->dev->guid;
}

VB_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return (int)of(device)->dev->number;
}
