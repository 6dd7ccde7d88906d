/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses and links that change under an open device: in a network namespace of our own, with its loopback
 * alone.
 */
#include "world.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static void interface_ioctl(const char *name, unsigned long request, short flags, const char *address)
{
	struct ifreq r = { .ifr_flags = flags };
	int sock = socket(AF_INET, SOCK_DGRAM, 0);
	strncpy(r.ifr_name, name, sizeof(r.ifr_name) - 1);
	if (address) {
		struct sockaddr_in sin = { .sin_family = AF_INET };
		inet_pton(AF_INET, address, &sin.sin_addr);
		memcpy(&r.ifr_addr, &sin, sizeof(sin));
	}
	int err = ioctl(sock, request, &r);
	close(sock);
	if (err)
		fail_msg("%s %s: %s", name, address ? address : "flags", strerror(errno));
}

static void set_link(bool up) { interface_ioctl("lo", SIOCSIFFLAGS, up ? IFF_UP : 0, NULL); }

static struct ibv_context *open_loopback(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	assert_non_null(list[0]);
	assert_null(list[1]);
	assert_string_equal(ibv_get_device_name(list[0]), "vb_lo");
	struct ibv_context *ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	assert_non_null(ctx);
	return ctx;
}

static void expect_event(struct ibv_context *ctx, enum ibv_event_type type)
{
	struct ibv_async_event event;
	do {
		assert_true(is_readable(ctx->async_fd, 10000));
		assert_int_equal(ibv_get_async_event(ctx, &event), 0);
		assert_int_equal(event.element.port_num, 1);
		ibv_ack_async_event(&event);
	} while (event.event_type != type);
}

static enum ibv_port_state port_state(struct ibv_context *ctx)
{
	struct ibv_port_attr p;
	assert_int_equal(ibv_query_port(ctx, 1, &p), 0);
	return p.state;
}

static union ibv_gid gid_at(struct ibv_context *ctx, int index)
{
	union ibv_gid gid;
	assert_int_equal(ibv_query_gid(ctx, 1, index, &gid), 0);
	return gid;
}

static void port__follows_its_interface(void **state)
{
	struct ibv_context *ctx = open_loopback();
	assert_int_equal(port_state(ctx), IBV_PORT_DOWN);
	set_link(true);
	expect_event(ctx, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(port_state(ctx), IBV_PORT_ACTIVE);
	set_link(false);
	expect_event(ctx, IBV_EVENT_PORT_ERR);
	assert_int_equal(port_state(ctx), IBV_PORT_DOWN);
	set_link(true);
	expect_event(ctx, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void gids__follow_addresses(void **state)
{
	static const union ibv_gid added = { .raw = { [10] = 0xff, 0xff, 10, 7, 7, 7 } }, none = { { 0 } };
	set_link(true);
	struct ibv_context *ctx = open_loopback();
	union ibv_gid first = gid_at(ctx, 0), new = gid_at(ctx, 2);
	assert_int_equal(first.raw[12], 127);
	assert_memory_equal(&new, &none, sizeof(new));
	interface_ioctl("lo:1", SIOCSIFADDR, 0, "10.7.7.7");
	expect_event(ctx, IBV_EVENT_GID_CHANGE);
	new = gid_at(ctx, 2);
	assert_memory_equal(&new, &added, sizeof(new));
	interface_ioctl("lo:1", SIOCSIFADDR, 0, "0.0.0.0");
	expect_event(ctx, IBV_EVENT_GID_CHANGE);
	new = gid_at(ctx, 2);
	assert_memory_equal(&new, &none, sizeof(new));
	new = gid_at(ctx, 0);
	assert_memory_equal(&new, &first, sizeof(new));
	assert_int_equal(ibv_close_device(ctx), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(port__follows_its_interface),
		cmocka_unit_test(gids__follow_addresses),
	};
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		printf("1..0 # SKIP no namespaces for this user: %s\n", strerror(errno));
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
