/* SPDX-License-Identifier: BSD-2-Clause */
/* Joining and leaving multicast groups: the news, the IP membership behind it, datagrams to a group. */
#include <dlfcn.h>

#include "cm.h"

enum { SIZE = 256, GRH = 40, MULTICAST_QPN = 0xffffff };

static const char *const groups[] = { "239.77.5.1", "ff0e::77:5:1" };

/* An id of RDMA_PS_UDP on the address of this host that fits the group; NULL: none does. */
static struct rdma_cm_id *id_for(struct rdma_event_channel *ch, const char *group)
{
	struct rdma_cm_id *id;
	struct address a = address(strchr(group, ':') ? "::1" : "127.0.0.1", 0);

	id = new_id(ch, RDMA_PS_UDP);
	assert_ok(rdma_bind_addr(id, sockaddr(&a)));
	return id;
}

/* Is this host a member of the group, by what the kernel shows? */
static bool is_member(const char *group)
{
	bool v6 = strchr(group, ':');
	unsigned char bytes[16];
	char wanted[33], line[256];
	bool found = false;
	FILE *f = fopen(v6 ? "/proc/net/igmp6" : "/proc/net/igmp", "re");

	assert_non_null(f);
	assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, group, bytes), 1);
	if (v6)
		for (unsigned i = 0; i < 16; i++)
			snprintf(wanted + 2 * i, 3, "%02x", bytes[i]);
	else
		snprintf(wanted, sizeof(wanted), "%02X%02X%02X%02X", bytes[3], bytes[2], bytes[1], bytes[0]);
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, wanted) != NULL;
	fclose(f);
	return found;
}

static void add_qp_with(struct rdma_cm_id *id, uint32_t create_flags)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.pd = id->pd,
		.create_flags = create_flags,
	};

	assert_ok(rdma_create_qp_ex(id, &attr));
}

static void add_qp(struct rdma_cm_id *id)
{
	add_qp_with(id, 0);
}

static void check_news(const struct rdma_cm_event *event, const struct rdma_cm_id *id, const char *group,
		       void *context)
{
	const struct rdma_ud_param *ud = &event->param.ud;
	unsigned char mgid[16] = { [10] = 0xff, 0xff };
	union ibv_gid sgid;
	struct address local = address(strchr(group, ':') ? "::1" : "127.0.0.1", 0);
	unsigned char local_gid[16] = { [10] = 0xff, 0xff };

	if (strchr(group, ':')) {
		inet_pton(AF_INET6, group, mgid);
		inet_pton(AF_INET6, local.ip, local_gid);
	} else {
		inet_pton(AF_INET, group, mgid + 12);
		inet_pton(AF_INET, local.ip, local_gid + 12);
	}
	assert_int_equal(event->status, 0);
	assert_ptr_equal(event->id, id);
	assert_ptr_equal(ud->private_data, context);
	assert_int_equal(ud->qp_num, MULTICAST_QPN);
	assert_int_equal(ud->qkey, RDMA_UDP_QKEY);
	assert_int_equal(ud->ah_attr.is_global, 1);
	assert_int_equal(ud->ah_attr.port_num, id->port_num);
	assert_memory_equal(ud->ah_attr.grh.dgid.raw, mgid, 16);
	assert_int_not_equal(ud->ah_attr.grh.hop_limit, 0);
	assert_int_equal(ibv_query_gid(id->verbs, id->port_num, ud->ah_attr.grh.sgid_index, &sgid), 0);
	assert_memory_equal(sgid.raw, local_gid, 16);
}

/* Joins, and gives the address handle attributes of the news. */
static struct ibv_ah_attr join(struct rdma_cm_id *id, const char *group)
{
	struct address to = address(group, 0);
	int context;

	assert_ok(rdma_join_multicast(id, sockaddr(&to), &context));
	struct rdma_cm_event *event = expect(id->channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	check_news(event, id, group, &context);
	struct ibv_ah_attr attr = event->param.ud.ah_attr;
	assert_ok(rdma_ack_cm_event(event));
	return attr;
}

static void leave(struct rdma_cm_id *id, const char *group)
{
	struct address from = address(group, 0);

	assert_ok(rdma_leave_multicast(id, sockaddr(&from)));
}

/* ---- membership ---- */

static void join__makes_the_host_a_member(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		if (strchr(groups[i], ':') && !is_here("::1"))
			continue;
		struct rdma_event_channel *ch = new_channel();
		struct rdma_cm_id *first = id_for(ch, groups[i]), *second = id_for(ch, groups[i]);
		struct address group = address(groups[i], 0);

		assert_false(is_member(groups[i]));
		join(first, groups[i]);
		assert_true(is_member(groups[i]));
		join(second, groups[i]);
		leave(first, groups[i]);
		assert_true(is_member(groups[i])); /* the second still is one */
		assert_refused(EADDRNOTAVAIL, rdma_leave_multicast(first, sockaddr(&group)));
		assert_ok(rdma_destroy_id(second)); /* ends its memberships */
		assert_false(is_member(groups[i]));
		assert_ok(rdma_destroy_id(first));
		rdma_destroy_event_channel(ch);
	}
}

