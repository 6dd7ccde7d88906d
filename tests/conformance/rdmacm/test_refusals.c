/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors that the pages promise and that need the right circumstances: memory or descriptors run out,
 * interfaces that are no device or say nothing, peers that change their minds. In a network of the test's
 * own, with an Ethernet 10.9.0.1 on which nobody else is.
 */
#include "../../kernel.h"
#include "cm.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "../no_memory.h"

enum { SOON_MS = 50, PORT = 7471, REQUESTS = 100 };

#define NEIGHBOUR "10.9.0.77"
#define NO_DEVICE "10.8.0.1"

static struct rdma_event_channel *ch;

static int setup(void **state)
{
	(void)state;
	ch = rdma_create_event_channel();
	return ch ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	rdma_destroy_event_channel(ch);
	return 0;
}

#define minus_one_when_out(err, call, undo) runs_out(err, call, == 0, undo)

/* ---- memory ---- */

static void drop_id(struct rdma_cm_id *id) { assert_ok(rdma_destroy_id(id)); }

static void memory__of_channels_and_ids(void **state)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;

	(void)state;
	if (!HAVE_ALLOCATOR)
		SKIP(NO_ALLOCATOR);
	null_when_out(ENOMEM, channel = rdma_create_event_channel(), rdma_destroy_event_channel(channel));
	minus_one_when_out(ENOMEM, rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), drop_id(id));
	minus_one_when_out(ENOMEM, rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), drop_id(id));
	id = new_id(ch, RDMA_PS_TCP);
	minus_one_when_out(ENOMEM, rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 0),
			   expect_acked(ch, RDMA_CM_EVENT_USER, 0));
	minus_one_when_out(ENOMEM, rdma_migrate_id(id, NULL), assert_ok(rdma_migrate_id(id, ch)));
	drop_id(id);
}

static int resolve_local(struct rdma_cm_id *id)
{
	struct address to = address("127.0.0.1", PORT);

	return rdma_resolve_addr(id, NULL, sockaddr(&to), 2000);
}

/* Takes the news and begins anew. */
static void renew(struct rdma_cm_id **id, enum rdma_cm_event_type news)
{
	expect_acked(ch, news, 0);
	drop_id(*id);
	*id = new_id(ch, RDMA_PS_TCP);
}

static void renew_resolved(struct rdma_cm_id **id)
{
	renew(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	assert_ok(resolve_local(*id));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
}

/* What could not be told has not happened. */
static void memory__of_resolutions(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address("127.0.0.1", PORT);
	struct ibv_path_data path = { .flags = IBV_PATH_FLAG_PRIMARY };

	(void)state;
	assert_ok(resolve_local(id)); /* opens what stays open */
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	drop_id(id);
	if (!HAVE_ALLOCATOR)
		return;
	id = new_id(ch, RDMA_PS_TCP);
	minus_one_when_out(ENOMEM, rdma_resolve_addr(id, NULL, sockaddr(&to), 2000),
			   renew(&id, RDMA_CM_EVENT_ADDR_RESOLVED));
	assert_ok(resolve_local(id));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	minus_one_when_out(ENOMEM, rdma_resolve_route(id, 2000), renew_resolved(&id));
	minus_one_when_out(ENOMEM,
			   rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)),
			   renew_resolved(&id));
	assert_false(readable(ch->fd, 0));
	drop_id(id);
}

static void begin_anew(struct rdma_cm_id **id)
{
	drop_id(*id);
	*id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
}

static void memory__of_connections(void **state)
{
	(void)state;
	if (!HAVE_ALLOCATOR)
		SKIP(NO_ALLOCATOR);
	struct rdma_conn_param param = some_param();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);

	minus_one_when_out(ENOMEM, rdma_connect(id, &param), begin_anew(&id));
	drop_id(id);
}

