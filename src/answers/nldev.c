/* SPDX-License-Identifier: BSD-2-Clause */
#include "answers/nldev.h"

#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answers/ask.h"
#include "base/base.h"
#include "base/device_caps.h"

enum {
	PATIENCE_MS = 3000, /* for answers of processes; only a stopped process uses all of it */
	/* what rdma(8) receives at a time where pages have 4 KiB; a dump continues in another message */
	MESSAGE_BYTES = 4096,
	/* of the users of a shared receive queue: a message is at most half full when a resource begins */
	USERS_BYTES = MESSAGE_BYTES / 2 - 128,
	PORT = 1, /* each device's only one */
	/* commands that the kernel's headers before Linux 6.11 lack */
	CMD_RES_SRQ_GET_RAW = 25,
	CMD_NEWDEV,
	CMD_DELDEV,
};

/* ---- writing ---- */

static void *add(struct vb_reply *r, size_t bytes)
{
	size_t padded = NLMSG_ALIGN(bytes);

	if (r->room - r->used < padded) {
		size_t room = 2 * r->room + padded + MESSAGE_BYTES;
		uint8_t *grown = realloc(r->bytes, room);
		if (!grown) {
			r->is_short = true;
			return NULL;
		}
		r->bytes = grown;
		r->room = room;
	}
	void *at = memset(r->bytes + r->used, 0, padded);
	r->used += padded;
	return at;
}

static void put(struct vb_reply *r, unsigned type, const void *data, size_t bytes)
{
	struct nlattr *a = add(r, NLA_HDRLEN + bytes);

	if (!a)
		return;
	*a = (struct nlattr){ .nla_len = (uint16_t)(NLA_HDRLEN + bytes), .nla_type = (uint16_t)type };
	memcpy((uint8_t *)a + NLA_HDRLEN, data, bytes);
}

static void put_u8(struct vb_reply *r, unsigned type, uint8_t v) { put(r, type, &v, sizeof(v)); }
static void put_u32(struct vb_reply *r, unsigned type, uint32_t v) { put(r, type, &v, sizeof(v)); }
static void put_u64(struct vb_reply *r, unsigned type, uint64_t v) { put(r, type, &v, sizeof(v)); }
static void put_text(struct vb_reply *r, unsigned type, const char *text)
{
	put(r, type, text, strlen(text) + 1);
}

/* Begins an attribute that contains those that follow, until its end. Returns its offset. */
static size_t begin(struct vb_reply *r, unsigned type)
{
	size_t at = r->used;

	put(r, type, "", 0);
	return at;
}

static void end(struct vb_reply *r, size_t at)
{
	if (!r->is_short)
		((struct nlattr *)(r->bytes + at))->nla_len = (uint16_t)(r->used - at);
}

/* A request, and where the answer goes. */
struct request {
	struct nlmsghdr head;
	const uint8_t *attributes[RDMA_NLDEV_ATTR_MAX]; /* payloads; NULL: not there */
	uint16_t bytes[RDMA_NLDEV_ATTR_MAX];
	uint32_t port;
	bool is_dump;
	bool has_asked;             /* the processes, with records of the requested kinds */
	struct processes processes;
};

static size_t begin_message(struct vb_reply *r, const struct request *q, uint16_t type, uint16_t flags)
{
	size_t at = r->used;
	struct nlmsghdr *h = add(r, NLMSG_HDRLEN);

	if (h)
		*h = (struct nlmsghdr){ .nlmsg_type = type,
					.nlmsg_flags = flags,
					.nlmsg_seq = q->head.nlmsg_seq,
					.nlmsg_pid = q->port };
	return at;
}

static void end_message(struct vb_reply *r, size_t at)
{
	if (!r->is_short)
		((struct nlmsghdr *)(r->bytes + at))->nlmsg_len = (uint32_t)(r->used - at);
}

/* A message of the kind that was asked for. */
static size_t begin_answer(struct vb_reply *r, const struct request *q)
{
	return begin_message(r, q, q->head.nlmsg_type, q->is_dump ? NLM_F_MULTI : 0);
}

