/* SPDX-License-Identifier: BSD-2-Clause */
/* UDP 4791 in a network namespace of the test's own. */
#include "../between.h"
#include "child.h"
#include "netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netpacket/packet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/inet.h"
#include "host/udp/udp.h"

enum { PAYLOAD = 4096, LOOPBACK = 1 /* its interface index */, HELD_US = 20000, FEW = 32 };
enum { CROWD = 60, CROWDS = 50 };

/* The length of what a child sends while both have the port: it may come to either, and at any time. */
enum { CHILDS_BYTES = 31 };

static atomic_uint yields;

int sched_yield(void)
{
	atomic_fetch_add(&yields, 1);
	return (int)syscall(SYS_sched_yield);
}

static struct in6_addr ip(const char *text)
{
	struct in6_addr a;
	char mapped[64];
	snprintf(mapped, sizeof mapped, strchr(text, ':') ? "%s" : "::ffff:%s", text);
	if (inet_pton(AF_INET6, mapped, &a) != 1)
		abort();
	return a;
}

static struct vb_inbox_addr flow(const char *from, const char *to, uint16_t wanted)
{
	struct vb_inbox_addr a = {
		.src = ip(from), .dst = ip(to), .traffic_class = 0x68, .hop_limit = 33, .flow_label = 0x12345
	};
	a.udp_sport = wanted;
	a.udp_sport = vb_udp_source_port(&a);
	return a;
}

static uint16_t port_for(bool ipv4, uint16_t wanted)
{
	return ipv4 ? flow("127.0.0.1", "127.0.0.1", wanted).udp_sport : flow("::1", "::1", wanted).udp_sport;
}

/* ---- what arrived ---- */

static struct {
	atomic_uint packets, batches;
	atomic_size_t bytes;
	atomic_bool in_order; /* each packet's first byte counts up */
	atomic_bool congested;
	struct vb_udp_packet last;
	uint8_t last_bytes[PAYLOAD];
	atomic_bool hold;
	atomic_uint passing; /* so many packets are not held */
	atomic_bool is_held;
	atomic_bool hold_end, end_is_held; /* of batches */
} got;

static void packet_arrived(const struct vb_udp_packet *p)
{
	if (p->len == CHILDS_BYTES)
		return;
	if (p->bytes[0] != (uint8_t)got.packets)
		got.in_order = false;
	got.last = *p;
	memcpy(got.last_bytes, p->bytes, p->len < PAYLOAD ? p->len : PAYLOAD);
	got.bytes += p->len;
	got.congested = got.congested || vb_inet_is_congested(p->addr.traffic_class);
	got.is_held = true;
	while (got.hold && got.packets >= got.passing)
		usleep(100);
	got.is_held = false;
	got.packets++;
}

static void batch_done(void)
{
	got.batches++;
	if (!got.hold_end || got.end_is_held)
		return;
	got.end_is_held = true;
	while (got.hold_end)
		usleep(100);
	got.end_is_held = false;
}

static int start(void **state)
{
	vb_udp_set_handler(packet_arrived, batch_done);
	return vb_host_get() || vb_udp_open();
}

static void nothing(void *unused) {}

/*
 * Packets of the case before end first: the progress thread is through with those that it has, and wakes for
 * no more; what is left is taken here.
 */
static int reset(void **state)
{
	got.hold = got.hold_end = false;
	vb_udp_watch(false);
	int err = vb_loop_call(nothing, NULL);
	while (!vb_udp_drain())
		usleep(100);
	got.packets = got.batches = got.passing = 0;
	got.bytes = 0;
	got.in_order = true;
	got.congested = got.is_held = got.end_is_held = false;
	vb_udp_watch(true);
	return err;
}

/* Packets that start with their number. */
static const uint8_t *numbered(unsigned count, size_t segment)
{
	static uint8_t bytes[VB_UDP_MAX_BYTES];
	for (unsigned i = 0; i < count; i++)
		memset(bytes + i * segment, (int)i, segment);
	return bytes;
}

/* ---- opening ---- */

static void open__is_done_once(void **state)
{
	assert_true(vb_udp_is_open());
	assert_int_equal(vb_udp_open(), 0);
}

/* ---- both directions ---- */

static void check_packet(const struct vb_inbox_addr *sent)
{
	assert_memory_equal(&got.last.addr.src, &sent->src, sizeof sent->src);
	assert_memory_equal(&got.last.addr.dst, &sent->dst, sizeof sent->dst);
	assert_int_equal(got.last.addr.udp_sport, sent->udp_sport);
	assert_int_equal(got.last.addr.traffic_class, sent->traffic_class);
	assert_int_equal(got.last.addr.hop_limit, sent->hop_limit);
	assert_int_equal(got.last.ifindex, LOOPBACK);
}

static void send_one(const char *from, const char *to)
{
	struct vb_inbox_addr a = flow(from, to, 0xc123);
	unsigned packets = got.packets, batches = got.batches;
	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 100), 100, 100), 0);
	assert_true(WAIT_FOR(got.packets > packets && got.batches > batches));
	assert_int_equal(got.last.len, 100);
	check_packet(&a);
}

static void send__arrives_with_its_addressing(void **state)
{
	send_one("127.0.0.1", "127.0.0.1");
	send_one("127.0.0.3", "127.0.0.7"); /* any address of the host */
}

