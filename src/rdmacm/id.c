/* SPDX-License-Identifier: BSD-2-Clause */
/* The life of identifiers. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/cma.h"
#include "rdmacm/fork.h"

/* Under the lock. */
static struct vb_list ids = VB_LIST_INIT(ids);
static uint64_t last_serial;

const char *vb_cma_state_text(enum vb_cma_state state)
{
	static const char *const texts[] = {
#define X(name, text) text,
		VB_CMA_STATES(X)
#undef X
	};

	return (unsigned)state < VB_ARRAY_LEN(texts) ? texts[state] : "?";
}

enum vb_cma_state vb_cma_id_state(const struct vb_cma_id *id)
{
	vb_cma_lock();
	enum vb_cma_state state = id->state;
	vb_cma_unlock();
	return state;
}

void vb_cma_ids_locked(struct vb_list **list)
{
	*list = &ids;
}

void vb_cma_id_forget(void)
{
	struct vb_cma_id *id;

	vb_list_for_each(id, &ids, node) {
		id->conn = NULL;
		id->port = NULL;
		id->device = NULL;
		vb_list_init(&id->groups);
	}
}

static struct vb_cma_id *new_locked(struct rdma_event_channel *channel, void *context,
				    enum rdma_port_space ps, enum ibv_qp_type qp_type)
{
	struct vb_cma_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->pub.channel = channel;
	id->pub.context = context;
	id->pub.ps = ps;
	id->pub.qp_type = qp_type;
	vb_random(&id->our_psn, sizeof(id->our_psn));
	id->our_psn &= 0xffffff; /* 24 bits */
	vb_list_init(&id->groups);
	id->serial = ++last_serial;
	vb_list_init(&id->listening);
	vb_list_init(&id->events);
	vb_list_add_tail(&ids, &id->node);
	return id;
}

int vb_cma_id_create(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		     enum ibv_qp_type qp_type, struct vb_cma_id **out)
{
	bool sync = !channel;
	int err = sync ? vb_cma_channel_create(0, &channel) : 0;

	if (err)
		return err;
	vb_cma_lock();
	struct vb_cma_id *id = new_locked(channel, context, ps, qp_type);
	if (id)
		id->sync = sync;
	vb_cma_unlock();
	if (!id) {
		if (sync)
			vb_cma_channel_destroy(channel);
		return -ENOMEM;
	}
	*out = id;
	return 0;
}

struct vb_cma_id *vb_cma_id_create_child_locked(struct vb_cma_id *listener)
{
	struct vb_cma_id *id = new_locked(listener->pub.channel, listener->pub.context, listener->pub.ps,
					  listener->pub.qp_type);

	if (!id)
		return NULL;
	id->listener = listener;
	id->state = VB_CMA_REQUESTED;
	id->tos = listener->tos;
	id->ack_timeout = listener->ack_timeout;
	id->ack_timeout_set = listener->ack_timeout_set;
	return id;
}

static void drop_connection_locked(struct vb_cma_id *id)
{
	struct vb_cm_conn *conn = id->conn;
	struct vb_cm_out out;

	if (!conn)
		return;
	id->conn = NULL;
	conn->user = NULL;
	vb_cm_destroy(vb_cma_table_locked(), conn, vb_now_ns(), &out);
	vb_cma_agent_run_locked(&out);
}

static void free_id(struct vb_cma_id *id)
{
	free(id->pub.route.path_rec);
	free(id->child_qp_attr);
	free(id->connect_data);
	rdma_freeaddrinfo(id->found);
	free(id);
}

void vb_cma_id_discard_locked(struct vb_cma_id *id)
{
	vb_cma_event_drop_locked(id);
	drop_connection_locked(id);
	vb_list_del(&id->node);
	free_id(id);
}

/* Queued requests go with their listener, which tells their senders. */
static void quiet_locked(struct vb_cma_id *id)
{
	id->state = VB_CMA_CLOSED;
	vb_cma_neighbour_forget_locked(id);
	vb_cma_lookup_forget_locked(id);
	vb_cma_event_drop_locked(id);
	drop_connection_locked(id);
	vb_cma_event_wait_acked_locked(id);
	vb_cma_event_drop_locked(id); /* what another thread's events brought about meanwhile */
	vb_list_del(&id->node);
}

VB_EXPORT int rdma_destroy_id(struct rdma_cm_id *pub)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "id is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);

	vb_cma_release_event(id);
	vb_cma_lock();
	struct vb_cma_port *port = id->port;
	id->port = NULL;
	id->state = VB_CMA_CLOSED;
	vb_cma_listener_remove_locked(id);
	vb_cma_unlock();
	vb_cma_port_close(port); /* no request arrives any more */
	vb_cma_lock();
	quiet_locked(id);
	vb_cma_unlock();
	vb_cma_agent_hand_on();
	vb_cma_groups_leave(id);
	if (id->sync)
		vb_cma_channel_destroy(pub->channel);
	free_id(id);
	return 0;
}