static void done(struct vb_reply *r, const struct request *q)
{
	size_t at = begin_message(r, q, NLMSG_DONE, NLM_F_MULTI);

	add(r, sizeof(int));
	end_message(r, at);
}

/* error: 0 or a positive errno. Of the request only the head comes back. */
static void acknowledge(struct vb_reply *r, const struct request *q, int error)
{
	size_t at = begin_message(r, q, NLMSG_ERROR, NLM_F_CAPPED);
	struct nlmsgerr *e = add(r, sizeof(*e));

	if (e)
		*e = (struct nlmsgerr){ .error = -error, .msg = q->head };
	end_message(r, at);
}

/* ---- reading requests ---- */

static void read_attributes(struct request *q, const uint8_t *at, size_t left)
{
	struct nlattr a;

	while (left >= sizeof(a)) {
		memcpy(&a, at, sizeof(a));
		if (a.nla_len < NLA_HDRLEN || a.nla_len > left)
			return;
		unsigned type = a.nla_type & NLA_TYPE_MASK;
		if (type < RDMA_NLDEV_ATTR_MAX) {
			q->attributes[type] = at + NLA_HDRLEN;
			q->bytes[type] = (uint16_t)(a.nla_len - NLA_HDRLEN);
		}
		size_t step = NLA_ALIGN(a.nla_len);
		if (step >= left)
			return;
		at += step;
		left -= step;
	}
}

static bool get_u32(const struct request *q, unsigned type, uint32_t *v)
{
	if (!q->attributes[type] || q->bytes[type] < sizeof(*v))
		return false;
	memcpy(v, q->attributes[type], sizeof(*v));
	return true;
}

/* ---- devices, of the tree ---- */

#define TREE "/sys/class/infiniband"

struct device {
	char name[64], interface[IF_NAMESIZE];
	uint32_t index;       /* its interface's, from 0 on: it does not change while the device is there */
	uint32_t interface_index;
};

struct devices {
	struct device *list;
	unsigned count, room;
	bool is_short; /* memory was out */
};

/* The first line of a file of a device, without its end; empty: there is none. */
static void read_file(const struct device *d, const char *file, char *text, size_t room)
{
	char path[256];

	snprintf(path, sizeof(path), TREE "/%s/%s", d->name, file);
	FILE *f = fopen(path, "re");
	*text = 0;
	if (f) {
		if (!fgets(text, (int)room, f))
			*text = 0;
		fclose(f);
	}
	text[strcspn(text, "\n")] = 0;
}

static uint64_t read_number(const struct device *d, const char *file)
{
	char text[64];

	read_file(d, file, text, sizeof(text));
	return strtoull(text, NULL, 0);
}

/* "0276:62ff:fe00:0001", most significant first. */
static uint64_t read_guid(const struct device *d, const char *file)
{
	char text[64];
	unsigned part[4] = { 0 };

	read_file(d, file, text, sizeof(text));
	sscanf(text, "%x:%x:%x:%x", &part[0], &part[1], &part[2], &part[3]);
	return (uint64_t)part[0] << 48 | (uint64_t)part[1] << 32 | (uint64_t)part[2] << 16 | part[3];
}

/* Calls `each` with the name of each file of a folder that does not begin with a dot. */
static void list_folder(const char *path, void (*each)(const char *name, void *arg), void *arg)
{
	DIR *folder = opendir(path);
	const struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] != '.')
			each(entry->d_name, arg);
	if (folder)
		closedir(folder);
}

static struct device *have_room(struct devices *all)
{
	if (all->count == all->room) {
		unsigned room = 2 * all->room + 16;
		struct device *grown = realloc(all->list, room * sizeof(*grown));
		all->is_short |= !grown;
		if (!grown)
			return NULL;
		all->list = grown;
		all->room = room;
	}
	return &all->list[all->count];
}

