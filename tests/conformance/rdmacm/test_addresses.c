/* SPDX-License-Identifier: BSD-2-Clause */
/* Binding, ports, address and route resolution, rdma_getaddrinfo. */
#include <netdb.h>

#include <infiniband/ib.h>
#include <rdma/rsocket.h>
#include <sched.h>
#include <sys/resource.h>

#include "../../kernel.h"
#include "cm.h"

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

/* ---- bind ---- */

static void bind_specific(const char *ip)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address a = address(ip, 0);

	assert_ok(rdma_bind_addr(id, sockaddr(&a)));
	assert_non_null(id->verbs);
	assert_non_null(id->pd);
	assert_int_equal(id->port_num, 1);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	a = with_port(a, rdma_get_src_port(id));
	assert_memory_equal(rdma_get_local_addr(id), sockaddr(&a), a.sa.ss_family == AF_INET ? 8 : 24);
	assert_refused(EINVAL, rdma_bind_addr(id, sockaddr(&a)));
	assert_ok(rdma_destroy_id(id));
}

static void bind__specific_address_ties_to_a_device(void **state)
{
	(void)state;
	on_each_address(bind_specific);
}

static void bind_wildcard(const char *ip)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address any = address(ip, 0);

	assert_ok(rdma_bind_addr(id, sockaddr(&any)));
	assert_null(id->verbs);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	assert_ok(rdma_destroy_id(id));
}

static void bind_answer(const char *node, const char *service, bool ties)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *rai;
	struct sockaddr_storage copy = { 0 };
	struct rdma_cm_id *id;

	assert_ok(rdma_getaddrinfo(node, service, &hints, &rai));
	memcpy(&copy, rai->ai_src_addr, rai->ai_src_len);
	rdma_freeaddrinfo(rai);
	assert_ok(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	assert_ok(rdma_bind_addr(id, (struct sockaddr *)&copy));
	assert_int_equal(id->verbs != NULL, ties);
	assert_int_equal(id->pd != NULL, ties);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	assert_ok(rdma_listen(id, 1));
	assert_ok(rdma_destroy_id(id));
}

/*
 * An address is an address, whoever wrote it down. By its name this host is none of its devices: so libfabric
 * asks for all of them.
 */
static void bind__what_a_name_or_an_address_means(void **state)
{
	(void)state;
	bind_answer("127.0.0.1", NULL, true);
	bind_answer("127.0.0.1", "7471", true);
	if (is_here("::1"))
		bind_answer("::1", NULL, true);
	if (!gethostbyname("localhost"))
		return;
	bind_answer("localhost", NULL, false);
	bind_answer("localhost", "7471", true);
}

static void bind__wildcard_ties_to_none(void **state)
{
	(void)state;
	bind_wildcard("0.0.0.0");
	bind_wildcard("::");
}

static void bind__refusals(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address foreign = address("203.0.113.77", 0), odd = address("127.0.0.1", 0);
	struct address link_local = address("fe80::1234", 0);

	(void)state;
	assert_refused(EADDRNOTAVAIL, rdma_bind_addr(id, sockaddr(&foreign)));
	assert_null(id->verbs);
	assert_refused(EINVAL, rdma_bind_addr(id, sockaddr(&link_local)));
	odd.sa.ss_family = AF_UNIX;
	assert_refused(EINVAL, rdma_bind_addr(id, sockaddr(&odd)));
	assert_refused(EINVAL, rdma_bind_addr(id, NULL));
	odd.sa.ss_family = AF_INET;
	assert_ok(rdma_bind_addr(id, sockaddr(&odd))); /* the failures left nothing behind */
	assert_ok(rdma_destroy_id(id));
}

/* ---- ports for those who have a right to them ---- */

enum { PRIVILEGED = 111, ANYBODYS = 1024, OTHER_USER = 65533, NOT_POSSIBLE = 77 };

/* In a forked child, which has no cmocka to go back to. */
#define IS_REFUSED(err, call) (errno = 0, (call) == -1 && errno == (err))

