/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a library answers without a device (texts, rates, the device list) and, with one, addresses. Compiled
 * with one library's headers and run on another, its exit status tells whether the two fit; its output is the
 * same on both.
 */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void check(int good, const char *what)
{
	if (good)
		return;
	printf("wrong: %s\n", what);
	failures++;
}

static void show(const char *what, int value, const char *text)
{
	printf("%s %d: %s\n", what, value, text ? text : "(null)");
	check(text && *text, what);
}

static void texts(void)
{
	int i;

	for (i = IBV_WC_SUCCESS; i <= IBV_WC_TM_RNDV_INCOMPLETE + 1; i++)
		show("wc status", i, ibv_wc_status_str((enum ibv_wc_status)i));
	for (i = IBV_NODE_CA; i <= IBV_NODE_UNSPECIFIED + 1; i++)
		show("node type", i, ibv_node_type_str((enum ibv_node_type)i));
	for (i = IBV_PORT_NOP; i <= IBV_PORT_ACTIVE_DEFER + 1; i++)
		show("port state", i, ibv_port_state_str((enum ibv_port_state)i));
	for (i = IBV_EVENT_CQ_ERR; i <= IBV_EVENT_WQ_FATAL + 1; i++)
		show("event type", i, ibv_event_type_str((enum ibv_event_type)i));
	for (i = RDMA_CM_EVENT_ADDR_RESOLVED; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT + 1; i++)
		show("cm event", i, rdma_event_str((enum rdma_cm_event_type)i));
}

static void rates(void)
{
	int i;

	for (i = IBV_RATE_MAX; i <= IBV_RATE_1200_GBPS + 1; i++) {
		int mult = ibv_rate_to_mult((enum ibv_rate)i);
		int mbps = ibv_rate_to_mbps((enum ibv_rate)i);

		printf("rate %d: %d times 2.5 Gbit/s is code %d, %d Mbit/s is code %d\n", i, mult,
		       (int)mult_to_ibv_rate(mult), mbps, (int)mbps_to_ibv_rate(mbps));
	}
	check(ibv_rate_to_mbps(IBV_RATE_100_GBPS) == 103125, "100 Gbit/s is 103125 Mbit/s");
	check(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4, "10 Gbit/s is 4 times 2.5");
	check(mbps_to_ibv_rate(2500) == IBV_RATE_2_5_GBPS, "2500 Mbit/s is the slowest rate");
}

static int devices(void)
{
	int n = -1, i;
	struct ibv_device **list = ibv_get_device_list(&n);

	/* ENOSYS: rdma-core without the kernel's modules. */
	check(list ? n >= 0 : errno == ENOSYS, "a device list");
	if (!list)
		return 0;
	check(!list[n], "the list ends with a null pointer");
	for (i = 0; i < n; i++)
		check(strlen(ibv_get_device_name(list[i])) > 0 && list[i]->node_type == IBV_NODE_CA,
		      "a device");
	ibv_free_device_list(list);
	return n;
}

/* Structures that go through the library must come back in the places where these headers expect them. */
static void addresses(void)
{
	struct rdma_addrinfo hints, *res = NULL;
	const struct sockaddr_in *sin;

	memset(&hints, 0, sizeof(hints));
	hints.ai_port_space = RDMA_PS_TCP;
	hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
	check(!rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), "rdma_getaddrinfo");
	if (!res)
		return;
	sin = (const struct sockaddr_in *)(const void *)res->ai_src_addr;
	check(res->ai_flags == hints.ai_flags && res->ai_family == AF_INET, "flags and family");
	check(res->ai_port_space == RDMA_PS_TCP && res->ai_qp_type == IBV_QPT_RC, "port space and QP type");
	check(res->ai_src_len == sizeof(*sin) && sin && sin->sin_port == htons(7471), "address and port");
	check(!res->ai_next, "one result");
	rdma_freeaddrinfo(res);
}

int main(void)
{
	texts();
	rates();
	if (devices())
		addresses();
	return failures ? 1 : 0;
}
