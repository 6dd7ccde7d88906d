/* SPDX-License-Identifier: BSD-2-Clause */
/* Interfaces that come, change and go while ids are on their devices, in a network of the test's own. */
#include "cm.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#define ADDRESS    "10.9.0.1"
#define LATER      "10.9.0.2"
#define LATER_V6   "fd09::77"
#define LINK_LOCAL NETNS_LINK_LOCAL

static struct rdma_cm_id *bound_to(struct rdma_event_channel *ch, const char *ip)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address a = address(ip, 0);

	assert_ok(rdma_bind_addr(id, sockaddr(&a)));
	return id;
}

static void expect_for(struct rdma_event_channel *ch, enum rdma_cm_event_type type,
		       const struct rdma_cm_id *id)
{
	struct rdma_cm_event *event = expect(ch, type);

	assert_int_equal(event->status, 0);
	assert_ptr_equal(event->id, id);
	assert_ok(rdma_ack_cm_event(event));
}

/* Each id has a channel, so that the order among them does not matter. */
static void interface__changes_and_goes(void **state)
{
	struct pair p = connected_pair(ADDRESS), other = connected_pair("127.0.0.1");
	struct rdma_event_channel *ch = new_channel(), *any_ch = new_channel();
	struct rdma_cm_id *bound = bound_to(ch, ADDRESS),
			  *anywhere = new_listener(any_ch, "0.0.0.0", RDMA_PS_TCP, 1);

	must_run("ip link set wire address 02:00:00:00:09:09");
	expect_for(p.client_ch, RDMA_CM_EVENT_ADDR_CHANGE, p.client);
	expect_for(ch, RDMA_CM_EVENT_ADDR_CHANGE, bound);
	expect_acked(p.server_ch, RDMA_CM_EVENT_ADDR_CHANGE, 0); /* the listener's */
	expect_acked(p.server_ch, RDMA_CM_EVENT_ADDR_CHANGE, 0); /* and the server's */

	must_run("ip link del wire");
	expect_for(p.client_ch, RDMA_CM_EVENT_DEVICE_REMOVAL, p.client);
	expect_for(ch, RDMA_CM_EVENT_DEVICE_REMOVAL, bound);
	expect_acked(p.server_ch, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	expect_acked(p.server_ch, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);

	assert_false(readable(other.client_ch->fd, 0)); /* who is elsewhere hears nothing */
	assert_false(readable(other.server_ch->fd, 0));
	assert_false(readable(any_ch->fd, 0));
	assert_ok(rdma_destroy_id(bound));
	assert_ok(rdma_destroy_id(anywhere));
	destroy_pair(&p);
	destroy_pair(&other);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(any_ch);
}

static void join_group(struct rdma_cm_id *id, const char *group, enum rdma_cm_event_type outcome, int status,
		       void *context)
{
	struct address a = address(group, 0);

	assert_ok(rdma_join_multicast(id, sockaddr(&a), context));
	struct rdma_cm_event *event = expect(id->channel, outcome);
	assert_int_equal(event->status, status);
	assert_ptr_equal(event->param.ud.private_data, context);
	assert_ok(rdma_ack_cm_event(event));
}

/* The kernel has a limit; what it refuses is an event, and no member. */
static void multicast__more_groups_than_allowed(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_UDP);
	struct address a = address(ADDRESS, 0), refused = address("239.1.1.2", 0);

	netns_write("/proc/sys/net/ipv4/igmp_max_memberships", "1");
	assert_ok(rdma_bind_addr(id, sockaddr(&a)));
	join_group(id, "239.1.1.1", RDMA_CM_EVENT_MULTICAST_JOIN, 0, id);
	join_group(id, "239.1.1.2", RDMA_CM_EVENT_MULTICAST_ERROR, -ENOBUFS, &refused);
	netns_write("/proc/sys/net/ipv4/igmp_max_memberships", "20");
	assert_ok(rdma_leave_multicast(id, sockaddr(&refused))); /* the id may forget it */
	join_group(id, "239.1.1.2", RDMA_CM_EVENT_MULTICAST_JOIN, 0, &refused);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* A member with one receive. */
struct member {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	uint8_t buf[64];
};

static void enter(struct member *m, struct rdma_event_channel *ch, const char *ip, const char *group)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct address a = address(ip, 0);

	m->id = new_id(ch, RDMA_PS_UDP);
	assert_ok(rdma_bind_addr(m->id, sockaddr(&a)));
	assert_ok(rdma_create_qp(m->id, NULL, &attr));
	m->mr = rdma_reg_msgs(m->id, m->buf, sizeof(m->buf));
	assert_non_null(m->mr);
	assert_ok(rdma_post_recv(m->id, m, m->buf, sizeof(m->buf), m->mr));
	join_group(m->id, group, RDMA_CM_EVENT_MULTICAST_JOIN, 0, m);
}

