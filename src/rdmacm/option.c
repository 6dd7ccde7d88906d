/* SPDX-License-Identifier: BSD-2-Clause */
/* Options of an id, and its parameters of enhanced connection establishment, which are a kind of options. */
#include <string.h>

#include "rdmacm/calls.h"
#include "rdmacm/id/id.h"

enum { MAX_ACK_TIMEOUT = 31, ECE_VENDOR_MASK = 0xffffff };

static int set_tos(struct vb_cma_id *id, const void *val)
{
	id->tos = *(const uint8_t *)val;
	return 0;
}

static int int_at(const void *val)
{
	int v;

	memcpy(&v, val, sizeof(v));
	return v;
}

/* It has an effect only before the address is bound. */
static int set_reuseaddr(struct vb_cma_id *id, const void *val)
{
	if (vb_cma_id_state(id) != VB_CMA_IDLE)
		return EINVAL;
	id->reuseaddr = int_at(val) != 0;
	return 0;
}

static int set_afonly(struct vb_cma_id *id, const void *val)
{
	if (vb_cma_id_state(id) != VB_CMA_IDLE)
		return EINVAL;
	id->afonly = int_at(val) != 0;
	return 0;
}

static int set_ack_timeout(struct vb_cma_id *id, const void *val)
{
	uint8_t timeout = *(const uint8_t *)val;

	if (vb_cma_is_datagram(id) || timeout > MAX_ACK_TIMEOUT)
		return EINVAL;
	id->ack_timeout = timeout;
	id->ack_timeout_set = true;
	return 0;
}

/* X(level, name, bytes, setter) */
#define OPTIONS(X)                                                                  \
	X(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, sizeof(uint8_t), set_tos)             \
	X(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, sizeof(int), set_reuseaddr)     \
	X(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, sizeof(int), set_afonly)           \
	X(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, sizeof(uint8_t), set_ack_timeout)

static const struct option {
	int level, name;
	const char *text;
	size_t bytes;
	int (*set)(struct vb_cma_id *id, const void *val);
} options[] = {
#define X(level, name, bytes, setter) { level, name, #name, bytes, setter },
	OPTIONS(X)
#undef X
};

static const struct option *find(int level, int name)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(options); i++)
		if (options[i].level == level && options[i].name == name)
			return &options[i];
	return NULL;
}

/* A path set by the program replaces rdma_resolve_route. Only its traffic class is used. */
static int set_path(struct vb_cma_id *id, const char *call, const void *val, size_t len)
{
	const struct ibv_path_data *paths = val;

	if (!len || len % sizeof(*paths)) {
		vb_explain(call, "%zu bytes are no array of struct ibv_path_data", len);
		return EINVAL;
	}
	if (vb_cma_id_state(id) != VB_CMA_ADDR_RESOLVED) {
		vb_explain(call, "the id is %s; its address must be resolved first",
			   vb_cma_id_state_text(id));
		return EINVAL;
	}
	uint8_t before = id->tos;
	id->tos = paths[0].path.tclass;
	if (!vb_cma_id_route_resolved(id))
		return 0;
	id->tos = before;
	vb_explain(call, "no memory for the path record or the answer");
	return ENOMEM;
}

static int set(struct vb_cma_id *id, const char *call, const struct option *option, const void *val,
	       size_t len)
{
	if (len != option->bytes) {
		vb_explain(call, "%s takes %zu bytes, not %zu", option->text, option->bytes, len);
		return EINVAL;
	}
	int err = option->set(id, val);
	if (err)
		vb_explain(call, "%s: its value does not fit an id that is %s", option->text,
			   vb_cma_id_state_text(id));
	return err;
}

VB_EXPORT int rdma_set_option(struct rdma_cm_id *pub, int level, int optname, void *optval, size_t optlen)
{
	if (vb_cma_is_faulty(__func__))
		return -1;
	if (!pub || !optval)
		return vb_cma_fail(EINVAL, "id or value is NULL");
	struct vb_cma_id *id = vb_cma_id_of(pub);
	const struct option *option = find(level, optname);
	bool is_path = level == RDMA_OPTION_IB && optname == RDMA_OPTION_IB_PATH;

	if (!option && !is_path)
		return vb_cma_fail(ENOSYS, "there is no option %d at level %d", optname, level);
	int err =
		is_path ? set_path(id, __func__, optval, optlen) : set(id, __func__, option, optval, optlen);
	if (!err)
		return 0;
	errno = err;
	return -1;
}

VB_EXPORT int rdma_set_local_ece(struct rdma_cm_id *pub, struct ibv_ece *ece)
{
	if (!pub || !ece)
		return vb_cma_fail(EINVAL, "id or parameters are NULL");
	if (pub->qp)
		return vb_cma_fail(EINVAL, "the id has a QP, whose parameters are not the program's to set");
	if (!ece->vendor_id || ece->vendor_id > ECE_VENDOR_MASK || ece->comp_mask)
		return vb_cma_fail(EINVAL, "vendor id 0x%x or comp_mask 0x%x is no such parameter",
				   ece->vendor_id, ece->comp_mask);
	vb_cma_id_of(pub)->local_ece = *ece;
	return 0;
}

VB_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *pub, struct ibv_ece *ece)
{
	if (!pub || !ece)
		return vb_cma_fail(EINVAL, "id or parameters are NULL");
	if (pub->qp)
		return vb_cma_fail(EINVAL, "the id has a QP, whose parameters are not the program's to get");
	*ece = vb_cma_id_of(pub)->remote_ece;
	return 0;
}