static void join__to_send_only(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = id_for(ch, groups[0]);
	struct address group = address(groups[0], 0);
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, .addr = sockaddr(&group),
	};

	(void)state;
	add_qp(id);
	assert_ok(rdma_join_multicast_ex(id, &attr, NULL));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_MULTICAST_JOIN);
	check_news(event, id, groups[0], NULL);
	assert_ok(rdma_ack_cm_event(event));
	assert_false(is_member(groups[0]));
	leave(id, groups[0]);
	rdma_destroy_qp(id);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static struct rdma_cm_id *leaves_meanwhile;

/* librdmacm's call, too. Another thread may leave the group while the queue pair is being attached. */
__attribute__((visibility("default"))) int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
							    uint16_t lid)
{
	int (*real)(struct ibv_qp *, const union ibv_gid *, uint16_t);
	struct rdma_cm_id *id = leaves_meanwhile;

	leaves_meanwhile = NULL;
	if (id)
		leave(id, groups[0]);
	*(void **)&real = dlsym(RTLD_NEXT, "ibv_attach_mcast");
	return real(qp, gid, lid);
}

/*
 * News of a membership that is over is no news. The membership ends before the event is taken, or during
 * that.
 */
static void take_news_of_the_past(bool leaves_first)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = id_for(ch, groups[0]);
	struct address group = address(groups[0], 0);
	struct rdma_cm_event *event;

	add_qp(id);
	assert_ok(rdma_join_multicast(id, sockaddr(&group), NULL));
	set_nonblocking(ch->fd);
	if (leaves_first)
		leave(id, groups[0]);
	else
		leaves_meanwhile = id;
	assert_refused(EAGAIN, rdma_get_cm_event(ch, &event));
	assert_null(leaves_meanwhile);
	assert_false(is_member(groups[0]));
	rdma_destroy_qp(id);
	assert_null(id->qp); /* it was attached to nothing */
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void leave__before_the_news_is_taken(void **state)
{
	(void)state;
	take_news_of_the_past(true);
}

static void leave__while_the_news_is_taken(void **state)
{
	(void)state;
	take_news_of_the_past(false);
}

static void join__synchronous(void **state)
{
	struct rdma_cm_id *id = id_for(NULL, groups[0]);
	struct address group = address(groups[0], 0);

	(void)state;
	assert_ok(rdma_join_multicast(id, sockaddr(&group), NULL));
	assert_non_null(id->event);
	check_news(id->event, id, groups[0], NULL);
	leave(id, groups[0]);
	assert_ok(rdma_destroy_id(id));
}

static void join__refusals(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *fresh = new_id(ch, RDMA_PS_UDP), *tcp = new_id(ch, RDMA_PS_TCP),
			  *id = id_for(ch, groups[0]);
	struct address lo = address("127.0.0.1", 0), group = address(groups[0], 0);
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS,
						.addr = sockaddr(&group) };

	(void)state;
	assert_ok(rdma_bind_addr(tcp, sockaddr(&lo)));
	assert_refused(EINVAL, rdma_join_multicast(NULL, sockaddr(&group), NULL));
	assert_refused(EINVAL, rdma_join_multicast(fresh, sockaddr(&group), NULL));
	assert_refused(EINVAL, rdma_join_multicast(tcp, sockaddr(&group), NULL));
	assert_refused(EINVAL, rdma_join_multicast(id, sockaddr(&lo), NULL));
	assert_refused(EINVAL, rdma_join_multicast(id, NULL, NULL));
	assert_refused(EINVAL, rdma_join_multicast_ex(id, &attr, NULL));
	assert_refused(EINVAL, rdma_join_multicast_ex(id, NULL, NULL));
	attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	assert_refused(EINVAL, rdma_join_multicast_ex(id, &attr, NULL));
	assert_refused(EADDRNOTAVAIL, rdma_leave_multicast(id, sockaddr(&group)));
	assert_refused(EINVAL, rdma_leave_multicast(id, NULL));
	assert_false(readable(ch->fd, 0));
	assert_ok(rdma_destroy_id(fresh));
	assert_ok(rdma_destroy_id(tcp));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* ---- data ---- */

struct member {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	uint8_t buf[GRH + SIZE];
};

static void enter_with(struct member *m, struct rdma_event_channel *ch, const char *group,
		       uint32_t create_flags)
{
	memset(m->buf, 0, sizeof(m->buf));
	m->id = id_for(ch, group);
	add_qp_with(m->id, create_flags);
	m->mr = rdma_reg_msgs(m->id, m->buf, sizeof(m->buf));
	assert_non_null(m->mr);
	assert_ok(rdma_post_recv(m->id, m, m->buf, sizeof(m->buf), m->mr));
}