/* By ids, by one whose address is reusable, and by rsockets alike: a port is refused, or it is not. */
static bool is_as_it_should(uint16_t port, bool refused)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct address a = address("0.0.0.0", port), src = address("127.0.0.1", port),
		       to = address("127.0.0.1", 7);
	struct rdma_cm_id *id, *reusable;
	int one = 1, fd = rsocket(AF_INET, SOCK_STREAM, 0);

	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
	    rdma_create_id(channel, &reusable, NULL, RDMA_PS_UDP) ||
	    rdma_set_option(reusable, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)) || fd < 0)
		return false;
	if (refused)
		return IS_REFUSED(EACCES, rdma_resolve_addr(id, sockaddr(&src), sockaddr(&to), 100)) &&
		       IS_REFUSED(EACCES, rdma_bind_addr(id, sockaddr(&a))) &&
		       IS_REFUSED(EACCES, rdma_bind_addr(reusable, sockaddr(&a))) &&
		       IS_REFUSED(EACCES, rbind(fd, sockaddr(&a), sizeof(struct sockaddr_in)));
	return rdma_bind_addr(reusable, sockaddr(&a)) == 0 && rdma_bind_addr(id, sockaddr(&a)) == 0 &&
	       rdma_destroy_id(id) == 0 && rbind(fd, sockaddr(&a), sizeof(struct sockaddr_in)) == 0;
}

static bool become_other_user(void) { return setresuid(OTHER_USER, OTHER_USER, OTHER_USER) == 0; }
static bool stay(void) { return true; }

/* All rights in a namespace that has nothing to do with the network. */
static bool become_root_of_nothing(void) { return become_other_user() && unshare(CLONE_NEWUSER) == 0; }
static bool become_root_of_a_network(void)
{
	return become_other_user() && unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
}

static void expect_bind(bool (*become)(void), uint16_t port, bool refused)
{
	int status;
	pid_t pid = fork();

	assert_int_not_equal(pid, -1);
	if (pid == 0) {
		alarm(60);
		_exit(!become() ? NOT_POSSIBLE : is_as_it_should(port, refused) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NOT_POSSIBLE)
		print_message("# not tried as another user\n");
	else
		assert_int_equal(WEXITSTATUS(status), 0);
}

static bool set_first_port(const char *text)
{
	int fd = open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return done;
}

/* Root need not be root of this network: it may be so of a container's user namespace alone. */
static bool kernel_refuses(uint16_t port)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool refuses = bind(fd, (struct sockaddr *)&any, sizeof(any)) && errno == EACCES;

	assert_true(fd >= 0);
	close(fd);
	return refuses;
}

static void bind__a_low_port_takes_a_right_to_it(void **state)
{
	(void)state;
	expect_bind(become_other_user, PRIVILEGED, true);
	expect_bind(become_other_user, ANYBODYS, false);
	expect_bind(become_root_of_nothing, PRIVILEGED, true);
	expect_bind(become_root_of_a_network, PRIVILEGED, false);
	expect_bind(stay, PRIVILEGED, kernel_refuses(PRIVILEGED));
	if (!set_first_port("100"))
		return;
	expect_bind(become_other_user, PRIVILEGED, false);
	assert_true(set_first_port("2000"));
	expect_bind(become_other_user, ANYBODYS, true);
	assert_true(set_first_port("1024"));
}

/* ---- conflicts ---- */

/* first is bound; second on the same port number gives err (0: is fine). */
static void two_binds(const char *first, enum rdma_port_space first_ps, const char *second,
		      enum rdma_port_space second_ps, int err)
{
	if (!is_here(first) || !is_here(second))
		return;
	struct rdma_cm_id *a = new_id(ch, first_ps), *b = new_id(ch, second_ps);
	struct address x = address(first, 0), y;

