/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The events of sim_rdmacm: that each has a reason, comes once, and in an order that makes sense; and what
 * follows from it.
 */
#include "sim_rdmacm.h"

#include <sys/mman.h>

/* Over all seeds, each of which is a process: how often a type of event came. */
static unsigned *counter;

void events_begin_tally(void)
{
	counter = mmap(NULL, EVENT_TYPES * sizeof(*counter), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(counter != MAP_FAILED);
}

static void take_child(struct id *listener, struct rdma_cm_id *cm, const struct rdma_cm_event *event)
{
	struct id *id = id_find(NULL);
	const void *data = listener->datagram ? event->param.ud.private_data : event->param.conn.private_data;
	uint32_t tag;

	must(data);
	memcpy(&tag, data, sizeof(tag));
	if (!id) {
		must(rdma_destroy_id(cm) == 0 || !"a request's id is refused");
		tag_leave(tag);
		return;
	}
	*id = (struct id){
		.cm = cm, .kind = PASSIVE, .datagram = listener->datagram, .tag = tag, .wants_qp = tag & 1
	};
	id_give_qp(id);
	tell("id %u is the server of connection %u", id_number(id), tag);
}

static struct group *find_group(struct id *id, const void *context)
{
	for (unsigned i = 0; i < GROUPS; i++)
		if (id->groups[i].number == (uintptr_t)context)
			return &id->groups[i];
	return NULL;
}

static void check_joined(struct id *id, const struct rdma_cm_event *event)
{
	struct group *g = find_group(id, event->param.ud.private_data);

	must(g && g->number && !g->is_told);
	g->is_told = true;
}

/* What is not of the connection, and comes as often as there is a reason. False: it is of the connection. */
static bool is_news(struct id *id, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_USER:
		must(event->param.arg == id->news.user_seen++ && id->news.user_seen <= id->news.user_written);
		return true;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		must(id->news.removals-- > 0);
		return true;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		must(id->news.changes-- > 0);
		return true;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		check_joined(id, event);
		return true;
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		must(event->status == -ENODEV && id->news.lost_groups-- > 0);
		return true;
	default:
		return false;
	}
}

/* A response that is for a queue pair, and is taken when the connection has ended again, is not told. */
static bool has_answer(const struct id *id)
{
	return id->cm->qp ? id->connected : (id->seen & BIT(CONNECT_RESPONSE)) != 0;
}

static void check_event(const struct id *id, enum rdma_cm_event_type type)
{
	unsigned bit = 1u << type;

	must(!(id->seen & bit));
	must(!(bit & ENDS) || !(id->seen & ENDS));
	must(id->kind != LISTENER);
	switch (type) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		must(id->kind == ACTIVE && !(id->seen & BIT(ADDR_RESOLVED)));
		return;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		must(id->kind == ACTIVE && (id->seen & BIT(ADDR_RESOLVED)));
		return;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		must(id->connected && !id->datagram && !id->cm->qp && !(id->seen & ENDS));
		return;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		must(id->connected && !id->datagram && id->cm->qp);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		must(id->kind == ACTIVE ? (id->datagram || id->cm->qp) && id->connected : id->accepted);
		must(!(id->seen & ENDS));
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
		must(!id->datagram && (id->kind == ACTIVE ? has_answer(id) : id->accepted));
		return;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
		must(id->kind == ACTIVE ? id->connected : !id->datagram);
		return;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		must(id->seen & (BIT(DISCONNECTED) | BIT(CONNECT_ERROR)));
		return;
	default:
		must(!"an event that nothing led to");
	}
}

/* Both programs see to their duties at once, if dutiful: they resolve, answer, establish and disconnect. */
static void follow(struct id *id, enum rdma_cm_event_type type, bool dutiful)
{
	if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
		id_give_qp(id);
		must(rdma_resolve_route(id->cm, 1000) == 0);
	}
	if (type == RDMA_CM_EVENT_ADDR_ERROR) { /* as often as it takes */
		id->seen &= ~BIT(ADDR_ERROR);
		id_begin_to_resolve(id);
	}
	if (type == RDMA_CM_EVENT_CONNECT_ERROR) /* the rejection may be lost, and the peer has accepted */
		tag_leave(id->tag);
	if (!dutiful || id->dead)
		return;
	if (type == RDMA_CM_EVENT_CONNECT_RESPONSE)
		id_establish(id);
	if (type == RDMA_CM_EVENT_DISCONNECTED)
		id_disconnect(id);
}

bool events_take(unsigned channel, bool dutiful)
{
	struct rdma_cm_event *event;

	dice_for_qps();
	if (rdma_get_cm_event(world.channels[channel], &event))
		return false;
	enum rdma_cm_event_type type = event->event;
	bool brings = type == RDMA_CM_EVENT_CONNECT_REQUEST;
	struct id *id = id_find(brings ? event->listen_id : event->id);
	must(id && id->cm->channel == world.channels[channel]);
	must((unsigned)type < EVENT_TYPES);
	counter[type]++;
	tell("id %u: %s, %d", id_number(id), rdma_event_str(type), event->status);
	bool is_step = !brings && !is_news(id, event);
	if (brings) {
		must(id->kind == LISTENER && !id_find(event->id));
		take_child(id, event->id, event);
	} else if (is_step) {
		check_event(id, type);
		id->seen |= 1u << type;
	}
	must(rdma_ack_cm_event(event) == 0);
	if (is_step)
		follow(id, type, dutiful);
	return true;
}

/* ---- all seeds ---- */

bool events_have_all_come(void)
{
	bool all = true;

	for (int type = 0; type < EVENT_TYPES; type++) {
		bool never = type == RDMA_CM_EVENT_ROUTE_ERROR || type == RDMA_CM_EVENT_ADDRINFO_RESOLVED ||
			     type == RDMA_CM_EVENT_ADDRINFO_ERROR;
		printf("# %8u %s\n", counter[type], rdma_event_str((enum rdma_cm_event_type)type));
		all = all && (never ? !counter[type] : counter[type] > 0);
	}
	return all;
}
