/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>

#include "adapter/device/device.h"
#include "wire/icrc.h"
#include "wire/opcode.h"

static struct in6_addr ip(const char *text)
{
	struct in6_addr a;
	char mapped[64];
	snprintf(mapped, sizeof(mapped), "%s%s", strchr(text, ':') ? "" : "::ffff:", text);
	assert_int_equal(inet_pton(AF_INET6, mapped, &a), 1);
	return a;
}

struct table {
	struct vb_netif netif;
	struct in6_addr gid[VB_GID_TABLE];
	unsigned used;
};

static struct table ethernet(void)
{
	return (struct table){ .netif = { .name = "eth0", .mac = { 0x52, 0x54, 0, 0x12, 0x34, 0x56 } } };
}

static struct table loopback(void)
{
	return (struct table){ .netif = { .name = "lo", .loopback = true } };
}

static void address(struct table *t, const char *text)
{
	t->netif.addrs[t->netif.naddrs++].ip = ip(text);
}

static void address_before_others(struct table *t, const char *text)
{
	memmove(t->netif.addrs + 1, t->netif.addrs, t->netif.naddrs++ * sizeof(t->netif.addrs[0]));
	t->netif.addrs[0].ip = ip(text);
}

static void no_address(struct table *t, const char *text)
{
	struct in6_addr gone = ip(text);
	unsigned kept = 0;
	for (unsigned i = 0; i < t->netif.naddrs; i++)
		if (memcmp(&t->netif.addrs[i].ip, &gone, sizeof(gone)))
			t->netif.addrs[kept++] = t->netif.addrs[i];
	assert_int_equal(kept, t->netif.naddrs - 1);
	t->netif.naddrs = kept;
}

/* After an update the table holds exactly these, "" being a hole. */
static void expect(struct table *t, const char *const *texts, unsigned count)
{
	vb_gids_update(t->gid, &t->used, &t->netif);
	assert_int_equal(t->used, count);
	for (unsigned i = 0; i < VB_GID_TABLE; i++) {
		struct in6_addr want = i < count && *texts[i] ? ip(texts[i]) : in6addr_any;
		assert_memory_equal(&t->gid[i], &want, sizeof(want));
	}
}
#define EXPECT(t, ...)                                                        \
	do {                                                                  \
		const char *const texts_[] = { __VA_ARGS__ };                 \
		expect(t, texts_, sizeof(texts_) / sizeof(*texts_));          \
	} while (0)

static void ethernet__without_addresses(void **state)
{
	struct table t = ethernet();
	EXPECT(&t, "fe80::5054:ff:fe12:3456");
}

static void ethernet__order(void **state)
{
	struct table t = ethernet();
	address(&t, "10.0.0.1");
	address(&t, "10.0.0.2");
	address(&t, "fe80::1");
	address(&t, "2001:db8::1");
	EXPECT(&t, "fe80::1", "10.0.0.1", "10.0.0.2", "2001:db8::1");
}

static void ethernet__first_ipv4_is_index_1(void **state)
{
	struct table t = ethernet();
	address(&t, "2001:db8::1");
	address(&t, "192.168.1.1");
	EXPECT(&t, "fe80::5054:ff:fe12:3456", "192.168.1.1", "2001:db8::1");
}

static void ethernet__entries_keep_their_index(void **state)
{
	struct table t = ethernet();
	address(&t, "10.0.0.1");
	address(&t, "10.0.0.2");
	address(&t, "10.0.0.3");
	EXPECT(&t, "fe80::5054:ff:fe12:3456", "10.0.0.1", "10.0.0.2", "10.0.0.3");
	no_address(&t, "10.0.0.1");
	EXPECT(&t, "fe80::5054:ff:fe12:3456", "", "10.0.0.2", "10.0.0.3");
	address(&t, "10.0.0.4");
	EXPECT(&t, "fe80::5054:ff:fe12:3456", "10.0.0.4", "10.0.0.2", "10.0.0.3");
	no_address(&t, "10.0.0.3");
	no_address(&t, "10.0.0.2");
	EXPECT(&t, "fe80::5054:ff:fe12:3456", "10.0.0.4");
}