static void take_device(const char *name, void *arg)
{
	struct devices *all = arg;
	struct device *d = have_room(all);

	if (!d)
		return;
	*d = (struct device){ .index = 0 };
	snprintf(d->name, sizeof(d->name), "%.*s", (int)sizeof(d->name) - 1, name);
	read_file(d, "parent", d->interface, sizeof(d->interface)); /* device/net may have further ones */
	d->interface_index = if_nametoindex(d->interface);
	if (!d->interface_index)
		return;
	d->index = d->interface_index - 1;
	all->count++;
}

static int by_index(const void *a, const void *b)
{
	const struct device *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

/* all->list is to be freed. */
static void find_devices(struct devices *all)
{
	*all = (struct devices){ .list = NULL };
	list_folder(TREE, take_device, all);
	if (all->count)
		qsort(all->list, all->count, sizeof(all->list[0]), by_index);
}

static bool is_infiniband(const struct device *d)
{
	char text[32];

	read_file(d, "ports/1/link_layer", text, sizeof(text));
	return strcmp(text, "InfiniBand") == 0;
}

static void put_handle(struct vb_reply *r, const struct device *d)
{
	put_u32(r, RDMA_NLDEV_ATTR_DEV_INDEX, d->index);
	put_text(r, RDMA_NLDEV_ATTR_DEV_NAME, d->name);
}

static void put_device(struct vb_reply *r, struct request *q, const struct device *d)
{
	char text[64];

	put_handle(r, d);
	put_u32(r, RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
	put_u64(r, RDMA_NLDEV_ATTR_CAP_FLAGS, VB_DEVICE_CAPS);
	read_file(d, "fw_ver", text, sizeof(text));
	if (*text)
		put_text(r, RDMA_NLDEV_ATTR_FW_VERSION, text);
	put_u64(r, RDMA_NLDEV_ATTR_NODE_GUID, read_guid(d, "node_guid"));
	put_u64(r, RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, read_guid(d, "sys_image_guid"));
	put_u8(r, RDMA_NLDEV_ATTR_DEV_NODE_TYPE, (uint8_t)read_number(d, "node_type"));
	put_text(r, RDMA_NLDEV_ATTR_DEV_PROTOCOL, is_infiniband(d) ? "ib" : "roce");
}

/* The subnet prefix of a default GID. */
static const uint64_t SUBNET_PREFIX = 0xfe80000000000000;

static void put_port(struct vb_reply *r, struct request *q, const struct device *d)
{
	put_handle(r, d);
	put_u32(r, RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
	if (is_infiniband(d)) {
		put_u64(r, RDMA_NLDEV_ATTR_CAP_FLAGS, read_number(d, "ports/1/cap_mask"));
		put_u64(r, RDMA_NLDEV_ATTR_SUBNET_PREFIX, SUBNET_PREFIX);
		put_u32(r, RDMA_NLDEV_ATTR_LID, (uint32_t)read_number(d, "ports/1/lid"));
		put_u32(r, RDMA_NLDEV_ATTR_SM_LID, (uint32_t)read_number(d, "ports/1/sm_lid"));
		put_u8(r, RDMA_NLDEV_ATTR_LMC, (uint8_t)read_number(d, "ports/1/lid_mask_count"));
	}
	put_u8(r, RDMA_NLDEV_ATTR_PORT_STATE, (uint8_t)read_number(d, "ports/1/state"));
	put_u8(r, RDMA_NLDEV_ATTR_PORT_PHYS_STATE, (uint8_t)read_number(d, "ports/1/phys_state"));
	put_u32(r, RDMA_NLDEV_ATTR_NDEV_INDEX, d->interface_index);
	put_text(r, RDMA_NLDEV_ATTR_NDEV_NAME, d->interface);
}

struct counting {
	struct vb_reply *reply;
	const struct device *device;
};

static void put_counter(const char *name, void *arg)
{
	const struct counting *c = arg;
	char file[288];

	snprintf(file, sizeof(file), "ports/1/hw_counters/%s", name);
	size_t entry = begin(c->reply, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);
	put_text(c->reply, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name);
	put_u64(c->reply, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, read_number(c->device, file));
	end(c->reply, entry);
}

static void put_counters(struct vb_reply *r, struct request *q, const struct device *d)
{
	struct counting c = { r, d };
	char path[256];

	put_handle(r, d);
	put_u32(r, RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
	size_t table = begin(r, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
	snprintf(path, sizeof(path), TREE "/%s/ports/1/hw_counters", d->name);
	list_folder(path, put_counter, &c);
	end(r, table);
}

/* ---- resources, of the user's processes ---- */

/* Serials are unique in a process; with its slot they are unique, as the kernel's are. */
static uint32_t number_of(const struct process *p, uint64_t serial)
{
	return p->slot << 20 | (uint32_t)(serial & 0xfffff);
}

static void put_qp(struct vb_reply *r, const struct process *p, const void *record)
{
	const struct vb_record_qp *qp = record;
	bool is_connected = qp->type == IBV_QPT_RC || qp->type == IBV_QPT_UC;

	put_u32(r, RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
	put_u32(r, RDMA_NLDEV_ATTR_RES_LQPN, qp->qpn);
	if (is_connected) {
		put_u32(r, RDMA_NLDEV_ATTR_RES_RQPN, qp->peer_qpn);
		put_u32(r, RDMA_NLDEV_ATTR_RES_RQ_PSN, qp->rq_psn);
		put_u8(r, RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, IBV_MIG_MIGRATED);
	}
	put_u32(r, RDMA_NLDEV_ATTR_RES_SQ_PSN, qp->sq_psn);
	put_u8(r, RDMA_NLDEV_ATTR_RES_TYPE, (uint8_t)qp->type);
	put_u8(r, RDMA_NLDEV_ATTR_RES_STATE, (uint8_t)qp->state);
	if (qp->pd)
		put_u32(r, RDMA_NLDEV_ATTR_RES_PDN, number_of(p, qp->pd));
}

static void put_cq(struct vb_reply *r, const struct process *p, const void *record)
{
	const struct vb_record_cq *cq = record;

	put_u32(r, RDMA_NLDEV_ATTR_RES_CQE, cq->capacity);
	put_u64(r, RDMA_NLDEV_ATTR_RES_USECNT, cq->users);
	put_u32(r, RDMA_NLDEV_ATTR_RES_CQN, number_of(p, cq->serial));
	put_u32(r, RDMA_NLDEV_ATTR_RES_CTXN, number_of(p, cq->context));
}

/* As in the kernel, only a network administrator sees keys. */
static void put_mr(struct vb_reply *r, const struct process *p, const void *record)
{
	const struct vb_record_mr *mr = record;

	if (geteuid() == 0) {
		put_u32(r, RDMA_NLDEV_ATTR_RES_RKEY, mr->key);
		put_u32(r, RDMA_NLDEV_ATTR_RES_LKEY, mr->key);
	}
	put_u64(r, RDMA_NLDEV_ATTR_RES_MRLEN, mr->length);
	put_u32(r, RDMA_NLDEV_ATTR_RES_MRN, number_of(p, mr->key >> 8));
	put_u32(r, RDMA_NLDEV_ATTR_RES_PDN, number_of(p, mr->pd));
}

static void put_pd(struct vb_reply *r, const struct process *p, const void *record)
{
	const struct vb_record_pd *pd = record;

	put_u64(r, RDMA_NLDEV_ATTR_RES_USECNT, pd->users);
	put_u32(r, RDMA_NLDEV_ATTR_RES_PDN, number_of(p, pd->number));
	put_u32(r, RDMA_NLDEV_ATTR_RES_CTXN, number_of(p, pd->context));
}

static void put_address(struct vb_reply *r, unsigned type, const uint8_t ip[16], uint32_t scope,
			uint16_t port)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct sockaddr_storage a = { .ss_family = AF_INET6 };
	struct sockaddr_in *v4 = (struct sockaddr_in *)&a;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a;

	if (memcmp(ip, mapped, sizeof(mapped)) == 0) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, ip + sizeof(mapped), sizeof(v4->sin_addr));
	} else {
		v6->sin6_port = htons(port);
		v6->sin6_scope_id = scope;
		memcpy(&v6->sin6_addr, ip, sizeof(v6->sin6_addr));
	}
	put(r, type, &a, sizeof(a));
}

static void put_cm_id(struct vb_reply *r, const struct process *p, const void *record)
{
	const struct vb_record_cm_id *id = record;

	put_u32(r, RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
	if (id->qpn)
		put_u32(r, RDMA_NLDEV_ATTR_RES_LQPN, id->qpn);
	put_u8(r, RDMA_NLDEV_ATTR_RES_TYPE, (uint8_t)id->qp_type);
	put_u32(r, RDMA_NLDEV_ATTR_RES_PS, id->port_space);
	put_u8(r, RDMA_NLDEV_ATTR_RES_STATE, (uint8_t)id->kernel_state);
	put_address(r, RDMA_NLDEV_ATTR_RES_SRC_ADDR, id->source, id->source_scope, id->source_port);
	put_address(r, RDMA_NLDEV_ATTR_RES_DST_ADDR, id->destination, id->destination_scope,
		    id->destination_port);
	put_u32(r, RDMA_NLDEV_ATTR_RES_CM_IDN, number_of(p, id->serial));
}

static void put_context(struct vb_reply *r, const struct process *p, const void *record)
{
	const struct vb_record_device *context = record;

	put_u32(r, RDMA_NLDEV_ATTR_RES_CTXN, number_of(p, context->serial));
}

/* Those that take their receives from it, as many as a message holds beside what it has already. */
static void put_users(struct vb_reply *r, const struct process *p, const struct vb_record_srq *srq)
{
	const struct vb_record_qp *qp;
	size_t at = 0, table = begin(r, RDMA_NLDEV_ATTR_RES_QP);

	while (r->used - table < USERS_BYTES && (qp = process_next(p, &at, VB_RECORD_QP))) {
		if (qp->srq != srq->serial)
			continue;
		size_t entry = begin(r, RDMA_NLDEV_ATTR_RES_QP_ENTRY);
		put_u32(r, RDMA_NLDEV_ATTR_RES_LQPN, qp->qpn);
		end(r, entry);
	}
	end(r, table);
}

static void put_srq(struct vb_reply *r, const struct process *p, const void *record)
{
	const struct vb_record_srq *srq = record;

	put_u32(r, RDMA_NLDEV_ATTR_RES_SRQN, number_of(p, srq->serial));
	put_u8(r, RDMA_NLDEV_ATTR_RES_TYPE, srq->number ? IBV_SRQT_XRC : IBV_SRQT_BASIC);
	if (srq->pd)
		put_u32(r, RDMA_NLDEV_ATTR_RES_PDN, number_of(p, srq->pd));
	put_users(r, p, srq);
}

static uint32_t qp_number(const struct process *p, const void *record)
{
	return ((const struct vb_record_qp *)record)->qpn;
}
static uint32_t mr_number(const struct process *p, const void *record)
{
	return number_of(p, ((const struct vb_record_mr *)record)->key >> 8);
}
static uint32_t pd_number(const struct process *p, const void *record)
{
	return number_of(p, ((const struct vb_record_pd *)record)->number);
}

/* For records whose serial follows the head. */
static uint32_t serial_number(const struct process *p, const void *record)
{
	uint64_t serial;

	memcpy(&serial, (const uint8_t *)record + sizeof(struct vb_record), sizeof(serial));
	return number_of(p, serial);
}
_Static_assert(offsetof(struct vb_record_cq, serial) == sizeof(struct vb_record) &&
	offsetof(struct vb_record_srq, serial) == sizeof(struct vb_record) &&
	offsetof(struct vb_record_cm_id, serial) == sizeof(struct vb_record) &&
	offsetof(struct vb_record_device, serial) == sizeof(struct vb_record), "layout");

enum { NO_DEVICE = -1 };

static const struct resource {
	const char *name; /* in the summary, whose order is the table's */
	enum vb_record_kind kind, also; /* also: records that its own refer to, or NONE */
	int device;       /* offset of its device's name; NO_DEVICE: of its domain */
	unsigned command, table, entry, id; /* RDMA_NLDEV_*; id is what one is asked for by */
	uint32_t (*number)(const struct process *p, const void *record);
	void (*put)(struct vb_reply *r, const struct process *p, const void *record);
} resources[] = {
#define ROW(text, record_kind, other, where, word, numbered, putter) \
	{ text, VB_RECORD_##record_kind, VB_RECORD_##other, where, RDMA_NLDEV_CMD_RES_##word##_GET, \
	  RDMA_NLDEV_ATTR_RES_##word, RDMA_NLDEV_ATTR_RES_##word##_ENTRY, \
	  RDMA_NLDEV_ATTR_RES_##numbered, putter
	ROW("pd", PD, NONE, offsetof(struct vb_record_pd, device), PD, PDN, pd_number), put_pd },
	ROW("cq", CQ, NONE, offsetof(struct vb_record_cq, device), CQ, CQN, serial_number), put_cq },
	ROW("qp", QP, NONE, offsetof(struct vb_record_qp, device), QP, LQPN, qp_number), put_qp },
	ROW("cm_id", CM_ID, NONE, offsetof(struct vb_record_cm_id, device), CM_ID, CM_IDN, serial_number), put_cm_id },
	ROW("mr", MR, PD, NO_DEVICE, MR, MRN, mr_number), put_mr },
	ROW("ctx", DEVICE, NONE, offsetof(struct vb_record_device, name), CTX, CTXN, serial_number), put_context },
	ROW("srq", SRQ, QP, offsetof(struct vb_record_srq, device), SRQ, SRQN, serial_number), put_srq },
