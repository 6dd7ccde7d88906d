/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices of the machine that the test runs on: whatever its interfaces, there is a loopback. */
#include "../kernel.h"
#include "child.h"

#include <errno.h>
#include <string.h>

#include "adapter/device/device.h"

#define LOOPBACK_DOWN "the loopback is down and has no GIDs"

static struct vb_device *loopback(void)
{
	struct vb_device **list, *lo = NULL;
	unsigned count;
	assert_int_equal(vb_device_list(&list, &count), 0);
	assert_true(count > 0);
	for (unsigned i = 0; i < count; i++) {
		if (!strcmp(list[i]->name, "vb_lo"))
			lo = list[i];
		else
			vb_device_put(list[i]);
	}
	assert_ptr_equal(lo, list[count - 1]);
	free(list);
	return lo;
}

static void list__same_devices_again(void **state)
{
	struct vb_device **one, **two;
	unsigned ones, twos;
	assert_int_equal(vb_device_list(&one, &ones), 0);
	assert_int_equal(vb_device_list(&two, &twos), 0);
	assert_int_equal(ones, twos);
	for (unsigned i = 0; i < ones; i++) {
		assert_ptr_equal(one[i], two[i]);
		assert_true(one[i]->guid != 0);
		for (unsigned j = 0; j < i; j++) {
			assert_int_not_equal(one[i]->number, one[j]->number);
			assert_true(one[i]->guid != one[j]->guid);
		}
		vb_device_put(one[i]);
		vb_device_put(two[i]);
	}
	free(one);
	free(two);
}

static void loopback__gids(void **state)
{
	static const struct in6_addr v4 = { .s6_addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 } };
	struct vb_device *lo = loopback();
	struct in6_addr gid;
	if (lo->port_state != IBV_PORT_ACTIVE) {
		vb_device_put(lo);
		SKIP(LOOPBACK_DOWN);
	}
	assert_int_equal(vb_device_gid(lo, 0, &gid), 0);
	assert_memory_equal(&gid, &v4, sizeof(gid));
	assert_true(vb_device_gid_is_local(&v4));
	assert_int_equal(vb_device_gid(lo, VB_GID_TABLE - 1, &gid), -ENODATA);
	assert_true(IN6_IS_ADDR_UNSPECIFIED(&gid));
	assert_int_equal(vb_device_gid(lo, VB_GID_TABLE, &gid), -EINVAL);
	assert_false(vb_device_gid_is_local(&in6addr_any));
	vb_device_put(lo);
}

static void loopback__attributes(void **state)
{
	struct vb_device *lo = loopback();
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	vb_device_attr(lo, &dev);
	assert_int_equal(dev.max_qp_wr, VB_MAX_WR);
	assert_int_equal(dev.max_sge, VB_MAX_SGE);
	assert_int_equal(dev.phys_port_cnt, 1);
	assert_int_equal(dev.atomic_cap, IBV_ATOMIC_HCA);
	assert_int_equal(dev.max_mw, VB_MAX_MR);
	vb_port_attr(lo, &port);
	assert_int_equal(port.active_mtu, IBV_MTU_4096);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(port.gid_tbl_len, VB_GID_TABLE);
	assert_int_equal(port.max_msg_sz, VB_MAX_MSG);
	assert_int_equal(port.active_width, 2);
	assert_int_equal(port.active_speed, 64);
	vb_device_put(lo);
}

static void context__keeps_its_device(void **state)
{
	struct vb_device *lo = loopback();
	struct vb_context ctx;
	assert_int_equal(vb_context_init(&ctx, lo), 0);
	unsigned refs = atomic_load(&lo->refs);
	vb_device_put(lo);
	assert_int_equal(atomic_load(&lo->refs), refs - 1);
	assert_ptr_equal(ctx.device, lo);
	vb_async_raise(&ctx, IBV_EVENT_GID_CHANGE, VB_ASYNC_PORT, NULL, NULL, 1); /* freed unread */
	vb_context_fini(&ctx);
	assert_int_equal(atomic_load(&lo->refs), refs - 2);
}

static struct vb_context inherited;

static void close_inherited(int sock)
{
	struct vb_context own;
	struct vb_device *lo = loopback();
	CHILD_CHECK(inherited.generation != vb_host_generation());
	vb_context_fini(&inherited);
	CHILD_CHECK(vb_context_init(&own, lo) == 0);
	CHILD_CHECK(own.generation == vb_host_generation());
	vb_context_fini(&own);
	vb_device_put(lo);
}

static void context__after_fork(void **state)
{
	struct vb_device *lo = loopback();
	assert_int_equal(vb_context_init(&inherited, lo), 0);
	struct child c = child_start(close_inherited);
	assert_int_equal(child_end(&c), 0);
	vb_context_fini(&inherited);
	vb_device_put(lo);
}

/* ---- address vectors ---- */

static void ah__refusals(void **state)
{
	struct vb_device *lo = loopback();
	struct in6_addr sgid;
	struct ibv_ah_attr good = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid.raw = { [10] = 0xff, 0xff, 127, 0, 0, 2 },
					     .sgid_index = 0 } },
			   a = good;
	if (lo->port_state != IBV_PORT_ACTIVE) {
		vb_device_put(lo);
		SKIP(LOOPBACK_DOWN);
	}
	assert_int_equal(vb_ah_check(lo, &a, "test", &sgid), 0);
	a.is_global = 0;
	assert_int_equal(vb_ah_check(lo, &a, "test", &sgid), -EINVAL);
	a = good;
	a.port_num = 2;
	assert_int_equal(vb_ah_check(lo, &a, "test", &sgid), -EINVAL);
	a = good;
	a.grh.sgid_index = VB_GID_TABLE - 1;
	assert_int_equal(vb_ah_check(lo, &a, "test", &sgid), -EINVAL);
	a = good;
	a.grh.dgid.raw[0] = 0xfd; /* no IPv4 address */
	assert_int_equal(vb_ah_check(lo, &a, "test", &sgid), -EINVAL);
	vb_device_put(lo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(list__same_devices_again),
		cmocka_unit_test(loopback__gids),
		cmocka_unit_test(loopback__attributes),
		cmocka_unit_test(context__keeps_its_device),
		cmocka_unit_test(context__after_fork),
		cmocka_unit_test(ah__refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
