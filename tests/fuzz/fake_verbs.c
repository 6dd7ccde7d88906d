/* SPDX-License-Identifier: BSD-2-Clause */
#include "fake_verbs.h"

#include <rdma/rdma_cma.h>

#include "fake_host.h"
#include "fuzz.h"
#include "proto/cm/gsi.h"

enum { INBOX_MAGIC = 0x76620001, INBOX_HEADER_BYTES = 44 };

bool fake_is_both_hosts;
int fake_modify_result;

static struct ibv_device device = { .name = "vb_eth0" };
static struct ibv_context context = { .device = &device };
static struct ibv_pd pd = { .context = &context };

struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list = calloc(2, sizeof(struct ibv_device *));
	must(list != NULL);
	list[0] = &device;
	if (num)
		*num = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }
struct ibv_context *ibv_open_device(struct ibv_device *d) { return &context; }
int ibv_close_device(struct ibv_context *c) { return 0; }
struct ibv_pd *ibv_alloc_pd(struct ibv_context *c) { return &pd; }

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){ .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16, .node_guid = 1 };
	return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr a = { .state = IBV_PORT_ACTIVE,
				   .active_mtu = IBV_MTU_4096,
				   .max_mtu = IBV_MTU_4096,
				   .link_layer = IBV_LINK_LAYER_ETHERNET };
	memcpy(attr, &a, offsetof(struct ibv_port_attr, port_cap_flags2));
	return 0;
}

void fake_gid(uint32_t address, uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	for (unsigned i = 0; i < 4; i++)
		gid[12 + i] = (uint8_t)(address >> (24 - 8 * i));
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *entries, size_t max, uint32_t flags,
			     size_t entry_size)
{
	const uint32_t addresses[] = { FAKE_OWN_ADDRESS, FAKE_OTHER_ADDRESS };
	unsigned count = fake_is_both_hosts ? 2 : 1;

	for (unsigned i = 0; i < count; i++) {
		entries[i] = (struct ibv_gid_entry){
			.gid_index = i + 1, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2, .ndev_ifindex = 2
		};
		fake_gid(addresses[i], entries[i].gid.raw);
	}
	return (ssize_t)count;
}

/* ---- queue pairs and their groups ---- */

struct ibv_qp *ibv_create_qp(struct ibv_pd *p, struct ibv_qp_init_attr *attr)
{
	static uint32_t last_qpn = 0xf00000;
	struct ibv_qp *qp = calloc(1, sizeof(*qp));

	must(qp != NULL);
	*qp = (struct ibv_qp){ .context = &context, .pd = p, .qp_type = attr->qp_type, .qp_num = ++last_qpn };
	return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	free(qp);
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) { return fake_modify_result; }
int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) { return 0; }
int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) { return 0; }

/* Nobody lets librdmacm make these, so nobody gets here. */
#define NEVER(result, name, ...) result name(__VA_ARGS__) { abort(); }
NEVER(struct ibv_comp_channel *, ibv_create_comp_channel, struct ibv_context *c)
NEVER(int, ibv_destroy_comp_channel, struct ibv_comp_channel *ch)
NEVER(struct ibv_cq *, ibv_create_cq, struct ibv_context *c, int n, void *ctx, struct ibv_comp_channel *ch,
      int v)
NEVER(int, ibv_destroy_cq, struct ibv_cq *cq)
NEVER(struct ibv_srq *, ibv_create_srq, struct ibv_pd *p, struct ibv_srq_init_attr *attr)
NEVER(int, ibv_destroy_srq, struct ibv_srq *srq)
NEVER(int, ibv_query_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr)

/* ---- messages ---- */

void fake_cm_message(const struct vb_mad *mad, uint32_t from, uint32_t to, int port)
{
	static uint8_t message[INBOX_HEADER_BYTES + sizeof(struct vb_gsi_packet)];
	uint32_t magic = INBOX_MAGIC;
	struct vb_gsi_packet packet;

	vb_gsi_packet_init(&packet, mad);
	memset(message, 0, INBOX_HEADER_BYTES);
	memcpy(message, &magic, 4);
	fake_gid(from, message + 12);
	fake_gid(to, message + 28);
	memcpy(message + INBOX_HEADER_BYTES, &packet, sizeof(packet));
	if (port >= 0)
		fake_port_message((unsigned)port, message, sizeof(message));
	else
		fake_inbox_message(message, sizeof(message), false);
}
