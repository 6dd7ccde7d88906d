/* SPDX-License-Identifier: BSD-2-Clause */
/* Channels, ids, options: what needs no connection. */
#include <pthread.h>

#include "../../kernel.h"
#include "../../sanitized.h"
#include "cm.h"

static void channel__blocks_polls_and_refuses(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_event *event;

	(void)state;
	assert_false(readable(ch->fd, 0));
	set_nonblocking(ch->fd);
	assert_refused(EAGAIN, rdma_get_cm_event(ch, &event));
	assert_refused(EINVAL, rdma_get_cm_event(NULL, &event));
	assert_refused(EINVAL, rdma_get_cm_event(ch, NULL));
	assert_refused(EINVAL, rdma_ack_cm_event(NULL));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(NULL);
}

static void channel__is_readable_exactly_while_events_wait(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *a = new_id(ch, RDMA_PS_TCP), *b = new_id(ch, RDMA_PS_TCP);
	struct address to = address("127.0.0.1", 7);

	(void)state;
	assert_ok(rdma_resolve_addr(a, NULL, sockaddr(&to), 100));
	assert_ok(rdma_resolve_addr(b, NULL, sockaddr(&to), 100));
	assert_true(readable(ch->fd, 0));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_true(readable(ch->fd, 0));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_false(readable(ch->fd, 0));
	assert_ok(rdma_destroy_id(a));
	assert_ok(rdma_destroy_id(b));
	rdma_destroy_event_channel(ch);
}

static void on_alarm(int sig) { (void)sig; }

static void channel__get_is_interrupted_by_a_signal(void **state)
{
	struct sigaction sa = { .sa_handler = on_alarm }; /* no SA_RESTART */
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_event *event;

	(void)state;
	sigaction(SIGALRM, &sa, NULL);
	ualarm(20000, 20000); /* repeated, lest the first comes before the wait */
	assert_refused(EINTR, rdma_get_cm_event(ch, &event));
	ualarm(0, 0);
	rdma_destroy_event_channel(ch);
}

enum { WAITS, TOOK_ONE, FAILED };

struct waiter {
	struct rdma_event_channel *channel;
	_Atomic pid_t thread;
	_Atomic int result;
};

/* In the kernel: since nothing else does so before, in its wait. */
static bool sleeps(pid_t thread)
{
	char path[64], state = 0;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	FILE *stat = fopen(path, "re");
	bool known = stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1;
	if (stat)
		fclose(stat);
	return known && state == 'S';
}

static void *wait_once(void *arg)
{
	struct waiter *w = arg;
	struct rdma_cm_event *event;

	w->thread = gettid();
	if (rdma_get_cm_event(w->channel, &event)) {
		w->result = FAILED;
		return NULL;
	}
	rdma_ack_cm_event(event);
	w->result = TOOK_ONE;
	return NULL;
}

/*
 * A thread that is woken for an event which is gone when it looks goes on waiting, whatever has become of its
 * channel. rping ends like this.
 */
static void channel__destroyed_while_a_thread_wakes_up(void **state)
{
	if (SANITIZED)
		SKIP(SANITIZERS_LOSE_THREADS);
	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		struct waiter w = { .channel = new_channel() };
		struct rdma_cm_id *id = new_id(w.channel, RDMA_PS_TCP);
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, wait_once, &w), 0);
		while (!w.thread || !sleeps(w.thread))
			usleep(100);
		assert_ok(rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 0));
		assert_ok(rdma_destroy_id(id));
		rdma_destroy_event_channel(w.channel);
		usleep(500);
		assert_int_not_equal(w.result, FAILED);
		pthread_cancel(thread);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_not_equal(w.result, FAILED);
	}
}

static void *wait_forever(void *arg)
{
	struct rdma_cm_event *event;

	rdma_get_cm_event(arg, &event);
	return NULL;
}

static void channel__get_is_a_cancellation_point(void **state)
{
	if (SANITIZED)
		SKIP(SANITIZERS_LOSE_THREADS);
	struct rdma_event_channel *ch = new_channel();
	pthread_t thread;
	void *result;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, wait_forever, ch), 0);
	pthread_cancel(thread);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	rdma_destroy_event_channel(ch);
}