static enum ibv_qp_type qp_type_of(enum rdma_port_space ps)
{
	return ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

VB_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **pub, void *context,
			     enum rdma_port_space ps)
{
	struct vb_cma_id *id;

	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub)
		return vb_cma_fail(EINVAL, "there is nowhere to put the id: the pointer is NULL");
	if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IPOIB && ps != RDMA_PS_IB)
		return vb_cma_fail(EINVAL, "port space 0x%x: RDMA_PS_TCP, _UDP, _IB and _IPOIB exist",
				   (unsigned)ps);
	int err = vb_cma_id_create(channel, context, ps, qp_type_of(ps), &id);
	if (err)
		return vb_cma_fail(-err, "no id: %s", strerror(-err));
	*pub = &id->pub;
	return 0;
}

void vb_cma_id_set_src_locked(struct vb_cma_id *id, const struct vb_cma_addr *addr)
{
	id->src = *addr;
	if (!id->src.port_space)
		id->src.port_space = (uint16_t)id->pub.ps;
	vb_cma_addr_format(&id->src, &id->pub.route.addr.src_storage);
}

void vb_cma_id_set_dst_locked(struct vb_cma_id *id, const struct vb_cma_addr *addr)
{
	id->dst = *addr;
	if (!id->dst.port_space)
		id->dst.port_space = (uint16_t)id->pub.ps;
	vb_cma_addr_format(&id->dst, &id->pub.route.addr.dst_storage);
}

static void set_gid(union ibv_gid *gid, const struct vb_cma_addr *addr)
{
	if (addr->family && !vb_cma_addr_is_any(addr))
		memcpy(gid->raw, &addr->ip, sizeof(gid->raw));
}

static void attach_locked(struct vb_cma_id *id, const struct vb_cma_source *source)
{
	struct rdma_ib_addr *ib = &id->pub.route.addr.addr.ibaddr;

	id->device = source->device;
	id->gid_index = source->gid_index;
	id->ifindex = source->ifindex;
	id->mtu = source->mtu;
	id->pub.verbs = source->device->verbs;
	id->pub.port_num = source->port_num;
	if (!id->pub.pd)
		id->pub.pd = source->device->pd;
	set_gid(&ib->sgid, &id->src);
	set_gid(&ib->dgid, &id->dst);
	ib->pkey = htobe16(VB_CMA_PKEY);
}

int vb_cma_id_attach(struct vb_cma_id *id)
{
	struct vb_cma_source source;
	int err = vb_cma_device_find(&id->src, &source);

	if (err)
		return err;
	vb_cma_lock();
	attach_locked(id, &source);
	vb_cma_unlock();
	return 0;
}

static void fill_path(const struct vb_cma_id *id, struct ibv_sa_path_rec *path)
{
	memset(path, 0, sizeof(*path));
	set_gid(&path->sgid, &id->src);
	set_gid(&path->dgid, &id->dst);
	path->hop_limit = VB_CMA_HOP_LIMIT;
	path->traffic_class = id->tos;
	path->reversible = 1;
	path->numb_path = 1;
	path->pkey = htobe16(VB_CMA_PKEY);
	path->mtu_selector = path->rate_selector = path->packet_life_time_selector = 2; /* exactly */
	path->mtu = (uint8_t)id->mtu;
	path->rate = IBV_RATE_MAX;
	path->packet_life_time = VB_CMA_PACKET_LIFETIME;
}

int vb_cma_id_fill_path(struct vb_cma_id *id)
{
	struct rdma_route *route = &id->pub.route;

	if (!route->path_rec)
		route->path_rec = calloc(1, sizeof(*route->path_rec));
	if (!route->path_rec)
		return -ENOMEM;
	fill_path(id, route->path_rec);
	route->num_paths = 1;
	return 0;
}

VB_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id ? htobe16(vb_cma_id_of(id)->src.port) : 0;
}

VB_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id ? htobe16(vb_cma_id_of(id)->dst.port) : 0;
}

/* A program that ends without a word: its peers hear of it at once. */
__attribute__((destructor)) static void say_goodbye(void)
{
	struct vb_cma_id *id;

	if (!vb_cma_lock_at_exit())
		return;
	vb_list_for_each(id, &ids, node)
		drop_connection_locked(id);
	vb_cma_agent_take_leave_locked();
	vb_cma_unlock();
}
