/* SPDX-License-Identifier: BSD-2-Clause */
/* Names looked up without waiting, and events of the program's own. */
#include <netdb.h>
#include <pthread.h>

#include "cm.h"

static const struct rdma_addrinfo numeric = { .ai_flags = RAI_NUMERICHOST | RAI_DNS,
					      .ai_port_space = RDMA_PS_UDP };

static void lookup__finds_an_address(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct rdma_addrinfo *found, *again;

	assert_refused(EINVAL, rdma_query_addrinfo(id, &found));
	assert_ok(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &numeric));
	expect_acked(ch, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0);
	assert_ok(rdma_query_addrinfo(id, &found));
	assert_ok(rdma_query_addrinfo(id, &again)); /* each has its own */
	assert_ptr_not_equal(found, again);
	rdma_freeaddrinfo(again);
	assert_int_equal(found->ai_port_space, RDMA_PS_UDP);
	assert_int_equal(found->ai_qp_type, IBV_QPT_UD);
	assert_int_equal(((struct sockaddr_in *)found->ai_dst_addr)->sin_port, htons(7471));
	assert_string_equal(found->ai_dst_canonname, "127.0.0.1");
	assert_null(found->ai_next);

	assert_ok(rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000)); /* the id is as it was */
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_refused(EINVAL, rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &numeric));
	assert_ok(rdma_destroy_id(id));
	rdma_freeaddrinfo(found);
	rdma_destroy_event_channel(ch);
}

/* Without hints, it is for what the id is. */
static void lookup__is_for_the_id(void **state)
{
	static const struct {
		enum rdma_port_space ps;
		enum ibv_qp_type qp_type;
	} kinds[] = { { RDMA_PS_TCP, IBV_QPT_RC },
		      { RDMA_PS_UDP, IBV_QPT_UD },
		      { RDMA_PS_IPOIB, IBV_QPT_UD } };
	struct rdma_event_channel *ch = new_channel();

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct rdma_cm_id *id = new_id(ch, kinds[i].ps);
		struct rdma_addrinfo *found;

		assert_ok(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", NULL));
		expect_acked(ch, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0);
		assert_ok(rdma_query_addrinfo(id, &found));
		assert_int_equal(found->ai_port_space, kinds[i].ps);
		assert_int_equal(found->ai_qp_type, kinds[i].qp_type);
		rdma_freeaddrinfo(found);
		assert_ok(rdma_destroy_id(id));
	}
	rdma_destroy_event_channel(ch);
}

static void lookup__fails_with_an_event(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct rdma_addrinfo *found;

	assert_ok(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &numeric));
	expect_acked(ch, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0);
	assert_ok(rdma_resolve_addrinfo(id, "no.address", "7471", &numeric));
	expect_acked(ch, RDMA_CM_EVENT_ADDRINFO_ERROR, -ENOENT);
	assert_refused(EINVAL, rdma_query_addrinfo(id, &found)); /* nor is it what was found before */
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void lookup__refuses(void **state)
{
	const struct rdma_addrinfo both = { .ai_flags = RAI_DNS | RAI_SA }, sa = { .ai_flags = RAI_SA };
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);

	assert_refused(EINVAL, rdma_resolve_addrinfo(NULL, "127.0.0.1", NULL, NULL));
	assert_refused(EINVAL, rdma_resolve_addrinfo(id, NULL, NULL, NULL));
	assert_refused(EINVAL, rdma_resolve_addrinfo(id, "127.0.0.1", NULL, &both));
	assert_refused(EOPNOTSUPP, rdma_resolve_addrinfo(id, NULL, "1", &sa));
	assert_refused(EINVAL, rdma_query_addrinfo(id, NULL));
	assert_refused(EINVAL, rdma_query_addrinfo(NULL, NULL));
	assert_false(readable(ch->fd, 0));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void lookup__waits_on_a_synchronous_id(void **state)
{
	struct rdma_cm_id *id = new_id(NULL, RDMA_PS_TCP);
	struct rdma_addrinfo *found;

	assert_ok(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &numeric));
	assert_ok(rdma_query_addrinfo(id, &found));
	rdma_freeaddrinfo(found);
	assert_refused(ENOENT, rdma_resolve_addrinfo(id, "no.address", "7471", &numeric));
	assert_ok(rdma_destroy_id(id));
}

/* The id may go while its name is looked up; many at once. */
static void lookup__is_left_alone(void **state)
{
	struct rdma_event_channel *ch = new_channel();

	for (unsigned i = 0; i < 200; i++) {
		struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
		assert_ok(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", NULL));
		assert_ok(rdma_destroy_id(id));
	}
	rdma_destroy_event_channel(ch);
}

static void user_event__comes_with_its_argument(void **state)
{
	struct rdma_event_channel *ch = new_channel(), *other = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);

	assert_ok(rdma_write_cm_event(id, RDMA_CM_EVENT_USER, -7, UINT64_MAX - 1));
	assert_ok(rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 8, 2));
	assert_ok(rdma_migrate_id(id, other)); /* they go with it, in order */
	assert_false(readable(ch->fd, 0));
	struct rdma_cm_event *event = expect(other, RDMA_CM_EVENT_USER);
	assert_ptr_equal(event->id, id);
	assert_int_equal(event->status, -7);
	assert_true(event->param.arg == UINT64_MAX - 1);
	assert_ok(rdma_ack_cm_event(event));
	expect_acked(other, RDMA_CM_EVENT_USER, 8);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(other);
}

static void user_event__is_the_only_one(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);

	assert_refused(EINVAL, rdma_write_cm_event(NULL, RDMA_CM_EVENT_USER, 0, 0));
	for (int type = RDMA_CM_EVENT_ADDR_RESOLVED; type <= RDMA_CM_EVENT_INTERNAL + 1; type++)
		if (type != RDMA_CM_EVENT_USER)
			assert_refused(EINVAL, rdma_write_cm_event(id, (enum rdma_cm_event_type)type, 0, 0));
	assert_false(readable(ch->fd, 0));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void *write_soon(void *id)
{
	usleep(20000);
	return (void *)(intptr_t)rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 1);
}

static void user_event__wakes_a_thread(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct rdma_cm_event *event;
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, write_soon, id), 0);
	assert_ok(rdma_get_cm_event(ch, &event));
	assert_int_equal(event->event, RDMA_CM_EVENT_USER);
	assert_ok(rdma_ack_cm_event(event));
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_null(result);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lookup__finds_an_address),
		cmocka_unit_test(lookup__is_for_the_id),
		cmocka_unit_test(lookup__fails_with_an_event),
		cmocka_unit_test(lookup__refuses),
		cmocka_unit_test(lookup__waits_on_a_synchronous_id),
		cmocka_unit_test(lookup__is_left_alone),
		cmocka_unit_test(user_event__comes_with_its_argument),
		cmocka_unit_test(user_event__is_the_only_one),
		cmocka_unit_test(user_event__wakes_a_thread),
	};

	return cmocka_run_group_tests_name("rdmacm_lookup", tests, NULL, NULL);
}