static void id__has_what_it_was_created_with(void **state)
{
	static const struct {
		enum rdma_port_space ps;
		enum ibv_qp_type type;
	} cases[] = { { RDMA_PS_TCP, IBV_QPT_RC }, { RDMA_PS_UDP, IBV_QPT_UD }, { RDMA_PS_IPOIB, IBV_QPT_UD },
		      { RDMA_PS_IB, IBV_QPT_RC } };
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id;
	int context;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_ok(rdma_create_id(ch, &id, &context, cases[i].ps));
		assert_ptr_equal(id->channel, ch);
		assert_ptr_equal(id->context, &context);
		assert_int_equal(id->ps, cases[i].ps);
		assert_int_equal(id->qp_type, cases[i].type);
		assert_null(id->verbs);
		assert_null(id->qp);
		assert_int_equal(rdma_get_src_port(id), 0);
		assert_int_equal(rdma_get_dst_port(id), 0);
		assert_ok(rdma_destroy_id(id));
	}
	rdma_destroy_event_channel(ch);
}

static void id__creation_refused(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id;

	(void)state;
	assert_refused(EINVAL, rdma_create_id(ch, NULL, NULL, RDMA_PS_TCP));
	assert_refused(EINVAL, rdma_create_id(ch, &id, NULL, (enum rdma_port_space)0x1234));
	assert_refused(EINVAL, rdma_destroy_id(NULL));
	rdma_destroy_event_channel(ch);
}

/* Every call in a state that it is not for, and with no id at all. */
static void id__fresh_refuses_what_needs_more(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP), *other;
	struct rdma_conn_param param = some_param();
	struct ibv_qp_init_attr qp = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	(void)state;
	assert_refused(EINVAL, rdma_resolve_route(id, 100));
	assert_refused(EINVAL, rdma_connect(id, &param));
	assert_refused(EINVAL, rdma_accept(id, &param));
	assert_refused(EINVAL, rdma_reject(id, NULL, 0));
	assert_refused(EINVAL, rdma_reject_ece(id, NULL, 0));
	assert_refused(EINVAL, rdma_establish(id));
	assert_refused(EINVAL, rdma_disconnect(id));
	assert_refused(EINVAL, rdma_notify(id, IBV_EVENT_COMM_EST));
	assert_refused(EINVAL, rdma_get_request(id, &other));
	assert_refused(EINVAL, rdma_create_qp(id, NULL, &qp));
	assert_refused(EINVAL, rdma_create_srq(id, NULL, &srq));
	assert_refused(EINVAL, rdma_init_qp_attr(id, &attr, &mask));
	assert_refused(EINVAL, rdma_resolve_route(NULL, 100));
	assert_refused(EINVAL, rdma_connect(NULL, &param));
	assert_refused(EINVAL, rdma_accept(NULL, &param));
	assert_refused(EINVAL, rdma_reject(NULL, NULL, 0));
	assert_refused(EINVAL, rdma_establish(NULL));
	assert_refused(EINVAL, rdma_disconnect(NULL));
	assert_refused(EINVAL, rdma_notify(NULL, IBV_EVENT_COMM_EST));
	assert_refused(EINVAL, rdma_listen(NULL, 1));
	assert_refused(EINVAL, rdma_bind_addr(NULL, NULL));
	assert_refused(EINVAL, rdma_get_request(NULL, &other));
	assert_refused(EINVAL, rdma_create_qp(NULL, NULL, &qp));
	assert_refused(EINVAL, rdma_create_qp(id, NULL, NULL));
	assert_refused(EINVAL, rdma_create_srq(NULL, NULL, &srq));
	assert_refused(EINVAL, rdma_init_qp_attr(NULL, &attr, &mask));
	assert_refused(EINVAL, rdma_migrate_id(NULL, ch));
	rdma_destroy_qp(id);
	rdma_destroy_qp(NULL);
	rdma_destroy_srq(id);
	rdma_destroy_ep(NULL);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void id__destroyed_with_events_queued(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *a = new_id(ch, RDMA_PS_TCP), *b = new_id(ch, RDMA_PS_TCP);
	struct address to = address("127.0.0.1", 7);

	(void)state;
	assert_ok(rdma_resolve_addr(a, NULL, sockaddr(&to), 100));
	assert_ok(rdma_resolve_addr(b, NULL, sockaddr(&to), 100));
	assert_ok(rdma_destroy_id(a));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(event->id, b);
	assert_ok(rdma_ack_cm_event(event));
	assert_false(readable(ch->fd, 0));
	assert_ok(rdma_destroy_id(b));
	rdma_destroy_event_channel(ch);
}