	assert_ok(rdma_bind_addr(a, sockaddr(&x)));
	y = with_port(address(second, 0), rdma_get_src_port(a));
	if (err)
		assert_refused(err, rdma_bind_addr(b, sockaddr(&y)));
	else
		assert_ok(rdma_bind_addr(b, sockaddr(&y)));
	assert_ok(rdma_destroy_id(a));
	if (err)
		assert_ok(rdma_bind_addr(b, sockaddr(&y))); /* free again */
	assert_ok(rdma_destroy_id(b));
}

static void bind__conflicts(void **state)
{
	char eth[INET6_ADDRSTRLEN];

	(void)state;
	two_binds("127.0.0.1", RDMA_PS_TCP, "127.0.0.1", RDMA_PS_TCP, EADDRINUSE);
	two_binds("127.0.0.1", RDMA_PS_TCP, "127.0.0.1", RDMA_PS_UDP, 0);
	two_binds("127.0.0.1", RDMA_PS_TCP, "::1", RDMA_PS_TCP, 0);
	two_binds("0.0.0.0", RDMA_PS_TCP, "0.0.0.0", RDMA_PS_TCP, EADDRINUSE);
	two_binds("0.0.0.0", RDMA_PS_TCP, "127.0.0.1", RDMA_PS_TCP, EADDRINUSE);
	two_binds("127.0.0.1", RDMA_PS_TCP, "0.0.0.0", RDMA_PS_TCP, EADDRINUSE);
	two_binds("::", RDMA_PS_TCP, "0.0.0.0", RDMA_PS_TCP, EADDRINUSE);
	two_binds("::", RDMA_PS_TCP, "127.0.0.1", RDMA_PS_TCP, EADDRINUSE);
	two_binds("::1", RDMA_PS_TCP, "::", RDMA_PS_TCP, EADDRINUSE);
	two_binds("0.0.0.0", RDMA_PS_TCP, "::1", RDMA_PS_TCP, 0);
	if (ethernet_address(eth)) {
		two_binds("127.0.0.1", RDMA_PS_TCP, eth, RDMA_PS_TCP, 0);
		two_binds(eth, RDMA_PS_TCP, "0.0.0.0", RDMA_PS_TCP, EADDRINUSE);
	}
}

static void bind__ipv6_only_leaves_ipv4_alone(void **state)
{
	struct rdma_cm_id *six = new_id(ch, RDMA_PS_TCP), *four = new_id(ch, RDMA_PS_TCP);
	struct address any6 = address("::", 0), any4 = address("0.0.0.0", 0);
	int one = 1;

	(void)state;
	assert_ok(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one)));
	assert_ok(rdma_bind_addr(six, sockaddr(&any6)));
	any4 = with_port(any4, rdma_get_src_port(six));
	assert_ok(rdma_bind_addr(four, sockaddr(&any4)));
	assert_ok(rdma_destroy_id(six));
	assert_ok(rdma_destroy_id(four));
}

