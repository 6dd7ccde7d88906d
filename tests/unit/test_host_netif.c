/* SPDX-License-Identifier: BSD-2-Clause */
#include "child.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "host/host.h"

static struct in6_addr ip(const char *text)
{
	struct in6_addr a;
	char mapped[64];
	snprintf(mapped, sizeof mapped, strchr(text, ':') ? "%s" : "::ffff:%s", text);
	if (inet_pton(AF_INET6, mapped, &a) != 1)
		abort();
	return a;
}

static bool is_local(const char *text)
{
	struct in6_addr a = ip(text);
	return vb_netif_is_local(&a);
}

static int class_of(const struct in6_addr *a)
{
	return IN6_IS_ADDR_V4MAPPED(a) ? 0 : IN6_IS_ADDR_LINKLOCAL(a) ? 1 : 2;
}

static void netif_list__is_ordered_and_plausible(void **state)
{
	struct vb_netif *list;
	unsigned count;

	assert_int_equal(vb_netif_list(&list, &count), 0);
	assert_true(count > 0);
	for (unsigned i = 0; i < count; i++) {
		const struct vb_netif *n = &list[i];
		assert_int_equal(n->index, if_nametoindex(n->name));
		assert_true(n->mtu >= 68);
		if (i)
			assert_true(n->loopback > n[-1].loopback ||
				    (n->loopback == n[-1].loopback && n->index > n[-1].index));
		for (unsigned j = 1; j < n->naddrs; j++) {
			assert_true(class_of(&n->addrs[j - 1].ip) <= class_of(&n->addrs[j].ip));
			assert_memory_not_equal(&n->addrs[j - 1].ip, &n->addrs[j].ip,
						sizeof(struct in6_addr));
		}
	}
	assert_true(list[count - 1].loopback);
	free(list);
}

static void netif_is_local__knows_own_addresses(void **state)
{
	struct vb_netif *list;
	unsigned count;

	assert_int_equal(vb_netif_list(&list, &count), 0);
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < list[i].naddrs; j++)
			assert_true(vb_netif_is_local(&list[i].addrs[j].ip));
	free(list);
	assert_true(is_local("127.0.0.1"));
	assert_true(is_local("127.200.3.4"));
	assert_true(is_local("::1"));
	assert_false(is_local("203.0.113.77"));
	assert_false(is_local("2001:db8::77"));
	assert_false(is_local("0.0.0.0"));
	assert_false(is_local("::"));
}

/* ---- changes, in a network namespace of the test's own ---- */

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* As root, or as root of a new user namespace. */
static bool enter_network_namespace(void)
{
	char map[64];
	uid_t uid = geteuid();
	if (unshare(CLONE_NEWNET) == 0)
		return true;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return false;
	snprintf(map, sizeof map, "0 %u 1", uid);
	return write_file("/proc/self/uid_map", map);
}

/* Brings lo up and replaces the address with the label lo:1. */
static bool set_loopback(const char *address)
{
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo:1" },
		     up = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_LOOPBACK };
	struct sockaddr_in in = { .sin_family = AF_INET };
	inet_pton(AF_INET, address, &in.sin_addr);
	memcpy(&r.ifr_addr, &in, sizeof in);
	bool ok = ioctl(sock, SIOCSIFFLAGS, &up) == 0 && ioctl(sock, SIOCSIFADDR, &r) == 0;
	close(sock);
	return ok;
}

static atomic_uint changes;
static void count_changes(void *arg) { (*(atomic_uint *)arg)++; }

enum { NO_NAMESPACE = 2 };

static void change_addresses(int sock)
{
	if (!enter_network_namespace())
		_exit(NO_NAMESPACE);
	CHILD_CHECK(vb_host_get() == 0);
	CHILD_CHECK(vb_netif_watch(count_changes, &changes) == 0);
	CHILD_CHECK(!is_local("198.51.100.9"));
	CHILD_CHECK(set_loopback("198.51.100.9"));
	CHILD_CHECK(WAIT_FOR(changes > 0));
	CHILD_CHECK(is_local("198.51.100.9"));
	unsigned before = changes;
	CHILD_CHECK(set_loopback("198.51.100.10"));
	CHILD_CHECK(WAIT_FOR(changes > before));
	CHILD_CHECK(WAIT_FOR(!is_local("198.51.100.9")));
	CHILD_CHECK(is_local("198.51.100.10"));

	struct vb_netif *list;
	unsigned count;
	CHILD_CHECK(vb_netif_list(&list, &count) == 0);
	CHILD_CHECK(list[count - 1].loopback && list[count - 1].up);
	struct in6_addr expected = ip("198.51.100.10");
	CHILD_CHECK(list[count - 1].naddrs >= 2); /* 127.0.0.1 came first */
	CHILD_CHECK(IN6_ARE_ADDR_EQUAL(&list[count - 1].addrs[1].ip, &expected));
	CHILD_CHECK(list[count - 1].addrs[1].prefix_len == 24);
	free(list);
}

static int spare_fds;