struct destroyer {
	struct rdma_cm_id *id;
	atomic_int done;
};

static void *destroy(void *arg)
{
	struct destroyer *d = arg;

	rdma_destroy_id(d->id);
	d->done = 1;
	return NULL;
}

static void id__destruction_waits_for_acknowledgement(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct destroyer d = { .id = new_id(ch, RDMA_PS_TCP) };
	struct address to = address("127.0.0.1", 7);
	pthread_t thread;

	(void)state;
	assert_ok(rdma_resolve_addr(d.id, NULL, sockaddr(&to), 100));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(pthread_create(&thread, NULL, destroy, &d), 0);
	usleep(20000); /* a chance to go wrong */
	assert_int_equal(d.done, 0);
	assert_ok(rdma_ack_cm_event(event));
	pthread_join(thread, NULL);
	rdma_destroy_event_channel(ch);
}

/* While it waits for an acknowledgement: others go on, and it can be done again. */
static void id__destruction_is_cancelled(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct destroyer d = { .id = new_id(ch, RDMA_PS_TCP) };
	struct address to = address("127.0.0.1", 1);
	pthread_t thread;
	void *result;

	(void)state;
	assert_ok(rdma_resolve_addr(d.id, NULL, sockaddr(&to), 1000));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(pthread_create(&thread, NULL, destroy, &d), 0);
	usleep(20000);
	pthread_cancel(thread);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_ok(rdma_destroy_id(new_id(ch, RDMA_PS_TCP)));
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_destroy_id(d.id));
	rdma_destroy_event_channel(ch);
}

static void id__outlives_its_channel(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address("127.0.0.1", 7);

	(void)state;
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), 100));
	rdma_destroy_event_channel(ch);
	assert_ok(rdma_resolve_route(id, 100));
	assert_ok(rdma_destroy_id(id));
}