static void quit(struct member *m, const char *group)
{
	struct address a = address(group, 0);

	assert_ok(rdma_leave_multicast(m->id, sockaddr(&a)));
	rdma_destroy_qp(m->id);
	assert_ok(rdma_dereg_mr(m->mr));
	assert_ok(rdma_destroy_id(m->id));
}

/* A row of the GID table with an address of this kind. */
static uint8_t gid_row(struct ibv_context *ctx, bool v4)
{
	union ibv_gid gid;

	for (int i = 0; i < 8; i++)
		if (!ibv_query_gid(ctx, 1, i, &gid) && (v4 ? gid.raw[10] == 0xff : gid.raw[0] != 0))
			return (uint8_t)i;
	fail_msg("there is none");
	return 0;
}

/* By the device of the sender's address, to an IPv4 group. */
static void send_to_group(struct member *from, uint8_t sgid_index, const char *group)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = { .hop_limit = 1, .sgid_index = sgid_index }
	};
	struct address a = address(group, 0);
	union ibv_gid *dgid = &attr.grh.dgid;
	struct ibv_wc wc;

	dgid->raw[10] = dgid->raw[11] = 0xff;
	memcpy(dgid->raw + 12, &((struct sockaddr_in *)&a.sa)->sin_addr, 4);
	struct ibv_ah *ah = ibv_create_ah(from->id->pd, &attr);
	assert_non_null(ah);
	assert_ok(rdma_post_ud_send(from->id, NULL, NULL, 0, NULL, IBV_SEND_SIGNALED, ah, 0xffffff));
	assert_int_equal(rdma_get_send_comp(from->id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_ok(ibv_destroy_ah(ah));
}

/*
 * A group is one on each interface: what comes in by one is not for the members on another. Members have a
 * packet in the order in which they came.
 */
static void multicast__is_of_one_interface(void **state)
{
	static const char group[] = "239.1.1.9";
	static const char *const places[] = { ADDRESS, "127.0.0.1" };
	struct rdma_event_channel *ch = new_channel();
	struct member senders[2], members[2];
	struct ibv_wc wc;

	for (int i = 0; i < 2; i++) {
		enter(&senders[i], ch, places[i], group);
		enter(&members[i], ch, places[i], group);
	}
	for (int i = 0; i < 2; i++) {
		send_to_group(&senders[!i], gid_row(senders[!i].id->verbs, true), group);
		assert_int_equal(rdma_get_recv_comp(members[!i].id, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(rdma_get_recv_comp(senders[!i].id, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(ibv_poll_cq(members[i].id->recv_cq, 1, &wc), 0);
		assert_int_equal(ibv_poll_cq(senders[i].id->recv_cq, 1, &wc), 0);
	}
	for (int i = 0; i < 2; i++) {
		quit(&senders[i], group);
		quit(&members[i], group);
	}
	rdma_destroy_event_channel(ch);
}

/* Whatever sgid_index says: an IPv4 packet is from an IPv4 address of the port. */
static void multicast__is_from_an_address_of_its_kind(void **state)
{
	static const char group[] = "239.1.1.9";
	struct rdma_event_channel *ch = new_channel();
	struct member sender, member;
	struct in_addr source;
	struct ibv_wc wc;

	enter(&sender, ch, ADDRESS, group);
	enter(&member, ch, ADDRESS, group);
	send_to_group(&sender, gid_row(sender.id->verbs, false), group);
	assert_int_equal(rdma_get_recv_comp(member.id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(inet_pton(AF_INET, ADDRESS, &source), 1);
	assert_memory_equal(member.buf + 32, &source, 4); /* in the IPv4 header, which begins at 20 */
	quit(&sender, group);
	quit(&member, group);
	rdma_destroy_event_channel(ch);
}

/* First the groups, one by one, then the device. */
static void interface__takes_its_groups_along(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_UDP);
	struct address a = address(ADDRESS, 0), left = address("239.1.1.2", 0);
	const char *groups[] = { "239.1.1.1", "239.1.1.3" };
	char contexts[2];

	assert_ok(rdma_bind_addr(id, sockaddr(&a)));
	join_group(id, "239.1.1.2", RDMA_CM_EVENT_MULTICAST_JOIN, 0, NULL);
	assert_ok(rdma_leave_multicast(id, sockaddr(&left)));
	for (unsigned i = 0; i < 2; i++)
		join_group(id, groups[i], RDMA_CM_EVENT_MULTICAST_JOIN, 0, &contexts[i]);
	must_run("ip link del wire");
	for (unsigned i = 0; i < 2; i++) {
		struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_MULTICAST_ERROR);
		assert_int_equal(event->status, -ENODEV);
		assert_ptr_equal(event->id, id);
		assert_ptr_equal(event->param.ud.private_data, &contexts[i]);
		assert_ok(rdma_ack_cm_event(event));
	}
	expect_for(ch, RDMA_CM_EVENT_DEVICE_REMOVAL, id);
	for (unsigned i = 0; i < 2; i++) {
		struct address g = address(groups[i], 0);
		assert_ok(rdma_leave_multicast(id, sockaddr(&g)));
	}
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
	assert_true(netns_add_wire());
}

/* ---- link-local addresses ---- */

static int add_link_local(void **state)
{
	(void)state;
	return netns_add_link_local("wire") ? 0 : -1;
}

static struct rdma_addrinfo *link_local(const char *node, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;

	assert_int_equal(rdma_getaddrinfo(node, "7471", &hints, &found), 0);
	const struct sockaddr_in6 *sin6 =
		(const void *)(flags & RAI_PASSIVE ? found->ai_src_addr : found->ai_dst_addr);
	assert_int_equal(sin6->sin6_family, AF_INET6);
	assert_int_equal(sin6->sin6_scope_id, if_nametoindex("wire"));
	assert_int_equal(ntohs(sin6->sin6_port), 7471);
	return found;
}

static void expect_scope(const struct sockaddr *sa)
{
	assert_int_equal(((const struct sockaddr_in6 *)(const void *)sa)->sin6_scope_id,
			 if_nametoindex("wire"));
}

static void link_local__names_its_link(void **state)
{
	struct rdma_addrinfo *to = link_local(LINK_LOCAL "%wire", RAI_NUMERICHOST),
			     *on = link_local(LINK_LOCAL "%wire", RAI_PASSIVE), *bad;
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST };
	struct rdma_event_channel *ch = new_channel(), *server_ch = new_channel();
	struct rdma_cm_id *listener = new_id(server_ch, RDMA_PS_TCP), *client = new_id(ch, RDMA_PS_TCP);
	struct rdma_conn_param param = some_param(), answer = some_param();

	assert_int_not_equal(rdma_getaddrinfo(LINK_LOCAL "%nonsense", "7471", &hints, &bad), 0);
	assert_ok(rdma_bind_addr(listener, on->ai_src_addr));
	assert_ok(rdma_listen(listener, 1));
	expect_scope(rdma_get_local_addr(listener));
	assert_ok(rdma_resolve_addr(client, NULL, to->ai_dst_addr, 2000));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	expect_scope(rdma_get_local_addr(client));
	assert_ok(rdma_resolve_route(client, 2000));
	expect_acked(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	assert_ok(rdma_connect(client, &param));
	struct rdma_cm_event *event = expect(server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = event->id;
	expect_scope(rdma_get_local_addr(server));
	expect_scope(rdma_get_peer_addr(server));
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_accept(server, &answer));
	expect_acked(ch, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_establish(client));
	expect_acked(server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_ok(rdma_destroy_id(client));
	assert_ok(rdma_destroy_id(server));
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(server_ch);
	rdma_freeaddrinfo(to);
	rdma_freeaddrinfo(on);
}

/* Without a link of its own, a destination is on the source's; without both, nobody knows. */
static void link_local__takes_the_link_of_its_source(void **state)
{
	struct rdma_addrinfo *from = link_local(LINK_LOCAL "%wire", RAI_PASSIVE);
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address(LINK_LOCAL, 7471);

	assert_refused(EINVAL, rdma_resolve_addr(id, NULL, sockaddr(&to), 2000));
	assert_refused(EINVAL, rdma_bind_addr(id, sockaddr(&to)));
	((struct sockaddr_in6 *)(void *)from->ai_src_addr)->sin6_port = 0;
	assert_ok(rdma_resolve_addr(id, from->ai_src_addr, sockaddr(&to), 2000));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	expect_scope(rdma_get_peer_addr(id));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
	rdma_freeaddrinfo(from);
}

/*
 * As `ip -6 addr add LATER_V6/64 nodad dev wire` or `del` does, without a process that takes time to end.
 * type: RTM_NEWADDR or RTM_DELADDR.
 */
static void change_address(uint16_t type)
{
	struct {
		struct nlmsghdr head;
		struct ifaddrmsg address;
		struct rtattr attribute;
		struct in6_addr ip;
	} change = { .head = { sizeof(change), type, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 0, 0 },
		     .address = { AF_INET6, 64, IFA_F_NODAD, 0, if_nametoindex("wire") },
		     .attribute = { RTA_LENGTH(sizeof(change.ip)), IFA_LOCAL } };
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[256];
	} answer;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	assert_int_equal(inet_pton(AF_INET6, LATER_V6, &change.ip), 1);
	assert_int_equal(send(fd, &change, sizeof(change), 0), sizeof(change));
	assert_true(recv(fd, &answer, sizeof(answer), 0) > 0);
	assert_int_equal(answer.head.nlmsg_type, NLMSG_ERROR);
	assert_int_equal(answer.error.error, 0);
	close(fd);
}

/* The kernel tells of such an address only when it has been there for a while. */
static void address__can_be_bound_at_once(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct address a = address(LATER_V6, 0);

	for (int i = 0; i < 100; i++) {
		struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
		change_address(RTM_NEWADDR);
		assert_ok(rdma_bind_addr(id, sockaddr(&a)));
		assert_ok(rdma_destroy_id(id));
		change_address(RTM_DELADDR);
	}
	rdma_destroy_event_channel(ch);
}

/* A listener on a link-local address of each link, all on one port. */
static struct rdma_cm_id *listener_on_link(struct rdma_event_channel *ch, const char *link, uint16_t port)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address a = address(LINK_LOCAL, port);

	((struct sockaddr_in6 *)&a.sa)->sin6_scope_id = if_nametoindex(link);
	assert_ok(rdma_bind_addr(id, sockaddr(&a)));
	assert_ok(rdma_listen(id, 1));
	return id;
}

/* Two links may have one address, as those of an interface and of a VLAN on it mostly do. */
static void link_local__is_one_on_each_link(void **state)
{
	static const char *const links[] = { "wire", "other" };
	struct rdma_event_channel *ch = new_channel(), *server_ch = new_channel();
	struct rdma_cm_id *listeners[2];

	assert_true(netns_add_link_local("other"));
	for (int i = 0; i < 2; i++)
		listeners[i] = listener_on_link(server_ch, links[i], 7471);
	assert_ptr_not_equal(listeners[0]->verbs, listeners[1]->verbs);
	for (int i = 0; i < 2; i++) {
		struct rdma_conn_param param = some_param();
		struct address to = address(LINK_LOCAL, 7471);
		struct rdma_cm_id *client = new_id(ch, RDMA_PS_TCP);
		((struct sockaddr_in6 *)&to.sa)->sin6_scope_id = if_nametoindex(links[i]);
		resolve(client, to);
		assert_ptr_equal(client->verbs, listeners[i]->verbs);
		assert_ok(rdma_connect(client, &param));
		struct rdma_cm_event *event = expect(server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *server = event->id;
		assert_ptr_equal(event->listen_id, listeners[i]);
		assert_ptr_equal(server->verbs, listeners[i]->verbs);
		assert_ok(rdma_ack_cm_event(event));
		assert_ok(rdma_destroy_id(server));
		assert_ok(rdma_destroy_id(client));
	}
	for (int i = 0; i < 2; i++)
		assert_ok(rdma_destroy_id(listeners[i]));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(server_ch);
	must_run("ip -6 addr del " LINK_LOCAL "/64 dev other");
}

/* Of the same name as the one that went; its device is a new one. */
static void interface__comes_again(void **state)
{
	assert_true(netns_add_wire());
	struct pair p = connected_pair(ADDRESS);
	destroy_pair(&p);
}

/* A listener on all addresses is on those too that come later. */
static void wildcard__has_later_addresses(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(ch, "0.0.0.0", RDMA_PS_TCP, 1);
	struct rdma_conn_param param = some_param();

	must_run("ip addr add " LATER "/24 dev wire");
	struct rdma_event_channel *client_ch = new_channel();
	struct rdma_cm_id *client = new_resolved(client_ch, LATER, rdma_get_src_port(listener), RDMA_PS_TCP);
	assert_ok(rdma_connect(client, &param));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_non_null(server->verbs);
	assert_ok(rdma_destroy_id(server));
	assert_ok(rdma_destroy_id(client));
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(client_ch);
}

static bool has_gid(struct ibv_context *device, const char *ip)
{
	union ibv_gid wanted = { .raw = { [10] = 0xff, 0xff } }, gid;

	assert_int_equal(inet_pton(AF_INET, ip, wanted.raw + 12), 1);
	for (int ms = 0; ms < WAIT_MS; ms++, usleep(1000))
		for (int i = 0; !ibv_query_gid(device, 1, i, &gid); i++)
			if (!memcmp(&gid, &wanted, sizeof(gid)))
				return true;
	return false;
}

/* Each is a GID of the device, and one that ids can have. */
static void address__of_seventy(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	char ip[INET_ADDRSTRLEN];

	must_run("for i in $(seq 70); do ip addr add 10.9.1.$i/32 dev wire || exit 1; done");
	for (int i = 1; i <= 70; i++) {
		snprintf(ip, sizeof(ip), "10.9.1.%d", i);
		struct rdma_cm_id *id = bound_to(ch, ip);
		assert_non_null(id->verbs);
		assert_true(has_gid(id->verbs, ip));
		assert_ok(rdma_destroy_id(id));
	}
	struct pair p = connected_pair(ip);
	destroy_pair(&p);
	rdma_destroy_event_channel(ch);
	must_run("for i in $(seq 70); do ip addr del 10.9.1.$i/32 dev wire || exit 1; done");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(interface__changes_and_goes),
		cmocka_unit_test(interface__comes_again),
		cmocka_unit_test(wildcard__has_later_addresses),
		cmocka_unit_test(address__of_seventy),
		cmocka_unit_test(multicast__more_groups_than_allowed),
		cmocka_unit_test(multicast__is_of_one_interface),
		cmocka_unit_test(multicast__is_from_an_address_of_its_kind),
		cmocka_unit_test(interface__takes_its_groups_along),
		cmocka_unit_test(address__can_be_bound_at_once),
		cmocka_unit_test_setup(link_local__names_its_link, add_link_local),
		cmocka_unit_test_setup(link_local__takes_the_link_of_its_source, add_link_local),
		cmocka_unit_test_setup(link_local__is_one_on_each_link, add_link_local),
	};

	if (!netns_enter() || !netns_add_wire()) {
		printf("1..0 # SKIP no network of its own\n");
		return 0;
	}
	return cmocka_run_group_tests_name("rdmacm_interfaces", tests, NULL, NULL);
}