static void bind__reusable_until_one_listens(void **state)
{
	struct rdma_cm_id *a = new_id(ch, RDMA_PS_TCP), *b = new_id(ch, RDMA_PS_TCP);
	struct address lo = address("127.0.0.1", 0);
	int one = 1;

	(void)state;
	assert_ok(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
	assert_ok(rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
	assert_ok(rdma_bind_addr(a, sockaddr(&lo)));
	lo = with_port(lo, rdma_get_src_port(a));
	assert_ok(rdma_bind_addr(b, sockaddr(&lo)));
	assert_ok(rdma_listen(a, 1));
	assert_refused(EADDRINUSE, rdma_listen(b, 1));
	assert_ok(rdma_destroy_id(a));
	assert_ok(rdma_listen(b, 1));
	assert_ok(rdma_destroy_id(b));
}

static struct rdma_cm_id *new_reusable(void)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	int one = 1;

	assert_ok(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
	return id;
}

/* The first one is not reusable, or it listens. Servers try one port after the other until they are bound. */
static void reusable_finds(const char *first, bool listens, const char *second)
{
	if (!is_here(first) || !is_here(second))
		return;
	struct rdma_cm_id *a = listens ? new_reusable() : new_id(ch, RDMA_PS_TCP), *b = new_reusable();
	struct address x = address(first, 0), y;

	assert_ok(rdma_bind_addr(a, sockaddr(&x)));
	if (listens)
		assert_ok(rdma_listen(a, 1));
	y = with_port(address(second, 0), rdma_get_src_port(a));
	assert_refused(EADDRINUSE, rdma_bind_addr(b, sockaddr(&y)));
	assert_ok(rdma_destroy_id(a));
	assert_ok(rdma_bind_addr(b, sockaddr(&y)));
	assert_ok(rdma_listen(b, 1));
	assert_ok(rdma_destroy_id(b));
}

static void bind__reusable_finds_the_port_in_use(void **state)
{
	(void)state;
	for (int listens = 0; listens < 2; listens++) {
		reusable_finds("127.0.0.1", listens, "127.0.0.1");
		reusable_finds("127.0.0.1", listens, "0.0.0.0");
		reusable_finds("0.0.0.0", listens, "127.0.0.1");
		reusable_finds("0.0.0.0", listens, "::");
		reusable_finds("::", listens, "127.0.0.1");
	}
}

/* So many that some would get the same number if each were chosen alone. */
static void bind__chosen_ports_differ(void **state)
{
	enum { COUNT = 800, SPARE = 100 };
	struct rdma_cm_id *ids[COUNT];
	struct address lo = address("127.0.0.1", 0);
	struct rlimit before, raised;
	bool seen[1 << 16] = { false };

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	raised = before;
	if (raised.rlim_cur < COUNT + SPARE)
		raised.rlim_cur = COUNT + SPARE;
	if (setrlimit(RLIMIT_NOFILE, &raised))
		SKIP("too few descriptors are allowed here");
	for (int i = 0; i < COUNT; i++) {
		ids[i] = i % 2 ? new_id(ch, RDMA_PS_TCP) : new_reusable();
		assert_ok(rdma_bind_addr(ids[i], sockaddr(&lo)));
		uint16_t port = ntohs(rdma_get_src_port(ids[i]));
		assert_false(seen[port]);
		seen[port] = true;
	}
	for (int i = 0; i < COUNT; i++)
		assert_ok(rdma_destroy_id(ids[i]));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void listen__states(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address("127.0.0.1", 7);

	(void)state;
	assert_ok(rdma_listen(id, 0)); /* binds itself to any address and port */
	assert_int_not_equal(rdma_get_src_port(id), 0);
	assert_refused(EINVAL, rdma_listen(id, 0));
	assert_refused(EINVAL, rdma_resolve_addr(id, NULL, sockaddr(&to), 100));
	assert_refused(EINVAL, rdma_bind_addr(id, sockaddr(&to)));
	assert_ok(rdma_destroy_id(id));
	id = new_reusable(); /* which takes the port that it is bound to only here */
	assert_ok(rdma_listen(id, 0));
	assert_int_not_equal(rdma_get_src_port(id), 0);
	assert_ok(rdma_destroy_id(id));
}

/* ---- resolve ---- */

static void resolve_local(const char *ip)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address(ip, 4321);
	size_t ip_bytes = to.sa.ss_family == AF_INET ? 8 : 24;

	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), 2000));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(event->id, id);
	assert_int_equal(event->status, 0);
	assert_ok(rdma_ack_cm_event(event));
	assert_non_null(id->verbs);
	assert_int_equal(id->port_num, 1);
	assert_memory_equal(rdma_get_peer_addr(id), sockaddr(&to), ip_bytes);
	assert_int_equal(rdma_get_dst_port(id), htons(4321));
	assert_int_not_equal(rdma_get_src_port(id), 0);
	assert_int_equal(rdma_get_local_addr(id)->sa_family, to.sa.ss_family);
	assert_refused(EINVAL, rdma_resolve_addr(id, NULL, sockaddr(&to), 2000));
	assert_null(id->route.path_rec);
	assert_ok(rdma_resolve_route(id, 2000));
	expect_acked(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	assert_int_equal(id->route.num_paths, 1);
	assert_memory_equal(&id->route.path_rec->dgid, &id->route.addr.addr.ibaddr.dgid, 16);
	assert_memory_equal(&id->route.path_rec->sgid, &id->route.addr.addr.ibaddr.sgid, 16);
	assert_refused(EINVAL, rdma_resolve_route(id, 2000));
	assert_ok(rdma_destroy_id(id));
}