static void migrate__moves_pending_events(void **state)
{
	struct rdma_event_channel *from = new_channel(), *to = new_channel();
	struct rdma_cm_id *id = new_id(from, RDMA_PS_TCP), *stays = new_id(from, RDMA_PS_TCP);
	struct address a = address("127.0.0.1", 7);

	(void)state;
	assert_ok(rdma_resolve_addr(stays, NULL, sockaddr(&a), 100));
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&a), 100));
	assert_ok(rdma_migrate_id(id, to));
	assert_ptr_equal(id->channel, to);
	struct rdma_cm_event *event = expect(to, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(event->id, id);
	assert_ok(rdma_ack_cm_event(event));
	event = expect(from, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(event->id, stays);
	assert_ok(rdma_ack_cm_event(event));
	assert_false(readable(from->fd, 0));
	assert_ok(rdma_destroy_id(stays));
	rdma_destroy_event_channel(from);
	assert_ok(rdma_resolve_route(id, 100));
	expect_acked(to, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(to);
}

struct migration {
	struct rdma_cm_id *id;
	struct rdma_event_channel *to;
	atomic_bool is_over;
};

static void *migrate_id(void *arg)
{
	struct migration *m = arg;

	assert_ok(rdma_migrate_id(m->id, m->to));
	m->is_over = true;
	return NULL;
}

/* Another thread has an event of the id; those behind it are on the new channel meanwhile. */
static void migrate__waits_for_acknowledgements(void **state)
{
	struct rdma_event_channel *from = new_channel(), *to = new_channel();
	struct migration m = { .id = new_id(from, RDMA_PS_TCP), .to = to };
	struct rdma_cm_event *events[2];
	pthread_t thread;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		assert_ok(rdma_write_cm_event(m.id, RDMA_CM_EVENT_USER, 0, i));
	for (unsigned i = 0; i < 2; i++)
		events[i] = expect(from, RDMA_CM_EVENT_USER);
	assert_int_equal(pthread_create(&thread, NULL, migrate_id, &m), 0);
	assert_true(readable(to->fd, WAIT_MS)); /* it has begun */
	assert_false(m.is_over);
	assert_ok(rdma_ack_cm_event(events[0]));
	assert_false(m.is_over);
	assert_false(readable(from->fd, 0));
	assert_ok(rdma_ack_cm_event(events[1]));
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(m.is_over);
	struct rdma_cm_event *event = expect(to, RDMA_CM_EVENT_USER);
	assert_int_equal(event->param.arg, 2);
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_destroy_id(m.id));
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

static void migrate__to_synchronous_and_back(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address a = address("127.0.0.1", 7);

	(void)state;
	assert_ok(rdma_migrate_id(id, NULL));
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&a), 100));
	assert_non_null(id->event);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ok(rdma_migrate_id(id, ch));
	assert_null(id->event);
	assert_ok(rdma_resolve_route(id, 100));
	expect_acked(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void migrate__to_its_own_channel(void **state)
{
	struct rdma_cm_id *id = new_id(NULL, RDMA_PS_TCP);
	struct rdma_event_channel *own = id->channel;
	struct address a = address("127.0.0.1", 7);

	(void)state;
	assert_ok(rdma_migrate_id(id, own));
	assert_ptr_equal(id->channel, own);
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&a), 100));
	assert_non_null(id->event); /* it is synchronous still */
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ok(rdma_destroy_id(id));
}

static void option__sizes_names_and_states(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP), *ud = new_id(ch, RDMA_PS_UDP);
	struct address a = address("127.0.0.1", 0);
	struct ibv_path_data path = { 0 };
	uint8_t byte = 7, large = 32;
	int one = 1;

	(void)state;
	assert_ok(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, sizeof(byte)));
	assert_ok(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
	assert_ok(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one)));
	assert_ok(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, sizeof(byte)));
	assert_refused(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &one, sizeof(one)));
	assert_refused(EINVAL,
		       rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, sizeof(byte)));
	assert_refused(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &large,
					       sizeof(large)));
	assert_refused(EINVAL,
		       rdma_set_option(ud, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, sizeof(byte)));
	assert_refused(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1));
	assert_refused(EINVAL, rdma_set_option(NULL, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
	assert_refused(ENOSYS, rdma_set_option(id, RDMA_OPTION_ID, 99, &byte, sizeof(byte)));
	assert_refused(ENOSYS, rdma_set_option(id, 99, RDMA_OPTION_ID_TOS, &byte, sizeof(byte)));
	assert_refused(EINVAL, rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)));
	assert_refused(EINVAL, rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, 3));
	assert_ok(rdma_bind_addr(ud, sockaddr(&a)));
	assert_refused(EINVAL,
		       rdma_set_option(ud, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
	assert_refused(EINVAL, rdma_set_option(ud, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one)));
	assert_ok(rdma_destroy_id(id));
	assert_ok(rdma_destroy_id(ud));
	rdma_destroy_event_channel(ch);
}