#undef ROW
};

static bool is_named(const char *found, const struct device *d)
{
	return strncmp(found, d->name, sizeof(d->name)) == 0;
}

/* Walks all resources of one kind and device. End it with end_walk. */
struct resource_walk {
	const struct processes *all;
	const struct resource *what;
	const struct device *device;
	const struct process *process; /* whose the record is */
	_Alignas(8) uint8_t record[VB_RECORD_MAX];
	unsigned next;                 /* in all */
	size_t at;                     /* in the process's records; 0: not begun */
	uint32_t *domains;             /* of the process, on the device */
	unsigned domain_count, domain_room;
};

static void end_walk(struct resource_walk *w) { free(w->domains); }

/* Regions name only their domain. Without memory domains are left out. */
static void list_domains(struct resource_walk *w)
{
	const struct vb_record_pd *pd;
	size_t at = 0;

	w->domain_count = 0;
	while ((pd = process_next(w->process, &at, VB_RECORD_PD))) {
		if (!is_named(pd->device, w->device))
			continue;
		if (w->domain_count == w->domain_room) {
			unsigned room = 2 * w->domain_room + 16;
			uint32_t *grown = realloc(w->domains, room * sizeof(*grown));
			if (!grown)
				return;
			w->domains = grown;
			w->domain_room = room;
		}
		w->domains[w->domain_count++] = pd->number;
	}
}