static void resolve__fills_the_id(void **state)
{
	(void)state;
	on_each_address(resolve_local);
}

/* The source GID is in the table of the device that the id is tied to. */
static void source_gid_belongs_to_device(const char *ip)
{
	struct rdma_cm_id *id = new_resolved(ch, ip, htons(1), RDMA_PS_TCP);
	struct ibv_gid_entry table[256];
	ssize_t count = ibv_query_gid_table(id->verbs, table, 256, 0);
	bool found = false;

	for (ssize_t i = 0; i < count; i++)
		found = found || memcmp(&table[i].gid, &id->route.addr.addr.ibaddr.sgid, 16) == 0;
	assert_true(found);
	assert_ok(rdma_destroy_id(id));
}

static void resolve__source_gid_belongs_to_the_device(void **state)
{
	(void)state;
	on_each_address(source_gid_belongs_to_device);
}

static void resolve_any(const char *any, const char *loopback)
{
	if (!is_here(loopback))
		return;
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address to = address(any, 4321), lo = address(loopback, 4321);

	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), 2000));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_memory_equal(rdma_get_peer_addr(id), sockaddr(&lo), to.sa.ss_family == AF_INET ? 8 : 24);
	assert_ok(rdma_destroy_id(id));
}

static void resolve__wildcard_means_this_host(void **state)
{
	(void)state;
	resolve_any("0.0.0.0", "127.0.0.1");
	resolve_any("::", "::1");
}

static void resolve_with_source(const char *ip)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address from = address(ip, 0), to = address(ip, 99);

	assert_ok(rdma_resolve_addr(id, sockaddr(&from), sockaddr(&to), 2000));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	from = with_port(from, rdma_get_src_port(id));
	assert_memory_equal(rdma_get_local_addr(id), sockaddr(&from), from.sa.ss_family == AF_INET ? 8 : 24);
	assert_ok(rdma_destroy_id(id));

	id = new_id(ch, RDMA_PS_TCP); /* bound before */
	assert_ok(rdma_bind_addr(id, sockaddr(&from)));
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&to), 2000));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_memory_equal(rdma_get_local_addr(id), sockaddr(&from), from.sa.ss_family == AF_INET ? 8 : 24);
	assert_ok(rdma_destroy_id(id));
}

static void resolve__with_source(void **state)
{
	(void)state;
	on_each_address(resolve_with_source);
}

static void resolve__refusals(void **state)
{
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address four = address("127.0.0.1", 7), six = address("::1", 7),
		       foreign = address("203.0.113.77", 0);
	struct address odd = four;

	(void)state;
	odd.sa.ss_family = AF_UNIX;
	assert_refused(EINVAL, rdma_resolve_addr(NULL, NULL, sockaddr(&four), 100));
	assert_refused(EINVAL, rdma_resolve_addr(id, NULL, NULL, 100));
	assert_refused(EINVAL, rdma_resolve_addr(id, NULL, sockaddr(&odd), 100));
	assert_refused(EINVAL, rdma_resolve_addr(id, sockaddr(&six), sockaddr(&four), 100));
	assert_refused(EADDRNOTAVAIL, rdma_resolve_addr(id, sockaddr(&foreign), sockaddr(&four), 100));
	assert_false(readable(ch->fd, 0));
	assert_ok(rdma_resolve_addr(id, NULL, sockaddr(&four), 100)); /* the failures left nothing behind */
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_ok(rdma_destroy_id(id));
}

/* ---- rdma_getaddrinfo ---- */