static void memory__of_queues(void **state)
{
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
	struct ibv_qp_init_attr attr = { .cap = { 8, 8, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_init_attr_ex ex = { .cap = { 8, 8, 1, 1, 0 },
					  .qp_type = IBV_QPT_RC,
					  .comp_mask = IBV_QP_INIT_ATTR_PD,
					  .pd = id->pd };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex srq_ex = { .attr = { .max_wr = 8, .max_sge = 1 },
					       .srq_type = IBV_SRQT_BASIC,
					       .pd = id->pd,
					       .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD };

	(void)state;
	if (HAVE_ALLOCATOR) {
		minus_one_when_out(ENOMEM, rdma_create_qp(id, NULL, &attr), rdma_destroy_qp(id));
		minus_one_when_out(ENOMEM, rdma_create_qp_ex(id, &ex), rdma_destroy_qp(id));
		minus_one_when_out(ENOMEM, rdma_create_srq(id, NULL, &srq), rdma_destroy_srq(id));
		minus_one_when_out(ENOMEM, rdma_create_srq_ex(id, &srq_ex), rdma_destroy_srq(id));
	}
	attr.qp_type = IBV_QPT_DRIVER;
	assert_refused(EOPNOTSUPP, rdma_create_qp(id, NULL, &attr));
	ex.comp_mask |= 1u << 30;
	assert_refused(EOPNOTSUPP, rdma_create_qp_ex(id, &ex));
	srq_ex.comp_mask |= 1u << 30;
	assert_refused(EOPNOTSUPP, rdma_create_srq_ex(id, &srq_ex));
	drop_id(id);
}

/* Memory for the membership itself may be what is missing: that is an event. */
static void leave(struct rdma_cm_id *id, struct address *group)
{
	struct rdma_cm_event *event = next_event(ch);

	assert_true(event->event == RDMA_CM_EVENT_MULTICAST_JOIN ? !event->status :
		    event->event == RDMA_CM_EVENT_MULTICAST_ERROR && event->status == -ENOMEM);
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_leave_multicast(id, sockaddr(group)));
}

static void memory__of_groups(void **state)
{
	(void)state;
	if (!HAVE_ALLOCATOR)
		SKIP(NO_ALLOCATOR);
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_UDP);
	struct address own = address("10.9.0.1", 0), group = address("239.77.5.9", 0);
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
							     RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
						.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
						.addr = sockaddr(&group) };

	assert_ok(rdma_bind_addr(id, sockaddr(&own)));
	minus_one_when_out(ENOMEM, rdma_join_multicast(id, sockaddr(&group), NULL), leave(id, &group));
	minus_one_when_out(ENOMEM, rdma_join_multicast_ex(id, &attr, NULL), leave(id, &group));
	/* nothing was left half joined */
	assert_refused(EADDRNOTAVAIL, rdma_leave_multicast(id, sockaddr(&group)));
	drop_id(id);
}

static void memory__of_lookups(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct rdma_addrinfo *info, hints = { .ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP };

	(void)state;
	fail_allocation(HAVE_ALLOCATOR ? 0 : -1);
	if (HAVE_ALLOCATOR)
		assert_refused(ENOMEM, rdma_resolve_addrinfo(id, "127.0.0.1", "7", &hints));
	assert_ok(rdma_resolve_addrinfo(id, "127.0.0.1", "7", &hints));
	expect_acked(ch, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0);
	if (HAVE_ALLOCATOR)
		minus_one_when_out(ENOMEM, rdma_query_addrinfo(id, &info), rdma_freeaddrinfo(info));
	drop_id(id);
}

/* One request for each allocation that may fail: a request that cannot be given a queue pair is refused. */
static void memory__of_a_requests_queues(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *at;
	struct ibv_qp_init_attr attr = { .cap = { 8, 8, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct rdma_cm_id *listener, *request, *clients[REQUESTS];

	(void)state;
	if (!HAVE_ALLOCATOR)
		SKIP(NO_ALLOCATOR);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "0", &hints, &at), 0);
	assert_ok(rdma_create_ep(&listener, at, NULL, &attr));
	rdma_freeaddrinfo(at);
	assert_ok(rdma_listen(listener, REQUESTS));
	for (unsigned i = 0; i < REQUESTS; i++) {
		struct rdma_conn_param param = some_param();
		clients[i] = new_resolved(ch, "127.0.0.1", rdma_get_src_port(listener), RDMA_PS_TCP);
		assert_ok(rdma_connect(clients[i], &param));
	}
	minus_one_when_out(ENOMEM, rdma_get_request(listener, &request), rdma_destroy_ep(request));
	for (unsigned i = 0; i < REQUESTS; i++)
		drop_id(clients[i]);
	rdma_destroy_ep(listener);
}

