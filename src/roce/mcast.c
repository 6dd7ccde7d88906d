/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce/mcast.h"

#include <errno.h>
#include <stdlib.h>

#include "adapter/device/device.h"
#include "adapter/progress/path.h"
#include "base/log.h"
#include "roce/port.h"

enum { DELIVER_BATCH = 32 };

struct attachment {
	struct vb_list node;
	struct vb_qp *qp;
	struct in6_addr mgid;
};

/* changed under both locks, read under either */
static struct vb_list attachments = VB_LIST_INIT(attachments);
static unsigned count;
static pthread_mutex_t change_lock = PTHREAD_MUTEX_INITIALIZER;

static struct attachment *find_locked(const struct vb_qp *qp, const struct in6_addr *mgid)
{
	struct attachment *a;
	vb_list_for_each(a, &attachments, node)
		if (a->qp == qp && IN6_ARE_ADDR_EQUAL(&a->mgid, mgid))
			return a;
	return NULL;
}

static int add_locked(struct vb_qp *qp, const struct in6_addr *mgid)
{
	struct attachment *a = count < VB_MAX_MCAST ? malloc(sizeof(*a)) : NULL;
	if (!a)
		return -ENOMEM;
	int err = vb_roce_open();
	if (!err)
		err = vb_udp_join(mgid, qp->ctx->device->ifindex);
	if (err) {
		free(a);
		return err;
	}
	*a = (struct attachment){ .qp = qp, .mgid = *mgid };
	vb_lock(&vb_progress_lock);
	vb_list_add_tail(&attachments, &a->node);
	vb_unlock(&vb_progress_lock);
	count++;
	atomic_fetch_add(&qp->mcast, 1);
	return 0;
}

int vb_mcast_attach(struct vb_qp *qp, const struct in6_addr *mgid)
{
	if (qp->type != IBV_QPT_UD || !vb_ip_is_multicast(mgid)) {
		vb_explain(
			"ibv_attach_mcast", "%s",
			qp->type != IBV_QPT_UD ?
				"multicast is for UD queue pairs" :
				"the GID is no multicast address (ff00::/8, or ::ffff:224.0.0.0/100 for IPv4)");
		return -EINVAL;
	}
	pthread_mutex_lock(&change_lock);
	int err = find_locked(qp, mgid) ? 0 : add_locked(qp, mgid);
	pthread_mutex_unlock(&change_lock);
	return err;
}

int vb_mcast_detach(struct vb_qp *qp, const struct in6_addr *mgid)
{
	pthread_mutex_lock(&change_lock);
	struct attachment *a = find_locked(qp, mgid);
	if (a) {
		vb_lock(&vb_progress_lock);
		vb_list_del(&a->node);
		vb_unlock(&vb_progress_lock);
		count--;
		atomic_fetch_sub(&qp->mcast, 1);
		vb_udp_leave(mgid, qp->ctx->device->ifindex);
		free(a);
	}
	pthread_mutex_unlock(&change_lock);
	return a ? 0 : -EINVAL;
}

/* A group is one on each interface. */
static bool is_member(const struct attachment *a, const struct in6_addr *mgid, unsigned ifindex)
{
	const struct vb_context *ctx = a->qp->ctx;
	return IN6_ARE_ADDR_EQUAL(&a->mgid, mgid) && (!ifindex || ctx->device->ifindex == ifindex) &&
	       ctx->generation == vb_host_generation() && !vb_device_has_no_link(ctx->device);
}

/* Members from the skip-th on, with references; how many of all were looked at is added to *skip. */
static unsigned members(const struct in6_addr *mgid, unsigned ifindex, unsigned *skip,
			struct vb_qp *found[DELIVER_BATCH])
{
	struct attachment *a;
	unsigned n = 0, at = 0;
	vb_lock(&vb_progress_lock);
	vb_list_for_each(a, &attachments, node) {
		if (at++ < *skip)
			continue;
		if (n == DELIVER_BATCH)
			break;
		++*skip;
		if (!is_member(a, mgid, ifindex))
			continue;
		vb_qp_ref(a->qp);
		found[n++] = a->qp;
	}
	vb_unlock(&vb_progress_lock);
	return n;
}

void vb_mcast_deliver(const struct vb_inbox_msg *msg, unsigned ifindex, const struct vb_packet *packet)
{
	struct vb_qp *found[DELIVER_BATCH];
	unsigned n, skip = 0;
	do {
		n = members(&msg->addr.dst, ifindex, &skip, found);
		for (unsigned i = 0; i < n; i++) {
			const struct vb_path_ops *path = atomic_load(&found[i]->path);
			if (path)
				path->arrived(found[i], msg, packet);
			vb_qp_unref(found[i]);
		}
	} while (n == DELIVER_BATCH);
}

/* The parent's QPs are not ours. */
static void forget(void)
{
	pthread_mutex_init(&change_lock, NULL);
	vb_list_init(&attachments);
	count = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}