static void addrinfo__active(void **state)
{
	struct rdma_addrinfo *res = NULL, hints = { .ai_port_space = RDMA_PS_TCP };

	(void)state;
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), 0);
	assert_int_equal(res->ai_family, AF_INET);
	assert_int_equal(res->ai_qp_type, IBV_QPT_RC);
	assert_int_equal(res->ai_port_space, RDMA_PS_TCP);
	assert_int_equal(res->ai_dst_len, sizeof(struct sockaddr_in));
	assert_int_equal(((struct sockaddr_in *)res->ai_dst_addr)->sin_port, htons(7471));
	assert_int_equal(((struct sockaddr_in *)res->ai_dst_addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	assert_int_equal(res->ai_src_len, 0);
	assert_null(res->ai_next);
	rdma_freeaddrinfo(res);
	rdma_freeaddrinfo(NULL);
}

static void addrinfo__passive(void **state)
{
	struct rdma_addrinfo *res = NULL, hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };

	(void)state;
	assert_int_equal(rdma_getaddrinfo(NULL, "7471", &hints, &res), 0);
	assert_int_equal(res->ai_flags & RAI_PASSIVE, RAI_PASSIVE);
	assert_non_null(res->ai_src_addr);
	assert_int_equal(res->ai_dst_len, 0);
	assert_int_equal(((struct sockaddr_in *)res->ai_src_addr)->sin_port, htons(7471));
	rdma_freeaddrinfo(res);
	assert_int_equal(rdma_getaddrinfo("::1", "7471", &hints, &res), 0);
	assert_int_equal(res->ai_family, AF_INET6);
	assert_int_equal(res->ai_src_len, sizeof(struct sockaddr_in6));
	rdma_freeaddrinfo(res);
}

static void addrinfo__kinds_of_service(void **state)
{
	static const struct {
		int ps, qp_type, ps_out, qp_type_out;
	} cases[] = {
		{ 0, 0, RDMA_PS_TCP, IBV_QPT_RC },
		{ RDMA_PS_UDP, 0, RDMA_PS_UDP, IBV_QPT_UD },
		{ 0, IBV_QPT_UD, RDMA_PS_UDP, IBV_QPT_UD },
		{ RDMA_PS_IB, IBV_QPT_UC, RDMA_PS_IB, IBV_QPT_UC },
		{ RDMA_PS_IB, IBV_QPT_UD, RDMA_PS_IB, IBV_QPT_UD },
		{ RDMA_PS_TCP, IBV_QPT_RC, RDMA_PS_TCP, IBV_QPT_RC },
	};
	struct rdma_addrinfo *res;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct rdma_addrinfo hints = { .ai_port_space = cases[i].ps, .ai_qp_type = cases[i].qp_type };
		assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), 0);
		assert_int_equal(res->ai_port_space, cases[i].ps_out);
		assert_int_equal(res->ai_qp_type, cases[i].qp_type_out);
		rdma_freeaddrinfo(res);
	}
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", NULL, &res), 0);
	assert_int_equal(res->ai_qp_type, IBV_QPT_RC);
	rdma_freeaddrinfo(res);
}

static void addrinfo__flags(void **state)
{
	struct rdma_addrinfo *res = NULL,
			     hints = { .ai_flags = RAI_NUMERICHOST | RAI_FAMILY, .ai_family = AF_INET6 };

	(void)state;
	assert_int_equal(rdma_getaddrinfo("::1", "1", &hints, &res), 0);
	rdma_freeaddrinfo(res);
	assert_int_not_equal(rdma_getaddrinfo("127.0.0.1", "1", &hints, &res), 0);
	hints.ai_family = 0;
	hints.ai_flags = RAI_NUMERICHOST;
	assert_int_equal(rdma_getaddrinfo("localhost", "1", &hints, &res), EAI_NONAME);
	hints = (struct rdma_addrinfo){ .ai_flags = RAI_NOROUTE };
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "1", &hints, &res), 0);
	assert_int_equal(res->ai_route_len, 0);
	rdma_freeaddrinfo(res);
	hints.ai_flags = 1 << 20;
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "1", &hints, &res), EAI_BADFLAGS);
}