static void option__path_resolves_the_route(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address("127.0.0.1", 7);
	struct ibv_path_data path = { .flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY |
					       IBV_PATH_FLAG_BIDIRECTIONAL };

	(void)state;
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), 100));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_ok(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)));
	expect_acked(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	assert_int_equal(id->route.num_paths, 1);
	assert_refused(EINVAL, rdma_resolve_route(id, 100));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void ece__arguments(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = 1 }, none = { 0 },
		       masked = { .vendor_id = 1, .comp_mask = 1 };

	(void)state;
	assert_ok(rdma_set_local_ece(id, &ece));
	assert_refused(EINVAL, rdma_set_local_ece(id, NULL));
	assert_refused(EINVAL, rdma_set_local_ece(NULL, &ece));
	assert_refused(EINVAL, rdma_set_local_ece(id, &none));
	assert_refused(EINVAL, rdma_set_local_ece(id, &masked));
	assert_ok(rdma_get_remote_ece(id, &ece));
	assert_int_equal(ece.vendor_id, 0);
	assert_refused(EINVAL, rdma_get_remote_ece(id, NULL));
	assert_refused(EINVAL, rdma_get_remote_ece(NULL, &ece));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* What rdma_verbs.h makes of the verbs' errno values. */
static void seterrno__is_minus_one(void **state)
{
	(void)state;
	assert_refused(EBUSY, rdma_seterrno(EBUSY));
	assert_int_equal(rdma_seterrno(0), 0);
	assert_refused(EBUSY, rdma_seterrno(-EBUSY)); /* either sign */
}

static void event_str__names_all(void **state)
{
	(void)state;
	assert_string_equal(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
	assert_string_equal(rdma_event_str(RDMA_CM_EVENT_CONNECT_RESPONSE), "RDMA_CM_EVENT_CONNECT_RESPONSE");
	assert_string_equal(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
	assert_string_equal(rdma_event_str(RDMA_CM_EVENT_INTERNAL), "RDMA_CM_EVENT_INTERNAL");
	for (int i = 0; i <= RDMA_CM_EVENT_INTERNAL; i++)
		assert_memory_equal(rdma_event_str((enum rdma_cm_event_type)i), "RDMA_CM_EVENT_", 14);
	assert_string_equal(rdma_event_str((enum rdma_cm_event_type)99), "UNKNOWN EVENT");
	assert_string_equal(rdma_event_str((enum rdma_cm_event_type)-1), "UNKNOWN EVENT");
}

static void devices__listed_open_and_the_same_each_time(void **state)
{
	int count = -1, again = -1;
	struct ibv_context **list = rdma_get_devices(&count), **second = rdma_get_devices(&again);

	(void)state;
	assert_non_null(list);
	assert_non_null(second);
	assert_true(count >= 1);
	assert_int_equal(count, again);
	for (int i = 0; i < count; i++)
		assert_ptr_equal(list[i], second[i]);
	assert_null(list[count]);
	rdma_free_devices(second);
	second = rdma_get_devices(NULL);
	assert_non_null(second);
	rdma_free_devices(second);

	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address lo = address("127.0.0.1", 0);
	assert_ok(rdma_bind_addr(id, sockaddr(&lo)));
	bool found = false;
	for (int i = 0; i < count; i++)
		found = found || list[i] == id->verbs;
	assert_true(found);
	rdma_free_devices(list);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(channel__blocks_polls_and_refuses),
		cmocka_unit_test(channel__is_readable_exactly_while_events_wait),
		cmocka_unit_test(channel__get_is_interrupted_by_a_signal),
		cmocka_unit_test(channel__get_is_a_cancellation_point),
		cmocka_unit_test(channel__destroyed_while_a_thread_wakes_up),
		cmocka_unit_test(id__destruction_is_cancelled),
		cmocka_unit_test(id__has_what_it_was_created_with),
		cmocka_unit_test(id__creation_refused),
		cmocka_unit_test(id__fresh_refuses_what_needs_more),
		cmocka_unit_test(id__destroyed_with_events_queued),
		cmocka_unit_test(id__destruction_waits_for_acknowledgement),
		cmocka_unit_test(id__outlives_its_channel),
		cmocka_unit_test(migrate__moves_pending_events),
		cmocka_unit_test(migrate__waits_for_acknowledgements),
		cmocka_unit_test(migrate__to_synchronous_and_back),
		cmocka_unit_test(migrate__to_its_own_channel),
		cmocka_unit_test(option__sizes_names_and_states),
		cmocka_unit_test(option__path_resolves_the_route),
		cmocka_unit_test(ece__arguments),
		cmocka_unit_test(seterrno__is_minus_one),
		cmocka_unit_test(event_str__names_all),
		cmocka_unit_test(devices__listed_open_and_the_same_each_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
