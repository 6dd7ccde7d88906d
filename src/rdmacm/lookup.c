/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Name look-ups in the background. Each has a thread of its own, because getaddrinfo(3) may wait for the
 * network. The thread owns the lookup, so destroying its id does not wait for it.
 */
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"

struct vb_cma_lookup {
	struct vb_cma_id *id; /* under the lock; NULL: it was destroyed */
	char *node, *service;
	struct rdma_addrinfo *hints;
};

static void lookup_free(struct vb_cma_lookup *lookup)
{
	free(lookup->node);
	free(lookup->service);
	rdma_freeaddrinfo(lookup->hints);
	free(lookup);
}

void vb_cma_lookup_forget_locked(struct vb_cma_id *id)
{
	if (id->lookup)
		id->lookup->id = NULL;
	id->lookup = NULL;
}

/* ---- copies ---- */

static bool copy_bytes(void **bytes, size_t len)
{
	void *copy = *bytes && len ? malloc(len) : NULL;
	bool good = copy || !*bytes || !len;

	if (copy)
		memcpy(copy, *bytes, len);
	*bytes = copy;
	return good;
}

static bool copy_text(char **text)
{
	return copy_bytes((void **)text, *text ? strlen(*text) + 1 : 0);
}

/* One entry of a list; NULL: no memory. */
static struct rdma_addrinfo *copy_entry(const struct rdma_addrinfo *from)
{
	struct rdma_addrinfo *to = malloc(sizeof(*to));

	if (!to)
		return NULL;
	*to = *from;
	to->ai_next = NULL;
	bool good = copy_bytes((void **)&to->ai_src_addr, to->ai_src_len);
	good &= copy_bytes((void **)&to->ai_dst_addr, to->ai_dst_len);
	good &= copy_text(&to->ai_src_canonname);
	good &= copy_text(&to->ai_dst_canonname);
	good &= copy_bytes(&to->ai_route, to->ai_route_len);
	good &= copy_bytes(&to->ai_connect, to->ai_connect_len);
	if (good)
		return to;
	rdma_freeaddrinfo(to);
	return NULL;
}

static struct rdma_addrinfo *copy_list(const struct rdma_addrinfo *from)
{
	struct rdma_addrinfo *list = NULL, **tail = &list;

	for (; from; from = from->ai_next, tail = &(*tail)->ai_next) {
		*tail = copy_entry(from);
		if (!*tail) {
			rdma_freeaddrinfo(list);
			return NULL;
		}
	}
	return list;
}

/* ---- the thread ---- */

/* An error of getaddrinfo(3) as an event's status. */
static int status_of(int eai)
{
	switch (eai) {
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_AGAIN:
		return -EAGAIN;
	case EAI_SYSTEM:
	case -1:
		return errno ? -errno : -EIO;
	}
	return -ENOENT;
}

static void *look_up(void *arg)
{
	struct vb_cma_lookup *lookup = arg;
	struct rdma_addrinfo *found = NULL;
	int eai = rdma_getaddrinfo(lookup->node, lookup->service, lookup->hints, &found);
	int status = eai ? status_of(eai) : 0;

	vb_cma_lock();
	struct vb_cma_id *id = lookup->id;
	if (id) {
		id->lookup = NULL;
		id->found = found;
		found = NULL;
		vb_cma_event_raise_locked(
			id, eai ? RDMA_CM_EVENT_ADDRINFO_ERROR : RDMA_CM_EVENT_ADDRINFO_RESOLVED, status);
	}
	vb_cma_unlock();
	rdma_freeaddrinfo(found);
	lookup_free(lookup);
	return NULL;
}

/* ---- the program ---- */

static int lookup_new(struct vb_cma_id *id, const char *node, const char *service,
		      const struct rdma_addrinfo *hints, struct vb_cma_lookup **out)
{
	const struct rdma_addrinfo of_id = { .ai_port_space = id->pub.ps, .ai_qp_type = id->pub.qp_type };
	struct vb_cma_lookup *lookup = calloc(1, sizeof(*lookup));

	if (!lookup)
		return -ENOMEM;
	lookup->node = (char *)(uintptr_t)node;
	lookup->service = (char *)(uintptr_t)service;
	bool good = copy_text(&lookup->node);
	good &= copy_text(&lookup->service);
	lookup->hints = copy_entry(hints ? hints : &of_id);
	*out = lookup;
	if (good && lookup->hints)
		return 0;
	lookup_free(lookup);
	return -ENOMEM;
}

static int start(struct vb_cma_id *id, struct vb_cma_lookup *lookup)
{
	struct rdma_addrinfo *old = NULL;
	int err = -EBUSY;

	vb_cma_lock();
	if (!id->lookup) {
		lookup->id = id;
		err = vb_thread_start(NULL, look_up, lookup);
	}
	if (!err) {
		id->lookup = lookup;
		old = id->found;
		id->found = NULL;
	}
	vb_cma_unlock();
	rdma_freeaddrinfo(old);
	if (err)
		lookup_free(lookup);
	return err;
}

static int check(const struct vb_cma_id *id, const char *node, const char *service,
		 const struct rdma_addrinfo *hints)
{
	int flags = hints ? hints->ai_flags : 0;

	if (!node && !service && !hints) {
		vb_explain("rdma_resolve_addrinfo", "node, service or hints must be given");
		return -EINVAL;
	}
	if ((flags & RAI_DNS) && (flags & RAI_SA)) {
		vb_explain("rdma_resolve_addrinfo", "RAI_DNS and RAI_SA exclude each other");
		return -EINVAL;
	}
	if (flags & RAI_SA) {
		vb_explain("rdma_resolve_addrinfo",
			   "RAI_SA: an Ethernet has no subnet administration that could be asked");
		return -EOPNOTSUPP;
	}
	enum vb_cma_state state = vb_cma_id_state(id);
	if (state == VB_CMA_IDLE || state == VB_CMA_BOUND)
		return 0;
	vb_explain("rdma_resolve_addrinfo", "the id is %s; only a fresh or bound one can look for addresses",
		   vb_cma_state_text(state));
	return -EINVAL;
}

VB_EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *pub, const char *node, const char *service,
				    const struct rdma_addrinfo *hints)
{
	struct vb_cma_lookup *lookup;

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);
	bool sync = id->sync;
	int err = check(id, node, service, hints);
	if (err)
		return vb_cma_result(err);
	err = lookup_new(id, node, service, hints, &lookup);
	if (!err)
		err = start(id, lookup);
	if (err)
		return vb_cma_fail(-err, "no lookup: %s", strerror(-err));
	return sync ? vb_cma_complete(id, __func__) : 0;
}

VB_EXPORT int rdma_query_addrinfo(struct rdma_cm_id *pub, struct rdma_addrinfo **info)
{
	if (!pub || !info)
		return vb_cma_fail(EINVAL, "id or the place for the result is NULL");
	vb_cma_lock();
	bool is_found = vb_cma_id_of(pub)->found;
	struct rdma_addrinfo *copy = copy_list(vb_cma_id_of(pub)->found);
	vb_cma_unlock();
	if (!is_found)
		return vb_cma_fail(EINVAL,
				   "nothing was found: rdma_resolve_addrinfo must have succeeded first");
	if (!copy)
		return vb_cma_fail(ENOMEM, "no memory for the result");
	*info = copy;
	return 0;
}