/* perftest hints at a family without RAI_FAMILY, and takes the first result. */
static void addrinfo__family(void **state)
{
	static const int families[] = { AF_INET, AF_INET6 };
	struct rdma_addrinfo *res = NULL, hints = { .ai_flags = RAI_NUMERICHOST, .ai_family = AF_INET6 };

	(void)state;
	assert_int_not_equal(rdma_getaddrinfo("127.0.0.1", "1", &hints, &res), 0);
	hints.ai_family = AF_INET;
	assert_int_not_equal(rdma_getaddrinfo("::1", "1", &hints, &res), 0);
	hints.ai_family = AF_IB; /* which takes RAI_FAMILY */
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "1", &hints, &res), 0);
	assert_int_equal(res->ai_family, AF_INET);
	rdma_freeaddrinfo(res);
	hints.ai_flags = RAI_PASSIVE;
	for (int i = 0; i < 2; i++) {
		hints.ai_family = families[i];
		assert_int_equal(rdma_getaddrinfo(NULL, "1", &hints, &res), 0);
		for (struct rdma_addrinfo *r = res; r; r = r->ai_next)
			assert_int_equal(r->ai_family, families[i]);
		rdma_freeaddrinfo(res);
	}
}

/* Names of services, where there is a list of them; and of whatever host it may be. */
static void addrinfo__names(void **state)
{
	struct rdma_addrinfo *res = NULL, hints = { .ai_flags = RAI_DNS | RAI_FAMILY,
						    .ai_family = AF_INET,
						    .ai_port_space = RDMA_PS_TCP };
	struct servent *http = getservbyname("http", "tcp");

	(void)state;
	/* a chroot may have no names */
	const char *name = gethostbyname("localhost") ? "localhost" : "127.0.0.1";
	assert_int_equal(rdma_getaddrinfo(name, http ? "http" : "80", &hints, &res), 0);
	assert_int_equal(((struct sockaddr_in *)res->ai_dst_addr)->sin_port, htons(80));
	assert_int_equal(((struct sockaddr_in *)res->ai_dst_addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	assert_string_equal(res->ai_dst_canonname, name);
	rdma_freeaddrinfo(res);
	hints.ai_port_space = RDMA_PS_IPOIB;
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), 0);
	assert_int_equal(res->ai_port_space, RDMA_PS_IPOIB);
	assert_int_equal(res->ai_qp_type, IBV_QPT_UD);
	rdma_freeaddrinfo(res);
}

static void addrinfo__from_hints_alone(void **state)
{
	struct address src = address("127.0.0.1", 5), dst = address("127.0.0.1", 6);
	struct rdma_addrinfo *res = NULL, hints = { .ai_src_addr = sockaddr(&src),
						    .ai_src_len = sizeof(struct sockaddr_in),
						    .ai_dst_addr = sockaddr(&dst),
						    .ai_dst_len = sizeof(struct sockaddr_in),
						    .ai_port_space = RDMA_PS_TCP,
						    .ai_family = AF_INET };

	(void)state;
	assert_int_equal(rdma_getaddrinfo(NULL, NULL, &hints, &res), 0);
	assert_memory_equal(res->ai_src_addr, sockaddr(&src), sizeof(struct sockaddr_in));
	assert_memory_equal(res->ai_dst_addr, sockaddr(&dst), sizeof(struct sockaddr_in));
	assert_ptr_not_equal(res->ai_dst_addr, hints.ai_dst_addr);
	rdma_freeaddrinfo(res);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7", &hints, &res), 0);
	assert_memory_equal(res->ai_src_addr, sockaddr(&src), sizeof(struct sockaddr_in));
	assert_int_equal(((struct sockaddr_in *)res->ai_dst_addr)->sin_port, htons(7));
	rdma_freeaddrinfo(res);
}