static bool is_visited(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "verbatim/visit/%u", vb_slot_first());
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool is_there = connect(fd, (struct sockaddr *)&un,
				(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0;
	close(fd);
	return is_there;
}

/* What it had no descriptor for when it started comes later. */
static void change_addresses_after_a_lack(int sock)
{
	struct rlimit before, few;
	if (!enter_network_namespace())
		_exit(NO_NAMESPACE);
	int lowest = dup(sock);
	CHILD_CHECK(lowest >= 0 && !close(lowest) && !getrlimit(RLIMIT_NOFILE, &before));
	few = (struct rlimit){ (rlim_t)(lowest + spare_fds), before.rlim_max };
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	int err = vb_host_get();
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &before));
	CHILD_CHECK(!err || (err == -EMFILE && vb_host_get() == 0));
	CHILD_CHECK(vb_netif_watch(count_changes, &changes) == 0);
	CHILD_CHECK(set_loopback("198.51.100.9"));
	CHILD_CHECK(WAIT_FOR(changes > 0));
	CHILD_CHECK(WAIT_FOR(is_visited()));
}

/* Without the host there are no notices: the cache expires by itself. */
static void change_addresses_without_notices(int sock)
{
	if (!enter_network_namespace())
		_exit(NO_NAMESPACE);
	CHILD_CHECK(set_loopback("198.51.100.9"));
	CHILD_CHECK(WAIT_FOR(is_local("198.51.100.9")));
	CHILD_CHECK(set_loopback("198.51.100.10"));
	CHILD_CHECK(WAIT_FOR(is_local("198.51.100.10")));
	CHILD_CHECK(WAIT_FOR(!is_local("198.51.100.9")));
}

static bool loopback_has(const char *address)
{
	struct vb_netif *list;
	unsigned count;
	struct in6_addr wanted = ip(address);
	bool found = false;

	if (vb_netif_list(&list, &count))
		return false;
	for (unsigned i = 0; i < list[count - 1].naddrs; i++)
		found |= IN6_ARE_ADDR_EQUAL(&list[count - 1].addrs[i].ip, &wanted);
	free(list);
	return found;
}

enum { CHANGES = 200 };

/* No change may be missed, whoever reads the news of it first. */
static void list_after_each_change(int sock)
{
	char address[32], last[32] = "198.51.100.9";

	if (!enter_network_namespace())
		_exit(NO_NAMESPACE);
	CHILD_CHECK(vb_host_get() == 0);
	for (unsigned i = 10; i < CHANGES; i++) {
		snprintf(address, sizeof address, "198.51.100.%u", i);
		CHILD_CHECK(set_loopback(address));
		CHILD_CHECK(loopback_has(address) && !loopback_has(last));
		CHILD_CHECK(loopback_has(address));
		memcpy(last, address, sizeof last);
	}
}

static const struct vb_netif *find_by_name(const struct vb_netif *list, unsigned count, const char *name)
{
	for (unsigned i = 0; i < count; i++)
		if (!strcmp(list[i].name, name))
			return &list[i];
	return NULL;
}

/*
 * This namespace has a speed that /sys, which was mounted in another one, does not know. The list fails while
 * the process has no descriptor left, and is whole once it has one. A macvlan has the speed that its lower
 * interface tells, which the driver of that one only claims.
 */
static void list_an_ethernet(int sock)
{
	struct vb_netif *list;
	unsigned count;
	struct rlimit few;

	if (!enter_network_namespace() ||
	    system("exec >&2; ip link add wire type veth peer name other && ip link set wire up"))
		_exit(NO_NAMESPACE);
	bool has_macvlan =
		!system("exec >&2; ip link add above link wire type macvlan && ip link set above up");
	int lowest = dup(sock);
	CHILD_CHECK(lowest >= 0 && !close(lowest) && !getrlimit(RLIMIT_NOFILE, &few));
	few.rlim_cur = (rlim_t)lowest;
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	CHILD_CHECK(vb_netif_list(&list, &count) == -EMFILE);
	few.rlim_cur++;
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	CHILD_CHECK(vb_netif_list(&list, &count) == 0);
	const struct vb_netif *wire = find_by_name(list, count, "wire"),
			      *above = find_by_name(list, count, "above");
	CHILD_CHECK(wire && wire->mtu == 1500 && wire->speed_mbps == 0);
	if (has_macvlan)
		CHILD_CHECK(above && above->speed_mbps == 10000);
	else
		fprintf(stderr, "this kernel has no macvlan, whose speed would be looked at\n");
	free(list);
}

static void run_in_namespace(void (*body)(int))
{
	struct child c = child_start(body);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	int status = child_end(&c);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_NAMESPACE)
		SKIP("no network namespace can be made here");
	assert_int_equal(status, 0);
}

static void netif_list__tells_speeds_of_this_namespace(void **state)
{
	if (!kernel_tells_speeds())
		SKIP(NO_SPEEDS);
	run_in_namespace(list_an_ethernet);
}

static void netif_watch__tells_changes(void **state) { run_in_namespace(change_addresses); }

static void netif_watch__tells_changes_whatever_was_lacking(void **state)
{
	for (spare_fds = 0; spare_fds < 12; spare_fds++)
		run_in_namespace(change_addresses_after_a_lack);
}

static void netif_list__has_each_change_at_once(void **state) { run_in_namespace(list_after_each_change); }

static void netif_is_local__follows_changes_without_notices(void **state)
{
	run_in_namespace(change_addresses_without_notices);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(netif_list__is_ordered_and_plausible),
		cmocka_unit_test(netif_is_local__knows_own_addresses),
		cmocka_unit_test(netif_list__tells_speeds_of_this_namespace),
		cmocka_unit_test(netif_watch__tells_changes),
		cmocka_unit_test(netif_watch__tells_changes_whatever_was_lacking),
		cmocka_unit_test(netif_list__has_each_change_at_once),
		cmocka_unit_test(netif_is_local__follows_changes_without_notices),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