/* The socket was opened for another flow. */
static void send__says_in_what_it_differs(void **state)
{
	static const char *const others[] = { "127.0.0.9", "::1" };
	for (int i = 0; i < 2; i++) {
		struct vb_inbox_addr a = flow(others[i], others[i], 0xc123);
		a.hop_limit = (uint8_t)(77 + i);
		a.traffic_class = (uint8_t)(4 * i);
		reset(NULL);
		assert_int_equal(vb_udp_send(&a, 0, numbered(1, 9), 9, 9), 0);
		assert_true(WAIT_FOR(got.packets));
		check_packet(&a);
	}
}

static void send__ipv6_arrives_with_its_addressing(void **state)
{
	send_one("::1", "::1");
	if (!kernel_tells_flow_labels())
		SKIP(NO_FLOW_LABELS);
	assert_int_equal(got.last.addr.flow_label, 0x12345);
}

static void send__hop_limit_0_is_64(void **state)
{
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc123);
	a.hop_limit = 0;
	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 9), 9, 9), 0);
	assert_true(WAIT_FOR(got.packets));
	assert_int_equal(got.last.addr.hop_limit, 64);
}

static void send_segments(const char *address, unsigned count, size_t segment, size_t last)
{
	struct vb_inbox_addr a = flow(address, address, 0xc124);
	size_t len = (count - 1) * segment + last;
	assert_int_equal(vb_udp_send(&a, 0, numbered(count, segment), len, segment), 0);
	assert_true(WAIT_FOR(got.packets == count));
	assert_true(got.in_order);
	assert_int_equal(got.bytes, len);
	assert_int_equal(got.last.len, last);
	check_packet(&a);
}

static void send__segments_arrive_one_by_one(void **state)
{
	assert_int_equal(vb_udp_segments(), VB_UDP_MAX_SEGMENTS);
	send_segments("127.0.0.1", VB_UDP_MAX_SEGMENTS, 1000, 1000);
	reset(NULL);
	send_segments("127.0.0.1", 15, 4160, 20);
	reset(NULL);
	send_segments("::1", VB_UDP_MAX_SEGMENTS, 1000, 500);
	reset(NULL);
	send_segments("::1", 2, 20, 16);
}

static void send__refuses_wrong_lengths(void **state)
{
	static const uint8_t zeros[70000];
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc124);
	assert_int_equal(vb_udp_send(&a, 0, zeros, VB_UDP_MAX_BYTES + 1, 1100), -EMSGSIZE);
	assert_int_equal(vb_udp_send(&a, 0, zeros, 65 * 16, 16), -EINVAL);
	assert_int_equal(vb_udp_send(&a, 0, zeros, 0, 16), -EINVAL);
	assert_int_equal(vb_udp_send(&a, 0, zeros, 16, 0), -EINVAL);
	a.src = ip("192.0.2.77"); /* not ours */
	assert_true(vb_udp_send(&a, 0, zeros, 64, 16) < 0);
	assert_int_equal(vb_udp_segments(), VB_UDP_MAX_SEGMENTS);
}

static void set_mtu(int mtu)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_mtu = mtu };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(ioctl(s, SIOCSIFMTU, &r), 0);
	close(s);
}

/*
 * Too long for the way: said so, whether one or several, and the ability to send several is not given up for
 * it.
 */
static void send__tells_what_the_path_refuses(void **state)
{
	static const char *const addresses[] = { "127.0.0.1", "::1" };
	static const size_t longest[] = { 1500 - 28, 1500 - 48 };

	set_mtu(1500);
	for (int i = 0; i < 2; i++) {
		struct vb_inbox_addr a = flow(addresses[i], addresses[i], 0xc124);
		reset(NULL);
		assert_int_equal(vb_udp_send(&a, 0, numbered(3, longest[i]), 3 * longest[i], longest[i]), 0);
		assert_true(WAIT_FOR(got.packets == 3));
		assert_int_equal(vb_udp_send(&a, 0, numbered(1, 2000), longest[i] + 1, longest[i] + 1),
				 -EMSGSIZE);
		assert_int_equal(vb_udp_send(&a, 0, numbered(3, 2000), 6000, 2000), -EMSGSIZE);
		assert_int_equal(vb_udp_segments(), VB_UDP_MAX_SEGMENTS);
	}
	set_mtu(65536);
	assert_int_equal(got.packets, 3);
}

static void receive__tells_congestion(void **state)
{
	struct vb_udp_counts before, after;
	struct vb_inbox_addr a = flow("::1", "::1", 0xc125);

	vb_udp_count(&before);
	a.traffic_class |= 3;
	assert_int_equal(vb_udp_send(&a, 0, numbered(3, 100), 300, 100), 0);
	assert_true(WAIT_FOR(got.packets == 3));
	assert_true(got.congested);
	/* Counted once the handler has had all that came together. */
	assert_true(WAIT_FOR((vb_udp_count(&after), after.congested - before.congested == 3)));
	assert_int_equal(after.packets_in - before.packets_in, 3);
	assert_int_equal(after.packets_out - before.packets_out, 3);
}

/* ---- who receives ---- */

static void watch__off_leaves_packets_to_the_poller(void **state)
{
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc125);
	vb_udp_watch(false);
	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 100), 100, 100), 0);
	assert_true(WAIT_FOR((vb_udp_receive(), got.packets == 1)));
	assert_true(got.batches >= 1);
	vb_udp_receive();
	assert_int_equal(got.packets, 1);

	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 100), 100, 100), 0);
	assert_int_equal(got.packets, 1);
	vb_udp_watch(true); /* finds what came before */
	assert_true(WAIT_FOR(got.packets == 2));
}