static bool is_of_device(const struct resource_walk *w)
{
	if (w->what->device != NO_DEVICE)
		return is_named((const char *)w->record + w->what->device, w->device);
	for (unsigned i = 0; i < w->domain_count; i++)
		if (w->domains[i] == ((const struct vb_record_mr *)(const void *)w->record)->pd)
			return true;
	return false;
}

/* The next resource, into w->process and w->record. */
static bool next_resource(struct resource_walk *w)
{
	for (; w->next < w->all->count; w->next++, w->at = 0) {
		const struct vb_record *found;
		w->process = &w->all->list[w->next];
		if (w->at == 0 && w->what->device == NO_DEVICE)
			list_domains(w);
		while ((found = process_next(w->process, &w->at, w->what->kind))) {
			memcpy(w->record, found, sizeof(w->record));
			if (is_of_device(w))
				return true;
		}
	}
	return false;
}

/* Asks the processes, once per request. */
static const struct processes *processes_of(struct request *q, uint32_t kinds)
{
	if (!q->has_asked) {
		q->has_asked = true;
		processes_find(&q->processes);
		processes_ask(&q->processes, kinds, PATIENCE_MS);
	}
	return &q->processes;
}

static void put_resource(struct vb_reply *r, const struct resource_walk *w)
{
	w->what->put(r, w->process, w->record);
	if (w->process->pid > 0)
		put_u32(r, RDMA_NLDEV_ATTR_RES_PID, (uint32_t)w->process->pid);
}