/* ---- descriptors ---- */

static struct rlimit leave_no_descriptor(void)
{
	struct rlimit before, none;
	int next = dup(0);

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t)next;
	close(next);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	return before;
}

#define assert_no_channel(err, call)          \
	do {                                  \
		errno = 0;                    \
		assert_null(call);            \
		assert_int_equal(errno, err); \
	} while (0)

static void descriptors__run_out(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP), *reusable = new_id(ch, RDMA_PS_TCP), *other;
	struct address own = address("127.0.0.1", 0);
	int on = 1;

	(void)state;
	assert_ok(rdma_set_option(reusable, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	assert_ok(rdma_bind_addr(reusable, sockaddr(&own)));
	struct rlimit before = leave_no_descriptor();
	assert_no_channel(EMFILE, rdma_create_event_channel());
	assert_refused(EMFILE, rdma_create_id(NULL, &other, NULL, RDMA_PS_TCP));
	assert_refused(EMFILE, rdma_bind_addr(id, sockaddr(&own)));
	assert_refused(EMFILE, rdma_listen(reusable, 1));
	assert_refused(EMFILE, rdma_migrate_id(id, NULL));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_ok(rdma_bind_addr(id, sockaddr(&own)));
	assert_ok(rdma_listen(reusable, 1));
	drop_id(id);
	drop_id(reusable);
}

/* ---- interfaces ---- */

/* A tunnel without link addresses is no Ethernet, so it is no device. */
static void interface__is_no_device(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address own = address(NO_DEVICE, 0), behind = address("10.8.0.2", PORT);

	(void)state;
	if (system("ip tuntap add dev tunnel mode tun 2> /dev/null && ip addr add " NO_DEVICE
		   "/24 dev tunnel && ip link set tunnel up")) {
		drop_id(id);
		SKIP("no tunnel can be made here");
	}
	assert_refused(ENODEV, rdma_bind_addr(id, sockaddr(&own)));
	assert_refused(ENODEV, rdma_resolve_addr(id, NULL, sockaddr(&behind), SOON_MS));
	must_run("ip link del tunnel");
	drop_id(id);
}

static void interface__has_a_silent_neighbour(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP }, *to;
	struct rdma_cm_id *id;

	(void)state;
	assert_int_equal(rdma_getaddrinfo(NEIGHBOUR, "7471", &hints, &to), 0);
	assert_refused(ETIMEDOUT, rdma_create_ep(&id, to, NULL, NULL));
	rdma_freeaddrinfo(to);
}

/* ---- synchronous ids ---- */

static void on_alarm(int signal) { (void)signal; }