static void receive__is_one_threads_at_a_time(void **state)
{
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc125);
	got.hold = true;
	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 100), 100, 100), 0);
	assert_true(WAIT_FOR(got.is_held));
	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 100), 100, 100), 0);
	assert_false(vb_udp_receive());
	vb_udp_watch(false); /* does not wait for the callback */
	got.hold = false;
	vb_udp_watch(true);
	assert_true(WAIT_FOR(got.packets == 2));
}

static void *receive_one(void *arg)
{
	while (got.packets == 0)
		vb_udp_receive();
	return NULL;
}

/* To yield may be in vain: the other may have a lower priority. */
static void receive__is_waited_for_asleep(void **state)
{
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc125);
	pthread_t t;
	vb_udp_watch(false);
	got.hold = true;
	assert_int_equal(pthread_create(&t, NULL, receive_one, NULL), 0);
	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 100), 100, 100), 0);
	assert_true(WAIT_FOR(got.is_held));
	assert_true(vb_udp_is_receiving());
	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 100), 100, 100), 0);
	atomic_store(&yields, 0);
	vb_udp_watch(true);
	assert_true(WAIT_FOR(atomic_load(&yields) > 0));
	usleep(HELD_US);
	assert_true(atomic_load(&yields) < FEW);
	got.hold = false;
	assert_true(WAIT_FOR(got.packets == 2));
	pthread_join(t, NULL);
	assert_true(WAIT_FOR(!vb_udp_is_receiving())); /* the progress thread may be having a last look */
}

/* ---- source ports ---- */

/* Answers are sent there, which takes time. */
static void receive__is_others_while_a_batch_ends(void **state)
{
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc125);
	got.hold_end = true;
	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 100), 100, 100), 0);
	assert_true(WAIT_FOR(got.end_is_held)); /* in the progress thread */
	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 100), 100, 100), 0);
	assert_true(WAIT_FOR((vb_udp_receive(), got.packets == 2)));
	assert_true(got.end_is_held);
	got.hold_end = false;
	assert_true(WAIT_FOR(!got.end_is_held));
}

static void source_port__is_the_wanted_one_where_free(void **state)
{
	struct sockaddr_in other = { .sin_family = AF_INET, .sin_port = htons(0xc200) };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1;
	setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	assert_int_equal(bind(s, (struct sockaddr *)&other, sizeof other), 0);

	assert_int_equal(port_for(true, 0xc123), 0xc123);
	assert_int_equal(port_for(false, 0xc123), 0xc123);
	assert_int_not_equal(port_for(true, 0xc200), 0xc200);
	assert_true(port_for(true, 0xc200) >= 0xc000);
	assert_true(port_for(true, VB_ROCE_PORT) >= 0xc000);
	close(s);
}

static void source_port__comes_from_a_bounded_number(void **state)
{
	uint16_t ports[500];
	unsigned distinct = 0;
	for (unsigned i = 0; i < 500; i++) {
		ports[i] = port_for(true, (uint16_t)(0xd000 + i));
		bool seen = false;
		for (unsigned j = 0; j < i; j++)
			seen |= ports[j] == ports[i];
		distinct += !seen;
		assert_int_equal(port_for(true, ports[i]), ports[i]);
	}
	assert_between(distinct, 8, 16);
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xd0ff);
	assert_int_equal(vb_udp_send(&a, 0, numbered(1, 10), 10, 10), 0);
	assert_true(WAIT_FOR(got.packets));
	assert_int_equal(got.last.addr.udp_sport, a.udp_sport);
}

/* ---- multicast ---- */

static void send_to_group(const char *group, const char *from, unsigned ifindex)
{
	struct vb_inbox_addr a = flow(from, group, 0xc123);
	assert_int_equal(vb_udp_send(&a, ifindex, numbered(1, 50), 50, 50), 0);
}

static void try_group(const char *text, const char *from, unsigned ifindex)
{
	struct in6_addr group = ip(text);
	reset(NULL);
	assert_int_equal(vb_udp_join(&group, ifindex), 0);
	assert_int_equal(vb_udp_join(&group, ifindex), 0);
	send_to_group(text, from, ifindex);
	assert_true(WAIT_FOR(got.packets));
	assert_memory_equal(&got.last.addr.dst, &group, sizeof group);
	assert_int_equal(got.last.ifindex, ifindex);
	vb_udp_leave(&group, ifindex);
	send_to_group(text, from, ifindex);
	assert_true(WAIT_FOR(got.packets == 2));
	vb_udp_leave(&group, ifindex);
	vb_udp_leave(&group, ifindex); /* once too often: no effect */
	send_to_group(text, from, ifindex);
	send_one("127.0.0.1", "127.0.0.1");
	send_one("::1", "::1");
	assert_int_equal(got.packets, 4);
}

static void join__is_counted(void **state)
{
	try_group("239.1.2.3", "127.0.0.1", LOOPBACK);
}

static void join__works_on_ethernet(void **state)
{
	if (!netns_add_wire())
		SKIP("an Ethernet cannot be made here");
	try_group("239.1.2.3", "10.9.0.1", if_nametoindex("wire"));
	try_group("ff12::77", "fd09::1", if_nametoindex("wire"));
}

static void join__of_no_group_is_refused(void **state)
{
	struct in6_addr not = ip("10.1.2.3");
	assert_int_equal(vb_udp_join(&not, LOOPBACK), -EINVAL);
}

/* ---- what the wire sees ---- */

enum { DF = 0x4000 };

/* A socket that gets each IPv4 packet that arrives at an interface. */
static int tap(const char *name)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP),
				  .sll_ifindex = (int)if_nametoindex(name) };
	struct timeval limit = { .tv_sec = 10 };
	int s = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP));
	assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof at), 0);
	assert_int_equal(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
	return s;
}