/* All resources of a device, as many in a message as fit. */
static void dump_resources(struct vb_reply *r, const struct request *q, struct resource_walk *w)
{
	bool more = next_resource(w);

	while (more && !r->is_short) {
		size_t message = begin_answer(r, q);
		put_handle(r, w->device);
		size_t table = begin(r, w->what->table);
		for (; more && r->used - message < MESSAGE_BYTES / 2; more = next_resource(w)) {
			size_t entry = begin(r, w->what->entry);
			put_resource(r, w);
			end(r, entry);
		}
		end(r, table);
		end_message(r, message);
	}
}

/* Answers a request of a kind of resource: a dump, or the one that it names. 0 or an errno. */
static int answer_resources(struct vb_reply *r, struct request *q, const struct resource *what,
			    const struct device *d)
{
	struct resource_walk w = { .what = what, .device = d };
	uint32_t number = 0, port;
	int error = ENOENT;

	if (get_u32(q, RDMA_NLDEV_ATTR_PORT_INDEX, &port) && port != PORT)
		return EINVAL;
	if (!q->is_dump && !get_u32(q, what->id, &number))
		return EINVAL;
	w.all = processes_of(q, 1u << what->kind | 1u << what->also);
	if (q->is_dump) {
		dump_resources(r, q, &w);
		error = 0;
	}
	while (error && next_resource(&w)) {
		if (what->number(w.process, w.record) != number)
			continue;
		size_t message = begin_answer(r, q);
		put_handle(r, d);
		put_resource(r, &w);
		end_message(r, message);
		error = 0;
	}
	end_walk(&w);
	return error;
}