static void ethernet__link_local_comes_later(void **state)
{
	struct table t = ethernet();
	address(&t, "10.0.0.1");
	EXPECT(&t, "fe80::5054:ff:fe12:3456", "10.0.0.1");
	address(&t, "fe80::7");
	EXPECT(&t, "fe80::7", "10.0.0.1");
	address(&t, "fe80::8");
	EXPECT(&t, "fe80::7", "10.0.0.1", "fe80::8");
	no_address(&t, "fe80::7");
	EXPECT(&t, "fe80::8", "10.0.0.1");
}

/* As the kernel lists a new one. */
static void ethernet__further_link_local(void **state)
{
	struct table t = ethernet();
	address(&t, "fe80::7");
	address(&t, "10.0.0.1");
	EXPECT(&t, "fe80::7", "10.0.0.1");
	address_before_others(&t, "fe80::8");
	EXPECT(&t, "fe80::7", "10.0.0.1", "fe80::8");
	no_address(&t, "fe80::7");
	EXPECT(&t, "fe80::8", "10.0.0.1");
}

static void loopback__fixed_entries(void **state)
{
	struct table t = loopback();
	vb_gids_update(t.gid, &t.used, &t.netif);
	assert_int_equal(t.used, 0);
	address(&t, "127.0.0.1");
	EXPECT(&t, "127.0.0.1");
	address(&t, "10.9.9.9");
	EXPECT(&t, "127.0.0.1", "", "10.9.9.9");
	address(&t, "::1");
	EXPECT(&t, "127.0.0.1", "::1", "10.9.9.9");
	no_address(&t, "127.0.0.1");
	EXPECT(&t, "", "::1", "10.9.9.9");
}

/* As many as an index of 8 bits can name. */
static void table__full(void **state)
{
	struct table t = ethernet();
	char text[32];
	for (int i = 0; i < VB_NETIF_MAX_ADDRS; i++) {
		snprintf(text, sizeof(text), "10.0.1.%d", i);
		address(&t, text);
	}
	vb_gids_update(t.gid, &t.used, &t.netif);
	assert_int_equal(t.used, VB_GID_TABLE);
	assert_int_equal(VB_GID_TABLE, UINT8_MAX + 1);
	struct in6_addr last = ip("10.0.1.254");
	assert_memory_equal(&t.gid[VB_GID_TABLE - 1], &last, sizeof(last));
}

/* Bytes before and behind the data in the longest of all packets. */
static unsigned longest_overhead(void)
{
	unsigned longest = 0;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		const struct vb_opcode_row *row = vb_opcode_row((uint8_t)opcode);
		if (row->name && row->flags.payload && row->header_bytes > longest)
			longest = row->header_bytes;
	}
	return sizeof(struct ip6_hdr) + sizeof(struct udphdr) + longest + VB_ICRC_BYTES;
}

static void mtu__fits(void **state)
{
	assert_int_equal(vb_mtu_for(65536), IBV_MTU_4096);
	assert_int_equal(vb_mtu_for(4300), IBV_MTU_4096);
	assert_int_equal(vb_mtu_for(4096 + longest_overhead()), IBV_MTU_4096);
	assert_int_equal(vb_mtu_for(4096 + longest_overhead() - 1), IBV_MTU_2048);
	assert_int_equal(vb_mtu_for(1500), IBV_MTU_1024);
	assert_int_equal(vb_mtu_for(1280), IBV_MTU_1024);
	assert_int_equal(vb_mtu_for(576), IBV_MTU_256);
	assert_int_equal(vb_mtu_for(0), IBV_MTU_256);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ethernet__without_addresses),
		cmocka_unit_test(ethernet__order),
		cmocka_unit_test(ethernet__first_ipv4_is_index_1),
		cmocka_unit_test(ethernet__entries_keep_their_index),
		cmocka_unit_test(ethernet__link_local_comes_later),
		cmocka_unit_test(ethernet__further_link_local),
		cmocka_unit_test(loopback__fixed_entries),
		cmocka_unit_test(table__full),
		cmocka_unit_test(mtu__fits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