/* Makes the kernel cut segments before they go out, as for a network card that computes no checksums. */
static bool cut_early(const char *name)
{
	struct ethtool_value off = { .cmd = ETHTOOL_STXCSUM };
	struct ifreq r = { .ifr_data = (void *)&off };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
	bool cuts = ioctl(s, SIOCETHTOOL, &r) == 0;
	close(s);
	return cuts;
}

static void expect_packet(int tapped, unsigned identification, size_t payload)
{
	struct iphdr h;
	ssize_t n;
	do
		n = recv(tapped, &h, sizeof h, MSG_TRUNC);
	while (n >= (ssize_t)sizeof h && h.protocol != IPPROTO_UDP);
	assert_int_equal(n, payload + 28);
	assert_int_equal(ntohs(h.frag_off), DF);
	assert_int_equal(ntohs(h.id), identification);
}

/* The ICRC covers both, and is computed before the kernel writes them. */
static void send__sets_df_and_counts_identification_from_0(void **state)
{
	if (!netns_add_wire())
		SKIP("an Ethernet cannot be made here");
	struct vb_inbox_addr a = flow("10.9.0.1", "239.1.2.3", 0xc123);
	int tapped = tap("other");
	if (!cut_early("wire"))
		SKIP("an interface cannot be told to compute no checksums here");
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(vb_udp_send(&a, if_nametoindex("wire"), numbered(1, 100), 100, 100), 0);
	int err = vb_udp_send(&a, if_nametoindex("wire"), numbered(5, 1000), 4500, 1000);
	if (err == -EOPNOTSUPP)
		SKIP("this kernel cuts no segments for an interface without checksums, as before Linux 6.11");
	assert_int_equal(err, 0);
	assert_int_equal(vb_udp_send(&a, if_nametoindex("wire"), numbered(5, 1000), 4500, 1000), 0);
	for (unsigned i = 0; i < 3; i++)
		expect_packet(tapped, 0, 100);
	for (unsigned i = 0; i < 10; i++)
		expect_packet(tapped, i % 5, i % 5 == 4 ? 500 : 1000);
	close(tapped);
}

/* Of another user's: it shares the port with nobody. */
static int foreign_socket(void)
{
	struct sockaddr_in all = { .sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT) };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return bind(s, (struct sockaddr *)&all, sizeof all) == 0 ? s : -1;
}

/* ---- fork ---- */

static void child_life(int sock)
{
	CHILD_CHECK(!vb_udp_is_open());
	CHILD_CHECK(!vb_udp_receive());
	CHILD_CHECK(vb_host_get() == 0);
	CHILD_CHECK(vb_udp_open() == 0);
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc123);
	CHILD_CHECK(a.udp_sport != 0xc123); /* the parent has that */
	CHILD_CHECK(vb_udp_send(&a, 0, numbered(1, CHILDS_BYTES), CHILDS_BYTES, CHILDS_BYTES) == 0);
	say(sock, a.udp_sport);
	hear(sock);
}

static void fork__the_child_has_sockets_of_its_own(void **state)
{
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc123);
	struct child c = child_start(child_life);
	assert_int_not_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
	reset(NULL);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(vb_udp_send(&a, 0, numbered(1, 30), 30, 30), 0);
	assert_true(WAIT_FOR(got.packets == 50));
}

enum { IN_TURNS = 1 + 2 + 4, TURN = 8 }; /* packets that the kernel is asked for at a time, the most last */

/* IPv6 packets take more room beside them. */
static void receive_many(int sock)
{
	CHILD_CHECK(netns_enter());
	CHILD_CHECK(foreign_socket() >= 0);
	CHILD_CHECK(vb_host_get() == 0);
	CHILD_CHECK(vb_udp_open() == 0);
	CHILD_CHECK(reset(NULL) == 0);
	vb_udp_watch(false);
	struct vb_inbox_addr a = flow("::1", "::1", 0xc123);
	for (unsigned i = 0; i < IN_TURNS + 2 * TURN; i++)
		CHILD_CHECK(vb_udp_send(&a, 0, numbered(1, 30), 30, 30) == 0);
	CHILD_CHECK(WAIT_FOR((vb_udp_receive(), got.packets == IN_TURNS + 2 * TURN)));
}

/* The first packet of a long turn is held meanwhile. */
static void fork__in_the_middle_of_receiving(void **state)
{
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc123);
	vb_udp_watch(false);
	got.passing = IN_TURNS;
	got.hold = true;
	for (unsigned i = 0; i < IN_TURNS + TURN; i++)
		assert_int_equal(vb_udp_send(&a, 0, numbered(1, 30), 30, 30), 0);
	vb_udp_watch(true);
	assert_true(WAIT_FOR(got.packets == IN_TURNS && got.is_held));
	struct child c = child_start(receive_many);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
	got.hold = false;
	assert_true(WAIT_FOR(got.packets == IN_TURNS + TURN));
}

static void send_one_by_one(int sock)
{
	setenv("VERBATIM_GSO", "off", 1);
	CHILD_CHECK(vb_udp_segments() == 1);
	CHILD_CHECK(vb_host_get() == 0);
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc123);
	CHILD_CHECK(vb_udp_send(&a, 0, numbered(2, 30), 60, 30) == -EOPNOTSUPP);
	CHILD_CHECK(vb_udp_send(&a, 0, numbered(2, 30), 30, 30) == 0);
}

static void segments__are_one_where_switched_off(void **state)
{
	struct child c = child_start(send_one_by_one);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
	assert_true(WAIT_FOR(got.packets));
	assert_int_equal(got.bytes, 30);
}