static void enter(struct member *m, struct rdma_event_channel *ch, const char *group)
{
	enter_with(m, ch, group, 0);
}

static void quit(struct member *m)
{
	assert_ok(rdma_dereg_mr(m->mr));
	rdma_destroy_qp(m->id);
	assert_ok(rdma_destroy_id(m->id));
}

static void expect_datagram(struct member *m, uint8_t value)
{
	struct ibv_wc wc;

	assert_int_equal(rdma_get_recv_comp(m->id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, GRH + SIZE);
	assert_true(wc.wc_flags & IBV_WC_GRH);
	for (unsigned i = 0; i < SIZE; i++)
		assert_int_equal(m->buf[GRH + i], value);
}

static void send_to_group(struct member *from, struct ibv_ah_attr *attr, uint8_t value)
{
	uint8_t data[SIZE];
	struct ibv_mr *mr = rdma_reg_msgs(from->id, data, sizeof(data));
	struct ibv_ah *ah = ibv_create_ah(from->id->pd, attr);
	struct ibv_wc wc;

	assert_non_null(mr);
	assert_non_null(ah);
	memset(data, value, sizeof(data));
	assert_ok(rdma_post_ud_send(from->id, NULL, data, sizeof(data), mr, IBV_SEND_SIGNALED, ah,
				    MULTICAST_QPN));
	assert_int_equal(rdma_get_send_comp(from->id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_ok(ibv_destroy_ah(ah));
	assert_ok(rdma_dereg_mr(mr));
}

/*
 * All members have a datagram, the one that left has not. Over IPv4, because the loopback
 * interface has no route to IPv6 groups.
 */
static void datagram__reaches_the_members(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct member one, two, gone;
	struct ibv_wc wc;

	(void)state;
	enter(&one, ch, groups[0]);
	enter(&two, ch, groups[0]);
	enter(&gone, ch, groups[0]);
	struct ibv_ah_attr attr = join(one.id, groups[0]);
	join(two.id, groups[0]);
	join(gone.id, groups[0]);
	leave(gone.id, groups[0]);
	send_to_group(&gone, &attr, 0x5a);
	expect_datagram(&one, 0x5a);
	expect_datagram(&two, 0x5a);
	assert_int_equal(ibv_poll_cq(gone.id->recv_cq, 1, &wc), 0);
	leave(two.id, groups[0]);
	quit(&two);
	leave(one.id, groups[0]);
	quit(&one);
	quit(&gone);
	rdma_destroy_event_channel(ch);
}

/* A member that sends to its group hears itself, unless it asked not to. */
static void datagram__comes_back_to_a_member(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct member one, deaf;

	(void)state;
	enter(&one, ch, groups[0]);
	enter_with(&deaf, ch, groups[0], IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
	struct ibv_ah_attr attr = join(one.id, groups[0]), to_group = join(deaf.id, groups[0]);
	send_to_group(&deaf, &to_group, 1);
	expect_datagram(&one, 1);
	assert_ok(rdma_post_recv(one.id, &one, one.buf, sizeof(one.buf), one.mr));
	send_to_group(&one, &attr, 2);
	expect_datagram(&one, 2);
	expect_datagram(&deaf, 2);
	leave(deaf.id, groups[0]);
	leave(one.id, groups[0]);
	quit(&deaf);
	quit(&one);
	rdma_destroy_event_channel(ch);
}

/* An id may be a member twice. It is one until it has left as often. */
static void join__twice(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct address group = address(groups[0], 0);
	struct member one, two;

	(void)state;
	enter(&one, ch, groups[0]);
	enter(&two, ch, groups[0]);
	struct ibv_ah_attr attr = join(one.id, groups[0]);
	join(one.id, groups[0]);
	leave(one.id, groups[0]);
	send_to_group(&two, &attr, 0x5a);
	expect_datagram(&one, 0x5a);
	leave(one.id, groups[0]);
	assert_refused(EADDRNOTAVAIL, rdma_leave_multicast(one.id, sockaddr(&group)));
	assert_false(is_member(groups[0]));
	quit(&one);
	quit(&two);
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(join__makes_the_host_a_member),
		cmocka_unit_test(join__to_send_only),
		cmocka_unit_test(leave__before_the_news_is_taken),
		cmocka_unit_test(leave__while_the_news_is_taken),
		cmocka_unit_test(join__synchronous),
		cmocka_unit_test(join__refusals),
		cmocka_unit_test(datagram__reaches_the_members),
		cmocka_unit_test(datagram__comes_back_to_a_member),
		cmocka_unit_test(join__twice),
	};

	enter_own_network();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