static void put_summary(struct vb_reply *r, struct request *q, const struct device *d)
{
	uint32_t kinds = 0;

	for (size_t i = 0; i < VB_ARRAY_LEN(resources); i++)
		kinds |= 1u << resources[i].kind;
	const struct processes *all = processes_of(q, kinds);
	put_handle(r, d);
	size_t table = begin(r, RDMA_NLDEV_ATTR_RES_SUMMARY);
	for (size_t i = 0; i < VB_ARRAY_LEN(resources); i++) {
		struct resource_walk w = { .all = all, .what = &resources[i], .device = d };
		uint64_t count = 0;
		while (next_resource(&w))
			count++;
		end_walk(&w);
		size_t entry = begin(r, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
		put_text(r, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, resources[i].name);
		put_u64(r, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
		end(r, entry);
	}
	end(r, table);
}

/* ---- requests ---- */

/*
 * Devices belong to one network namespace each. Memory that a parent has registered is copied for a forked
 * child.
 */
static void put_system(struct vb_reply *r, const struct request *q)
{
	size_t message = begin_answer(r, q);

	put_u8(r, RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 0);
	put_u8(r, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1);
	end_message(r, message);
}

typedef void put_fn(struct vb_reply *r, struct request *q, const struct device *d);

/* One message of the device, or of each. */
static int answer_devices(struct vb_reply *r, struct request *q, const struct devices *all,
			  const struct device *d, put_fn *put_it)
{
	uint32_t port;

	if (!q->is_dump && !d)
		return EINVAL;
	if (get_u32(q, RDMA_NLDEV_ATTR_PORT_INDEX, &port) && port != PORT)
		return EINVAL;
	for (unsigned i = 0; i < all->count; i++) {
		if (d && d != &all->list[i])
			continue;
		size_t message = begin_answer(r, q);
		put_it(r, q, &all->list[i]);
		end_message(r, message);
	}
	return 0;
}

static const struct device *device_asked_for(const struct request *q, const struct devices *all)
{
	uint32_t index;

	for (unsigned i = 0; get_u32(q, RDMA_NLDEV_ATTR_DEV_INDEX, &index) && i < all->count; i++)
		if (all->list[i].index == index)
			return &all->list[i];
	return NULL;
}

/* 0 or an errno. */
static int answer_about(struct vb_reply *r, struct request *q, unsigned command, const struct devices *all)
{
	const struct device *d = device_asked_for(q, all);

	if (q->attributes[RDMA_NLDEV_ATTR_DEV_INDEX] && !d)
		return EINVAL;
	switch (command) {
	case RDMA_NLDEV_CMD_GET:
		return answer_devices(r, q, all, d, put_device);
	case RDMA_NLDEV_CMD_PORT_GET:
		return answer_devices(r, q, all, d, put_port);
	case RDMA_NLDEV_CMD_RES_GET:
		return answer_devices(r, q, all, d, put_summary);
	case RDMA_NLDEV_CMD_STAT_GET:
		/* counters that are bound to queue pairs: there are none */
		if (q->attributes[RDMA_NLDEV_ATTR_STAT_RES])
			return q->is_dump ? 0 : EOPNOTSUPP;
		return answer_devices(r, q, all, d, put_counters);
	case RDMA_NLDEV_CMD_SYS_GET:
		put_system(r, q);
		return 0;
	case RDMA_NLDEV_CMD_SET:
	case RDMA_NLDEV_CMD_NEWLINK:
	case RDMA_NLDEV_CMD_DELLINK:
	case RDMA_NLDEV_CMD_SYS_SET:
	case RDMA_NLDEV_CMD_STAT_SET:
	case RDMA_NLDEV_CMD_STAT_DEL:
	case RDMA_NLDEV_CMD_RES_QP_GET_RAW:
	case RDMA_NLDEV_CMD_RES_CQ_GET_RAW:
	case RDMA_NLDEV_CMD_RES_MR_GET_RAW:
	case CMD_RES_SRQ_GET_RAW:
	case CMD_NEWDEV:
	case CMD_DELDEV:
		return EPERM;
	}
	for (size_t i = 0; i < VB_ARRAY_LEN(resources); i++)
		if (resources[i].command == command)
			return d ? answer_resources(r, q, &resources[i], d) : EINVAL;
	return EOPNOTSUPP;
}

static int answer_command(struct vb_reply *r, struct request *q, unsigned command)
{
	struct devices all;

	find_devices(&all);
	int error = all.is_short ? ENOMEM : answer_about(r, q, command, &all);
	free(all.list);
	return error;
}

static void answer(struct vb_reply *r, struct request *q)
{
	int error = EINVAL;
	size_t before = r->used;

	if (RDMA_NL_GET_CLIENT(q->head.nlmsg_type) == RDMA_NL_NLDEV)
		error = answer_command(r, q, RDMA_NL_GET_OP(q->head.nlmsg_type));
	if (error)
		r->used = before;
	if (error || (!q->is_dump && (q->head.nlmsg_flags & NLM_F_ACK)))
		acknowledge(r, q, error);
	else if (q->is_dump)
		done(r, q);
	processes_free(&q->processes);
}

void vb_nldev_answer(const void *requests, size_t bytes, uint32_t port, struct vb_reply *reply)
{
	const uint8_t *at = requests;

	while (bytes >= NLMSG_HDRLEN) {
		struct request q = { .port = port };
		memcpy(&q.head, at, sizeof(q.head)); /* the program may have put it anywhere */
		size_t length = q.head.nlmsg_len;
		if (length < NLMSG_HDRLEN || length > bytes)
			return;
		q.is_dump = q.head.nlmsg_flags & NLM_F_DUMP; /* one of its bits is enough */
		read_attributes(&q, at + NLMSG_HDRLEN, length - NLMSG_HDRLEN);
		if ((q.head.nlmsg_flags & NLM_F_REQUEST) && q.head.nlmsg_type >= NLMSG_MIN_TYPE)
			answer(reply, &q);
		else if (q.head.nlmsg_flags & NLM_F_ACK)
			acknowledge(reply, &q, 0);
		size_t step = NLMSG_ALIGN(length);
		if (step >= bytes)
			return;
		at += step;
		bytes -= step;
	}
}