/* ---- another user's port ---- */

static void open_late(int sock)
{
	struct in6_addr group = ip("239.7.7.7");
	int s = foreign_socket();
	CHILD_CHECK(s >= 0);
	CHILD_CHECK(vb_host_get() == 0);
	CHILD_CHECK(vb_udp_open() == 0);
	CHILD_CHECK(vb_udp_join(&group, LOOPBACK) == 0);
	reset(NULL);
	struct vb_inbox_addr a = flow("127.0.0.1", "127.0.0.1", 0xc123);
	CHILD_CHECK(vb_udp_send(&a, 0, numbered(1, 30), 30, 30) == 0);
	vb_udp_receive();
	CHILD_CHECK(got.packets == 0);
	close(s);
	CHILD_CHECK(WAIT_FOR((vb_udp_send(&a, 0, numbered(1, 30), 30, 30), got.packets > 0)));
	unsigned before = got.packets;
	a.dst = group;
	CHILD_CHECK(
		WAIT_FOR((vb_udp_send(&a, LOOPBACK, numbered(1, 30), 30, 30), got.packets > before + 100)));
	CHILD_CHECK(WAIT_FOR(IN6_ARE_ADDR_EQUAL(&got.last.addr.dst, &group)));
}

/* In a namespace of its own, where the test's own socket does not hold the port. */
static void open_late_elsewhere(int sock)
{
	CHILD_CHECK(netns_enter());
	open_late(sock);
}

static void open__takes_the_port_when_its_user_leaves_it(void **state)
{
	struct child c = child_start(open_late_elsewhere);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
}

/* ---- descriptors that run out ---- */

/* There is one more descriptor, for IPv4. */
static void open_with_one_descriptor(int sock)
{
	struct in6_addr group = ip("ff12::77");
	struct rlimit before, few;
	CHILD_CHECK(netns_enter());
	unsigned wire = netns_add_wire() ? if_nametoindex("wire") : 0;
	CHILD_CHECK(vb_host_get() == 0);
	int lowest = dup(sock);
	CHILD_CHECK(lowest >= 0 && !close(lowest) && !getrlimit(RLIMIT_NOFILE, &before));
	few = before;
	few.rlim_cur = (rlim_t)lowest + 1;
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	CHILD_CHECK(vb_udp_open() == 0);
	CHILD_CHECK(dup(sock) < 0);
	struct vb_inbox_addr a = { .src = ip("::1"), .dst = ip("::1"), .udp_sport = 0xc123, .hop_limit = 33 };
	CHILD_CHECK(vb_udp_send(&a, 0, numbered(1, 30), 30, 30) == -EMFILE);
	CHILD_CHECK(!wire || vb_udp_join(&group, wire) == 0);
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &before));
	reset(NULL);
	a = flow("::1", "::1", 0xc123);
	CHILD_CHECK(WAIT_FOR((vb_udp_send(&a, 0, numbered(1, 30), 30, 30), got.packets > 0)));
	a = flow("fd09::1", "ff12::77", 0xc123);
	CHILD_CHECK(!wire || WAIT_FOR((vb_udp_send(&a, wire, numbered(1, 30), 30, 30),
				       IN6_ARE_ADDR_EQUAL(&got.last.addr.dst, &group))));
}

static void open__of_an_ip_version_comes_later_where_descriptors_ran_out(void **state)
{
	struct child c = child_start(open_with_one_descriptor);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
}

/* ---- what comes back ---- */

static struct {
	atomic_bool hold;
	atomic_uint count;
	struct quotation {
		struct in6_addr host;
		size_t len;
		uint8_t bytes[300];
	} all[64];
} returned;

static void note_returned(const struct in6_addr *host, const void *bytes, size_t len)
{
	unsigned n = returned.count;
	struct quotation *q = &returned.all[n];
	while (returned.hold)
		sched_yield();
	if (n == VB_ARRAY_LEN(returned.all))
		return;
	q->host = *host;
	q->len = len < sizeof q->bytes ? len : sizeof q->bytes;
	memcpy(q->bytes, bytes, q->len);
	returned.count = n + 1;
}

static bool has_returned(const struct in6_addr *host, const void *bytes, size_t len)
{
	for (unsigned i = 0; i < returned.count; i++) {
		const struct quotation *q = &returned.all[i];
		if (IN6_ARE_ADDR_EQUAL(&q->host, host) && q->len >= len && !memcmp(q->bytes, bytes, len))
			return true;
	}
	return false;
}

static struct vb_inbox_addr flow_to(const char *address)
{
	struct vb_inbox_addr a = { .src = ip(address), .dst = ip(address), .udp_sport = 0xc123 };
	a.udp_sport = vb_udp_source_port(&a);
	CHILD_CHECK(a.udp_sport >= 0xc000); /* what RoCEv2 sends from */
	return a;
}

static void send_bytes(const struct vb_inbox_addr *a, const void *bytes, size_t len)
{
	CHILD_CHECK(vb_udp_send(a, 0, bytes, len, len) == 0);
}

/* Nobody has the port: the quotation is the datagram, and what is sent after it leaves. No two are alike. */
static void come_back(const char *address)
{
	enum { ONE_BY_ONE = 3, TOGETHER = 5 };
	struct vb_inbox_addr a = flow_to(address);
	uint8_t sent[ONE_BY_ONE + TOGETHER][280];
	for (unsigned i = 0; i < VB_ARRAY_LEN(sent); i++)
		memset(sent[i], (int)i, sizeof sent[i]);
	for (unsigned i = 0; i < ONE_BY_ONE; i++) {
		send_bytes(&a, sent[i], sizeof sent[i]);
		CHILD_CHECK(WAIT_FOR(has_returned(&a.dst, sent[i], sizeof sent[i])));
	}
	for (unsigned i = ONE_BY_ONE; i < VB_ARRAY_LEN(sent); i++)
		send_bytes(&a, sent[i], 30);
	for (unsigned i = ONE_BY_ONE; i < VB_ARRAY_LEN(sent); i++)
		CHILD_CHECK(WAIT_FOR(has_returned(&a.dst, sent[i], 30)));
}