static void get_request__waits_no_longer(void **state)
{
	struct rdma_cm_id *listener = new_listener(NULL, "127.0.0.1", RDMA_PS_TCP, 1), *request;
	struct sigaction act = { .sa_handler = on_alarm }, before; /* without SA_RESTART */
	struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, never = { { 0, 0 }, { 0, 0 } };

	(void)state;
	sigaction(SIGALRM, &act, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	assert_refused(EINTR, rdma_get_request(listener, &request));
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
	set_nonblocking(listener->channel->fd);
	assert_refused(EAGAIN, rdma_get_request(listener, &request));
	drop_id(listener);
}

static void *reject_response(void *arg)
{
	struct rdma_cm_id *client = arg;

	expect_acked(client->channel, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_reject(client, NULL, 0));
	return NULL;
}

static void accept__the_peer_changes_its_mind(void **state)
{
	struct rdma_cm_id *listener = new_listener(NULL, "127.0.0.1", RDMA_PS_TCP, 1), *request;
	struct rdma_cm_id *client = new_resolved(ch, "127.0.0.1", rdma_get_src_port(listener), RDMA_PS_TCP);
	struct rdma_conn_param param = some_param(), answer = some_param();
	pthread_t thread;

	(void)state;
	assert_ok(rdma_connect(client, &param));
	assert_ok(rdma_get_request(listener, &request));
	assert_int_equal(pthread_create(&thread, NULL, reject_response, client), 0);
	assert_refused(ECONNREFUSED, rdma_accept(request, &answer));
	pthread_join(thread, NULL);
	drop_id(request);
	drop_id(client);
	drop_id(listener);
}

static pthread_mutex_t may_look_up = PTHREAD_MUTEX_INITIALIZER;

/* librdmacm's call, too: it takes as long as the test wants. */
__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
						       const struct addrinfo *hints, struct addrinfo **res)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

	pthread_mutex_lock(&may_look_up);
	pthread_mutex_unlock(&may_look_up);
	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	return real(node, service, hints, res);
}

static void lookup__is_one_at_a_time(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };

	(void)state;
	pthread_mutex_lock(&may_look_up);
	assert_ok(rdma_resolve_addrinfo(id, "nowhere.invalid", NULL, &hints));
	assert_refused(EBUSY, rdma_resolve_addrinfo(id, "nowhere.invalid", NULL, &hints));
	pthread_mutex_unlock(&may_look_up);
	rdma_ack_cm_event(expect(ch, RDMA_CM_EVENT_ADDRINFO_ERROR));
	drop_id(id);
}

/*
 * A peer that neither disconnects nor goes, which takes as long as all repetitions do: so a child does it
 * while the other cases run.
 */
static pid_t unconfirmed;

static bool is_refused(int err, int result) { return result == -1 && errno == err; }

static void never_confirm(void)
{
	struct rdma_cm_id *listener = new_listener(NULL, "127.0.0.1", RDMA_PS_TCP, 1), *client, *request;
	struct rdma_event_channel *channel = new_channel();
	struct rdma_conn_param param = some_param(), answer = some_param();

	client = new_resolved(channel, "127.0.0.1", rdma_get_src_port(listener), RDMA_PS_TCP);
	assert_ok(rdma_connect(client, &param));
	assert_ok(rdma_get_request(listener, &request));
	assert_ok(rdma_migrate_id(request, channel));
	assert_ok(rdma_accept(request, &answer));
	expect_acked(channel, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ok(rdma_establish(client));
	expect_acked(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_ok(rdma_migrate_id(client, NULL));
	_exit(is_refused(ETIMEDOUT, rdma_disconnect(client)) ? 0 : 1);
}

static void disconnect__is_never_confirmed(void **state)
{
	int status = -1;

	(void)state;
	assert_int_equal(waitpid(unconfirmed, &status, 0), unconfirmed);
	assert_int_equal(status, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(memory__of_channels_and_ids),
		CASE(memory__of_resolutions),
		CASE(memory__of_connections),
		CASE(memory__of_queues),
		CASE(memory__of_groups),
		CASE(memory__of_lookups),
		CASE(memory__of_a_requests_queues),
		CASE(descriptors__run_out),
		CASE(interface__is_no_device),
		CASE(interface__has_a_silent_neighbour),
		CASE(get_request__waits_no_longer),
		CASE(accept__the_peer_changes_its_mind),
		CASE(lookup__is_one_at_a_time),
		CASE(disconnect__is_never_confirmed),
	};

	if (!netns_enter() || !netns_add_wire()) {
		printf("1..0 # SKIP no network of its own\n");
		return 0;
	}
	unconfirmed = fork();
	if (!unconfirmed)
		never_confirm();
	return cmocka_run_group_tests_name("rdmacm_refusals", tests, NULL, NULL);
}
