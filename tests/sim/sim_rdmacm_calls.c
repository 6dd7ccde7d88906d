/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs of sim_rdmacm call, and what happens to their host. */
#include "sim_rdmacm.h"

#include "rdmacm/id/id.h"

/* ---- ids ---- */

struct id *id_find(const struct rdma_cm_id *cm)
{
	for (unsigned i = 0; i < MAX_IDS; i++)
		if (world.ids[i].cm == cm)
			return &world.ids[i];
	return NULL;
}

void id_destroy(struct id *id)
{
	if (!id->cm)
		return;
	tell("id %u is destroyed", id_number(id));
	rdma_destroy_qp(id->cm);
	must(rdma_destroy_id(id->cm) == 0);
	if (id->tag)
		tag_leave(id->tag);
	*id = (struct id){ 0 };
}

static struct sockaddr_in other_host(void)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons(PORT),
				     .sin_addr.s_addr = htonl(FAKE_OTHER_ADDRESS) };
}

static struct rdma_conn_param parameters(uint32_t *tag)
{
	static uint32_t next_qpn;

	return (struct rdma_conn_param){ .qp_num = 0x1000 + next_qpn++ % 0xff0000,
					 .retry_count = 7,
					 .rnr_retry_count = 7,
					 .private_data = tag,
					 .private_data_len = sizeof(*tag) };
}

void id_begin_to_resolve(const struct id *id)
{
	struct sockaddr_in to = other_host();

	must(rdma_resolve_addr(id->cm, NULL, (struct sockaddr *)&to, 1000) == 0);
}

void dice_for_qps(void) { fake_modify_result = percent(world.refusals) ? EINVAL : 0; }

void id_give_qp(struct id *id)
{
	struct ibv_cq cq = { .context = id->cm->verbs };
	struct ibv_qp_init_attr attr = { .send_cq = &cq, .recv_cq = &cq, .qp_type = id->cm->qp_type };

	if (!id->wants_qp || id->cm->qp)
		return;
	int result = rdma_create_qp(id->cm, NULL, &attr);
	tell("id %u: queue pair %s", id_number(id), result ? "refused" : "made");
}

static bool is_served(bool datagram)
{
	for (unsigned i = 0; i < MAX_IDS; i++)
		if (world.ids[i].kind == LISTENER && world.ids[i].datagram == datagram)
			return true;
	return false;
}

void id_create(const struct step *s)
{
	struct id *id = id_find(NULL);
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (!id)
		return;
	bool listens = (s->how & 2 && s->how < 48) || !is_served(s->how & 1);
	*id = (struct id){ .datagram = s->how & 1,
			   .kind = listens ? LISTENER : ACTIVE,
			   .wants_qp = s->how & 4 };
	must(rdma_create_id(world.channels[s->more % CHANNELS], &id->cm, NULL,
			    id->datagram ? RDMA_PS_UDP : RDMA_PS_TCP) == 0);
	tell("id %u is %s%s", id_number(id), id->datagram ? "a datagram " : "",
	     id->kind == LISTENER ? "listener" : "client");
	if (id->kind == ACTIVE) {
		id_begin_to_resolve(id);
	} else if (rdma_bind_addr(id->cm, (struct sockaddr *)&any) || rdma_listen(id->cm, s->more >> 5)) {
		id_destroy(id);
	}
}

static void note(struct id *id, const char *call, int result, bool *done)
{
	tell("id %u: %s %s", id_number(id), call, result ? strerror(errno) : "ok");
	*done |= result == 0;
}

static void connect_id(struct id *id)
{
	uint32_t tag = world.next_tag + 1;
	struct rdma_conn_param param = parameters(&tag);
	bool was = id->connected;

	note(id, "connect", rdma_connect(id->cm, &param), &id->connected);
	if (id->connected && !was)
		id->tag = world.next_tag = tag;
}

void id_accept(struct id *id)
{
	struct rdma_conn_param param = parameters(&id->tag);

	dice_for_qps();
	note(id, "accept", rdma_accept(id->cm, &param), &id->accepted);
	id->answered |= id->accepted;
}

void id_establish(struct id *id)
{
	note(id, "establish", rdma_establish(id->cm), &id->established);
}

/* Before a connection stands, and with datagrams, it flushes the queue pair and ends nothing. */
void id_disconnect(struct id *id)
{
	enum vb_cma_state state = vb_cma_id_state(vb_cma_id_of(id->cm));
	bool ends_nothing = id->datagram || state == VB_CMA_CONNECTING || state == VB_CMA_REQUESTED;
	bool done = false;

	note(id, "disconnect", rdma_disconnect(id->cm), ends_nothing ? &done : &id->disconnected);
}

/* A rejection is said once: if it is lost, and came after an acceptance, the peer may never know. */
static void reject(struct id *id, bool for_options)
{
	note(id, "reject", for_options ? rdma_reject_ece(id->cm, NULL, 0) : rdma_reject(id->cm, "no", 2),
	     &id->rejected);
	id->answered |= id->rejected;
	if (id->rejected && (id->accepted || id->kind == ACTIVE))
		tag_leave(id->tag);
}

/* It says that data came, which is not true: the peer may never hear of its acceptance. */
static void notify(struct id *id)
{
	bool done = false;

	note(id, "notify", rdma_notify(id->cm, IBV_EVENT_COMM_EST), &done);
	if (done)
		tag_leave(id->tag);
}