/* Of datagrams that leave together as well. */
static void come_back_together(const char *address)
{
	struct vb_inbox_addr a = flow_to(address);
	uint8_t sent[4 * 280];
	for (unsigned i = 0; i < sizeof sent; i++)
		sent[i] = (uint8_t)(100 + i / 280);
	CHILD_CHECK(vb_udp_send(&a, 0, sent, sizeof sent, 280) == 0);
	CHILD_CHECK(WAIT_FOR(has_returned(&a.dst, sent, 280)));
}

/* Each leaves, whatever is said of those before it, and while the progress thread hears of many. */
static void come_back_in_crowds(const char *address)
{
	struct vb_inbox_addr a = flow_to(address);
	for (unsigned i = 0; i < 2 * CROWDS * CROWD; i++) {
		returned.hold = i / CROWD % 2 == 0;
		send_bytes(&a, numbered(1, 30), 30);
	}
}

/* Somebody has it: nothing comes back. */
static void stay(const char *address)
{
	struct vb_inbox_addr a = flow_to(address);
	unsigned before = got.packets;
	send_bytes(&a, numbered(1, 280), 280);
	CHILD_CHECK(WAIT_FOR(got.packets > before));
	CHILD_CHECK(got.last.addr.udp_sport == a.udp_sport);
}

static void return_in_a_host_of_its_own(int sock)
{
	CHILD_CHECK(netns_enter());
	CHILD_CHECK(vb_host_get() == 0);
	vb_udp_set_returned_handler(note_returned);
	come_back("127.0.0.1");
	come_back("::1");
	come_back_together("127.0.0.1");
	come_back_together("::1");
	come_back_in_crowds("127.0.0.1");
	come_back_in_crowds("::1");
	CHILD_CHECK(vb_udp_open() == 0);
	stay("127.0.0.1");
	stay("::1");
}

static void returned__is_told_where_nobody_has_the_port(void **state)
{
	struct child c = child_start(return_in_a_host_of_its_own);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
}

/* ---- steering ---- */

enum { RECEIVERS = 4, FLOWS = 12 };

/* What each receiving process saw, in memory that all of them share. */
static struct seen {
	_Atomic uint32_t slot, own, strange;
} *seen;
static unsigned receiver;
static bool is_silent; /* receivers do not report what is not for them */

/* Where CM messages have the communication id that they are for. */
enum { CM_BYTES = 20 + 256, ATTRIBUTE_AT = 37, SIDR_REP = 0x18, REP = 0x13 };

static unsigned id_at(uint8_t attribute) { return attribute == SIDR_REP ? 44 : 48; }

static uint32_t slot_in(const struct vb_udp_packet *p)
{
	unsigned at = p->len == CM_BYTES ? id_at(p->bytes[ATTRIBUTE_AT]) : 5;
	return (uint32_t)p->bytes[at] << 4 | p->bytes[at + 1] >> 4;
}

static void note_owner(const struct vb_udp_packet *p)
{
	if (vb_slot_is_mine(slot_in(p))) {
		seen[receiver].own++;
	} else {
		seen[receiver].strange++;
		if (!is_silent)
			vb_udp_misdirected();
	}
}

static void receive_and_note(int sock)
{
	vb_udp_set_handler(note_owner, NULL);
	CHILD_CHECK(vb_host_get() == 0);
	CHILD_CHECK(vb_udp_open() == 0);
	vb_udp_await_steering();
	seen[receiver].slot = vb_slot_first();
	hear(sock);
}

static struct child start_as(unsigned number, void (*receives)(int sock))
{
	receiver = number;
	struct child c = child_start(receives);
	CHILD_CHECK(WAIT_FOR(seen[number].slot));
	return c;
}

static struct child start_receiver(unsigned number) { return start_as(number, receive_and_note); }

static void send_to_slot(const char *address, uint32_t slot, unsigned flow_number)
{
	static const uint8_t kinds[] = { 0, REP, SIDR_REP }; /* 0: for a QP of the slot */
	uint8_t packet[CM_BYTES] = { 0 }, kind = kinds[flow_number % 3];
	unsigned at = kind ? id_at(kind) : 5;
	size_t bytes = kind ? CM_BYTES : 16;
	struct vb_inbox_addr a = flow(address, address, (uint16_t)(0xc100 + flow_number));
	packet[7] = kind ? 1 : 0;
	packet[ATTRIBUTE_AT] = kind;
	packet[at] = (uint8_t)(slot >> 4);
	packet[at + 1] = (uint8_t)(slot << 4);
	vb_udp_send(&a, 0, packet, bytes, bytes);
}

static uint32_t arrived(void)
{
	uint32_t n = 0;
	for (unsigned i = 0; i < RECEIVERS; i++)
		n += seen[i].own + seen[i].strange;
	return n;
}

static uint32_t gone_astray(void)
{
	uint32_t n = 0;
	for (unsigned i = 0; i < RECEIVERS; i++)
		n += seen[i].strange;
	return n;
}

