/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Making and freeing ids. An id owns the events queued for it, and a queued CONNECT_REQUEST owns the id that
 * it brings.
 */
#include "rdmacm/id/id.h"

#include <stdlib.h>
#include <string.h>

#include "rdmacm/agent/agent.h"

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

struct vb_list *vb_cma_ids_locked(void)
{
	return &ids;
}

void vb_cma_id_forget(void)
{
	struct vb_cma_id *id;

	vb_list_for_each(id, &ids, node) {
		id->conn = NULL;
		id->port = NULL;
		id->reservation = NULL;
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
			vb_cma_channel_free(channel);
		return -ENOMEM;
	}
	*out = id;
	return 0;
}

struct vb_cma_id *vb_cma_id_create_child_locked(struct vb_cma_id *listener)
{
	struct vb_cma_event *request = vb_cma_event_create(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct vb_cma_id *id = request ? new_locked(listener->pub.channel, listener->pub.context,
						    listener->pub.ps, listener->pub.qp_type) :
					 NULL;

	if (!id) {
		free(request);
		return NULL;
	}
	request->pub.id = &id->pub;
	request->pub.listen_id = &listener->pub;
	id->request = request;
	id->listener = listener;
	id->state = VB_CMA_REQUESTED;
	id->tos = listener->tos;
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

void vb_cma_id_free(struct vb_cma_id *id)
{
	free(id->pub.route.path_rec);
	free(id->child_qp_attr);
	free(id->connect_data);
	free(id->request);
	rdma_freeaddrinfo(id->found);
	free(id);
}

void vb_cma_event_discard_locked(struct vb_cma_event *event)
{
	if (vb_cma_event_brings_id(event)) {
		event->owner->backlog_left++;
		vb_cma_id_discard_locked(vb_cma_id_of(event->pub.id));
	}
	free(event);
}

static void drop_events_locked(struct vb_cma_id *id)
{
	struct vb_cma_event *event;

	while ((event = vb_cma_event_pull_locked(id)))
		vb_cma_event_discard_locked(event);
	if (id->pub.channel)
		vb_cma_channel_settle_locked(id->pub.channel);
}

void vb_cma_id_discard_locked(struct vb_cma_id *id)
{
	drop_events_locked(id);
	drop_connection_locked(id);
	vb_list_del(&id->node);
	vb_cma_id_free(id);
}

void vb_cma_id_quiesce_locked(struct vb_cma_id *id)
{
	drop_events_locked(id);
	drop_connection_locked(id);
	vb_cma_event_wait_acked_locked(id);
	drop_events_locked(id); /* those that came meanwhile */
	vb_list_del(&id->node);
}

/* If a program ends with open connections, its peers get their DREQs at once. */
__attribute__((destructor)) static void end_connections(void)
{
	struct vb_cma_id *id;

	if (!vb_cma_lock_at_exit())
		return;
	vb_cma_channels_end_locked();
	vb_list_for_each(id, &ids, node)
		drop_connection_locked(id);
	vb_cma_agent_finish_locked();
	vb_cma_unlock();
}