static void addrinfo__refusals(void **state)
{
	struct rdma_addrinfo *res = NULL;

	(void)state;
	assert_refused(EINVAL, rdma_getaddrinfo(NULL, NULL, NULL, &res));
	assert_refused(EINVAL, rdma_getaddrinfo("127.0.0.1", NULL, NULL, NULL));
	assert_int_not_equal(rdma_getaddrinfo("127.0.0.1", "no-such-service", NULL, &res), 0);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", NULL, NULL, &res), 0);
	assert_int_equal(((struct sockaddr_in *)res->ai_dst_addr)->sin_port, 0);
	rdma_freeaddrinfo(res);
}

/* With RoCEv2 a GID is an IP address; the service id has port space and port in it. */
static void gid__is_an_address(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST | RAI_FAMILY | RAI_PASSIVE,
				       .ai_family = AF_IB,
				       .ai_port_space = RDMA_PS_TCP },
			     *found;
	struct rdma_cm_id *listener = new_id(ch, RDMA_PS_TCP), *client = new_id(ch, RDMA_PS_TCP);
	struct rdma_conn_param param = some_param();

	assert_int_equal(rdma_getaddrinfo("::ffff:127.0.0.1", "0", &hints, &found), 0);
	assert_int_equal(found->ai_family, AF_IB);
	assert_int_equal(found->ai_src_len, sizeof(struct sockaddr_ib));
	assert_ok(rdma_bind_addr(listener, found->ai_src_addr));
	assert_ok(rdma_listen(listener, 1));
	rdma_freeaddrinfo(found);
	struct sockaddr_ib own;
	memcpy(&own, rdma_get_local_addr(listener), sizeof(own));
	assert_int_equal(own.sib_family, AF_IB);
	assert_true(be64toh(own.sib_sid) ==
		    ((uint64_t)RDMA_PS_TCP << 16 | ntohs(rdma_get_src_port(listener))));
	assert_int_equal(own.sib_addr.sib_raw[12], 127);

	assert_ok(rdma_resolve_addr(client, NULL, (struct sockaddr *)&own, 2000));
	expect_acked(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_int_equal(rdma_get_local_addr(client)->sa_family, AF_IB);
	assert_int_equal(rdma_get_dst_port(client), rdma_get_src_port(listener));
	assert_ok(rdma_resolve_route(client, 2000));
	expect_acked(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	assert_ok(rdma_connect(client, &param));
	struct rdma_cm_event *event = expect(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_destroy_id(client));
	assert_ok(rdma_destroy_id(server));
	assert_ok(rdma_destroy_id(listener));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gid__is_an_address),
		cmocka_unit_test(bind__specific_address_ties_to_a_device),
		cmocka_unit_test(bind__what_a_name_or_an_address_means),
		cmocka_unit_test(bind__wildcard_ties_to_none),
		cmocka_unit_test(bind__refusals),
		cmocka_unit_test(bind__a_low_port_takes_a_right_to_it),
		cmocka_unit_test(bind__conflicts),
		cmocka_unit_test(bind__ipv6_only_leaves_ipv4_alone),
		cmocka_unit_test(bind__reusable_until_one_listens),
		cmocka_unit_test(bind__reusable_finds_the_port_in_use),
		cmocka_unit_test(bind__chosen_ports_differ),
		cmocka_unit_test(listen__states),
		cmocka_unit_test(resolve__fills_the_id),
		cmocka_unit_test(resolve__source_gid_belongs_to_the_device),
		cmocka_unit_test(resolve__wildcard_means_this_host),
		cmocka_unit_test(resolve__with_source),
		cmocka_unit_test(resolve__refusals),
		cmocka_unit_test(addrinfo__active),
		cmocka_unit_test(addrinfo__passive),
		cmocka_unit_test(addrinfo__kinds_of_service),
		cmocka_unit_test(addrinfo__flags),
		cmocka_unit_test(addrinfo__family),
		cmocka_unit_test(addrinfo__names),
		cmocka_unit_test(addrinfo__from_hints_alone),
		cmocka_unit_test(addrinfo__refusals),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