/* Sends packets of many flows to each receiver of a set (bit mask); do they all come to the right one? */
static bool all_arrive(const char *address, unsigned receivers)
{
	uint32_t astray = gone_astray(), expected = arrived();
	for (unsigned f = 0; f < FLOWS; f++) {
		for (unsigned i = 0; i < RECEIVERS; i++) {
			if (receivers >> i & 1) {
				send_to_slot(address, seen[i].slot, f);
				expected++;
			}
		}
	}
	return WAIT_FOR(arrived() == expected) && gone_astray() == astray;
}

static void check_steering(unsigned receivers)
{
	CHILD_CHECK(WAIT_FOR(all_arrive("127.0.0.1", receivers)));
	CHILD_CHECK(WAIT_FOR(all_arrive("::1", receivers)));
}

/* A network of its own, for a process that sends, but does not receive. */
static void begin_world(void)
{
	CHILD_CHECK(netns_enter());
	CHILD_CHECK(vb_host_get() == 0);
	seen = mmap(NULL, RECEIVERS * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		    0);
}

static void run_world(void (*world)(int sock))
{
	if (!kernel_steers())
		SKIP(NO_STEERING);
	struct child c = child_start(world);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
}

static void steering_world(int sock)
{
	struct child children[RECEIVERS];
	begin_world();
	for (unsigned i = 0; i < 3; i++)
		children[i] = start_receiver(i);
	check_steering(0x7);
	child_kill(&children[1]); /* the last one moves to its place */
	check_steering(0x5);
	children[3] = start_receiver(3);
	check_steering(0xd);
	child_kill(&children[0]);
	check_steering(0xc);
	child_kill(&children[2]);
	check_steering(0x8);
	child_kill(&children[3]);
}

static void steering__is_learned_whoever_comes_and_goes(void **state) { run_world(steering_world); }

/* A process that waits for a processor answers late. Nobody's table may lack it. */
static void slow_world(int sock)
{
	struct child children[3];
	begin_world();
	children[0] = start_receiver(0);
	children[1] = start_receiver(1);
	CHILD_CHECK(kill(children[0].pid, SIGSTOP) == 0 && kill(children[1].pid, SIGSTOP) == 0);
	uint64_t stopped = vb_now_ns();
	receiver = 2;
	children[2] = child_start(receive_and_note);
	vb_sleep_ns(50000000);
	CHILD_CHECK(kill(children[0].pid, SIGCONT) == 0 && kill(children[1].pid, SIGCONT) == 0);
	bool is_given_up = vb_now_ns() - stopped > 400000000; /* this process itself was late */
	CHILD_CHECK(WAIT_FOR(seen[2].slot));
	CHILD_CHECK(is_given_up || all_arrive("127.0.0.1", 0x7));
	CHILD_CHECK(is_given_up || all_arrive("::1", 0x7));
	check_steering(0x7);
	for (unsigned i = 0; i < 3; i++)
		child_kill(&children[i]);
}

static void steering__waits_for_slow_processes(void **state) { run_world(slow_world); }

/* One that is stopped holds up a start, but not for ever. */
static void stopped_world(int sock)
{
	struct child children[3];
	begin_world();
	children[0] = start_receiver(0);
	CHILD_CHECK(kill(children[0].pid, SIGSTOP) == 0);
	children[1] = start_receiver(1);
	children[2] = start_receiver(2);
	check_steering(0x6);
	for (unsigned i = 0; i < 3; i++)
		child_kill(&children[i]);
}

static void steering__gives_up_a_stopped_process(void **state) { run_world(stopped_world); }

static atomic_uint probes_sent;

ssize_t sendto(int fd, const void *bytes, size_t count, int flags, const struct sockaddr *to,
	       socklen_t length)
{
	if (count && *(const uint8_t *)bytes == 0xff)
		probes_sent++;
	return syscall(SYS_sendto, fd, bytes, count, flags, to, length);
}

static void receive_unasked(int sock)
{
	vb_udp_set_handler(note_owner, NULL);
	CHILD_CHECK(vb_host_get() == 0);
	CHILD_CHECK(vb_udp_open() == 0);
	vb_sleep_ns(50000000);
	CHILD_CHECK(probes_sent == 0);
	seen[receiver].slot = vb_slot_first();
	hear(sock);
}

/* Processes that do not use the wire send no probes. One that receives another's packet learns the table. */
static void unasked_world(int sock)
{
	struct child children[3];
	begin_world();
	for (unsigned i = 0; i < 3; i++)
		children[i] = start_as(i, receive_unasked);
	check_steering(0x7);
	for (unsigned i = 0; i < 3; i++)
		child_kill(&children[i]);
}

static void steering__is_learned_by_those_that_need_it(void **state) { run_world(unasked_world); }

static atomic_bool lacks_ipv6; /* the kernel has no memory for a socket at the port */

int bind(int fd, const struct sockaddr *address, socklen_t bytes)
{
	if (lacks_ipv6 && address->sa_family == AF_INET6 &&
	    ((const struct sockaddr_in6 *)address)->sin6_port == htons(VB_ROCE_PORT)) {
		errno = ENOBUFS;
		return -1;
	}
	return (int)syscall(SYS_bind, fd, address, bytes);
}

static void receive_ipv6_late(int sock)
{
	vb_udp_set_handler(note_owner, NULL);
	CHILD_CHECK(vb_host_get() == 0);
	lacks_ipv6 = true;
	CHILD_CHECK(vb_udp_open() == 0);
	lacks_ipv6 = false;
	vb_udp_await_steering();
	seen[receiver].slot = vb_slot_first();
	hear(sock);
}