/* The id's process is gone, with all that it had to say; what is to be said to it is lost. */
static void die(struct id *id)
{
	struct vb_cm_conn *conn = vb_cma_id_of(id->cm)->conn;

	if (id->kind == LISTENER || !conn || world.num_dead == MAX_DEAD)
		return;
	tell("id %u dies", id_number(id));
	world.dead_comm_ids[world.num_dead++] = conn->local_comm_id;
	id->dead = true;
	tag_leave(id->tag);
}

/* What a program would do with the id as it is. */
static void go_on(struct id *id)
{
	if (id->kind == ACTIVE && !id->connected)
		connect_id(id);
	else if (id->kind == PASSIVE && !id->answered)
		id_accept(id);
	else if ((id->seen & BIT(CONNECT_RESPONSE)) && !id->established)
		id_establish(id);
	else if (id->kind != LISTENER && !id->disconnected)
		id_disconnect(id);
}

static void write_event(struct id *id)
{
	must(rdma_write_cm_event(id->cm, RDMA_CM_EVENT_USER, 0, id->news.user_written++) == 0);
}

static struct sockaddr_in group_address(const struct id *id, const struct group *g)
{
	uint32_t n = (uint32_t)(g - id->groups);

	/* 239.0.0.1 and so on */
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef000001 + n) };
}

static void join(struct id *id, struct group *g, bool to_send_only)
{
	struct sockaddr_in to = group_address(id, g);
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
							     RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
						.join_flags = to_send_only ?
								      RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER :
								      RDMA_MC_JOIN_FLAG_FULLMEMBER,
						.addr = (struct sockaddr *)&to };
	bool may = id->datagram && id->cm->verbs;

	if (g->number)
		return;
	int result = rdma_join_multicast_ex(id->cm, &attr, (void *)(uintptr_t)(world.last_group + 1));
	must(result == (may ? 0 : -1));
	if (may)
		*g = (struct group){ .number = ++world.last_group };
	tell("id %u: join %s", id_number(id), may ? "ok" : "refused");
}

/* The news of having joined does not come any more; that the group is lost does, if it was. */
static void leave_group(struct id *id, struct group *g)
{
	struct sockaddr_in to = group_address(id, g);

	must(rdma_leave_multicast(id->cm, (struct sockaddr *)&to) == (g->number ? 0 : -1));
	tell("id %u: leave %s", id_number(id), g->number ? "ok" : "refused");
	*g = (struct group){ 0 };
}

/* Calls that come too late. */
static void misuse(const struct id *id)
{
	struct sockaddr_in to = other_host();

	if (id->kind == ACTIVE && !(id->seen & BIT(ROUTE_RESOLVED)))
		return;
	must(rdma_bind_addr(id->cm, (struct sockaddr *)&to) == -1);
	must(rdma_resolve_addr(id->cm, NULL, (struct sockaddr *)&to, 1000) == -1);
	must(rdma_resolve_route(id->cm, 1000) == -1);
	must(rdma_listen(id->cm, 1) == -1);
}

void id_call(struct id *id, const struct step *s)
{
	uint8_t tos = s->more;

	if (!id->cm || id->dead)
		return;
	if (s->more & 3) {
		go_on(id);
		return;
	}
	switch (s->how % 17) {
	case 0:
	case 1:
	case 2: connect_id(id); break;
	case 3:
	case 4:
	case 5: id_accept(id); break;
	case 6: reject(id, s->more & 4); break;
	case 7: id_establish(id); break;
	case 8: id_disconnect(id); break;
	case 9: notify(id); break;
	case 10: must(rdma_migrate_id(id->cm, world.channels[s->more % CHANNELS]) == 0); break;
	case 11: die(id); break;
	case 12: write_event(id); break;
	case 13: join(id, &id->groups[s->more / 4 % GROUPS], s->more & 128); break;
	case 14: leave_group(id, &id->groups[s->more / 4 % GROUPS]); break;
	case 15: must(rdma_set_option(id->cm, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1) == 0); break;
	case 16: misuse(id); break;
	}
}

/* ---- the host ---- */

static unsigned groups_of(const struct id *id)
{
	unsigned count = 0;

	for (unsigned i = 0; i < GROUPS; i++)
		count += id->groups[i].number != 0;
	return count;
}

/* All ids that have a device are told, but for those of requests that nobody has answered. */
static bool is_told_of_devices(const struct id *id)
{
	return id->cm && id->cm->verbs && (id->kind != PASSIVE || id->answered);
}

static void lose_interface(void)
{
	for (unsigned i = 0; i < MAX_IDS; i++) {
		struct id *id = &world.ids[i];
		if (!is_told_of_devices(id))
			continue;
		id->news.removals++;
		id->news.lost_groups += groups_of(id);
	}
	fake.has_no_ethernet = true;
}

static void change_interface(void)
{
	for (unsigned i = 0; i < MAX_IDS; i++)
		if (is_told_of_devices(&world.ids[i]))
			world.ids[i].news.changes++;
	fake.mac++;
}

void host_change(const struct step *s)
{
	switch (s->how % 12) {
	case 0: fake.has_silent_neighbours = true; break;
	case 1:
	case 2: fake.has_silent_neighbours = false; break;
	case 3:
		if (!fake.has_no_ethernet)
			lose_interface();
		break;
	case 4:
	case 5: fake.has_no_ethernet = false; break;
	case 6:
		if (!fake.has_no_ethernet)
			change_interface();
		break;
	default:
		network_pass_time((uint64_t)s->how * MS / 4);
		return;
	}
	tell("the host: %s neighbours, %s interface %u", fake.has_silent_neighbours ? "silent" : "talking",
	     fake.has_no_ethernet ? "no" : "an", fake.mac);
	fake_interfaces_changed();
}