/*
 * The IPv6 socket opens while the IPv4 round still waits for a stopped process. No receiver reports packets
 * that are not its own.
 */
static void late_world(int sock)
{
	struct child children[2];
	begin_world();
	is_silent = true;
	children[0] = start_receiver(0);
	CHILD_CHECK(kill(children[0].pid, SIGSTOP) == 0);
	children[1] = start_as(1, receive_ipv6_late);
	CHILD_CHECK(kill(children[0].pid, SIGCONT) == 0);
	CHILD_CHECK(WAIT_FOR(all_arrive("::1", 0x2)));
	for (unsigned i = 0; i < 2; i++)
		child_kill(&children[i]);
}

static void steering__is_learned_of_a_socket_that_comes_late(void **state) { run_world(late_world); }

/* As the steering's own: magic numbers, place, number of slots, random number. */
static const uint8_t probe[24] = {
	0xff, 'v', 'b', 'p', 's', 't', 'e', 'e', [11] = 5, [16] = 1, 2, 3, 4, 5, 6, 7, 8
};

static int prober(const char *text)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct timeval limit = { .tv_sec = 10 };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	inet_pton(AF_INET, text, &at.sin_addr);
	assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof at), 0);
	assert_int_equal(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
	at.sin_port = htons(VB_ROCE_PORT);
	assert_int_equal(connect(s, (struct sockaddr *)&at, sizeof at), 0);
	return s;
}

static void probe__is_answered_with_slots(void **state)
{
	uint8_t answer[100];
	int s = prober("127.0.0.1");
	assert_int_equal(send(s, probe, sizeof probe, 0), sizeof probe);
	assert_int_equal(recv(s, answer, sizeof answer, 0), sizeof probe + 2);
	assert_int_equal(answer[24] << 8 | answer[25], vb_slot_first());
	assert_memory_equal(answer + 16, probe + 16, 8);
	assert_int_equal(got.packets, 0);
	close(s);
}

static void probe__of_others_is_not_answered(void **state)
{
	uint8_t answer[100];
	if (!netns_add_wire())
		SKIP("an Ethernet cannot be made here");
	int stranger = prober("10.9.0.1"), s = prober("127.0.0.1");
	assert_int_equal(send(stranger, probe, sizeof probe, 0), sizeof probe);
	assert_int_equal(send(s, probe, sizeof probe, 0), sizeof probe);
	assert_true(recv(s, answer, sizeof answer, 0) > 0);
	assert_int_equal(recv(stranger, answer, sizeof answer, MSG_DONTWAIT), -1);
	assert_int_equal(got.packets, 0); /* nor is it a packet */
	assert_int_equal(send(s, probe, sizeof probe - 1, 0), sizeof probe - 1);
	assert_true(WAIT_FOR(got.packets)); /* that is one, as far as this layer knows */
	close(stranger);
	close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(open__is_done_once, reset),
		cmocka_unit_test_setup(send__arrives_with_its_addressing, reset),
		cmocka_unit_test_setup(send__ipv6_arrives_with_its_addressing, reset),
		cmocka_unit_test_setup(send__says_in_what_it_differs, reset),
		cmocka_unit_test_setup(send__hop_limit_0_is_64, reset),
		cmocka_unit_test_setup(send__segments_arrive_one_by_one, reset),
		cmocka_unit_test_setup(send__refuses_wrong_lengths, reset),
		cmocka_unit_test_setup(send__tells_what_the_path_refuses, reset),
		cmocka_unit_test_setup(receive__tells_congestion, reset),
		cmocka_unit_test_setup(watch__off_leaves_packets_to_the_poller, reset),
		cmocka_unit_test_setup(receive__is_one_threads_at_a_time, reset),
		cmocka_unit_test_setup(receive__is_waited_for_asleep, reset),
		cmocka_unit_test_setup(receive__is_others_while_a_batch_ends, reset),
		cmocka_unit_test_setup(source_port__is_the_wanted_one_where_free, reset),
		cmocka_unit_test_setup(source_port__comes_from_a_bounded_number, reset),
		cmocka_unit_test_setup(join__is_counted, reset),
		cmocka_unit_test_setup(join__works_on_ethernet, reset),
		cmocka_unit_test_setup(join__of_no_group_is_refused, reset),
		cmocka_unit_test_setup(fork__the_child_has_sockets_of_its_own, reset),
		cmocka_unit_test_setup(fork__in_the_middle_of_receiving, reset),
		cmocka_unit_test_setup(segments__are_one_where_switched_off, reset),
		cmocka_unit_test_setup(open__takes_the_port_when_its_user_leaves_it, reset),
		cmocka_unit_test_setup(open__of_an_ip_version_comes_later_where_descriptors_ran_out, reset),
		cmocka_unit_test_setup(returned__is_told_where_nobody_has_the_port, reset),
		cmocka_unit_test_setup(steering__is_learned_whoever_comes_and_goes, reset),
		cmocka_unit_test_setup(steering__waits_for_slow_processes, reset),
		cmocka_unit_test_setup(steering__gives_up_a_stopped_process, reset),
		cmocka_unit_test_setup(steering__is_learned_by_those_that_need_it, reset),
		cmocka_unit_test_setup(steering__is_learned_of_a_socket_that_comes_late, reset),
		cmocka_unit_test_setup(probe__is_answered_with_slots, reset),
		cmocka_unit_test_setup(probe__of_others_is_not_answered, reset),
		cmocka_unit_test_setup(send__sets_df_and_counts_identification_from_0, reset),
	};
	if (!netns_enter()) {
		printf("1..0 # SKIP a network namespace is not allowed\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, start, NULL);
}
