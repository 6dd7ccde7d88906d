/* SPDX-License-Identifier: BSD-2-Clause */
/* The manual lists the names of all fields (verbatim(1), FIELDS). */
#include "describe.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "command.h"

enum { SLOT_SHIFT = 12 };

/* ---- names ---- */

static const char *name_in(const char *const *names, size_t count, unsigned value)
{
	return value < count && names[value] ? names[value] : "?";
}

const char *qp_state_name(unsigned state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
	return name_in(names, VB_ARRAY_LEN(names), state);
}

const char *qp_type_name(unsigned type)
{
	switch (type) {
	case IBV_QPT_RC:
		return "RC";
	case IBV_QPT_UC:
		return "UC";
	case IBV_QPT_UD:
		return "UD";
	case IBV_QPT_RAW_PACKET:
		return "RAW_PACKET";
	case IBV_QPT_XRC_SEND:
		return "XRC_SEND";
	case IBV_QPT_XRC_RECV:
		return "XRC_RECV";
	}
	return "?";
}

static const char *port_state_name(unsigned state)
{
	static const char *const names[] = { "NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER" };
	return name_in(names, VB_ARRAY_LEN(names), state);
}

static const char *port_space_name(unsigned ps)
{
	switch (ps) {
	case RDMA_PS_IPOIB:
		return "IPOIB";
	case RDMA_PS_TCP:
		return "TCP";
	case RDMA_PS_UDP:
		return "UDP";
	case RDMA_PS_IB:
		return "IB";
	}
	return "?";
}

static const char *access_names(unsigned access, char text[FIELD_TEXT])
{
	static const struct {
		unsigned bit;
		const char *name;
	} rights[] = {
		{ IBV_ACCESS_LOCAL_WRITE, "local_write" },
		{ IBV_ACCESS_REMOTE_WRITE, "remote_write" },
		{ IBV_ACCESS_REMOTE_READ, "remote_read" },
		{ IBV_ACCESS_REMOTE_ATOMIC, "remote_atomic" },
		{ IBV_ACCESS_MW_BIND, "mw_bind" },
		{ IBV_ACCESS_ZERO_BASED, "zero_based" },
		{ IBV_ACCESS_ON_DEMAND, "on_demand" },
		{ IBV_ACCESS_HUGETLB, "hugetlb" },
		{ IBV_ACCESS_FLUSH_GLOBAL, "flush_global" },
		{ IBV_ACCESS_FLUSH_PERSISTENT, "flush_persistent" },
	};

	text[0] = '\0';
	for (size_t i = 0; i < VB_ARRAY_LEN(rights); i++)
		if (access & rights[i].bit)
			snprintf(text + strlen(text), FIELD_TEXT - strlen(text), "%s%s", text[0] ? "," : "",
				 rights[i].name);
	return text;
}

void user_name(uid_t uid, char name[64])
{
	const struct passwd *who = getpwuid(uid);

	if (who)
		snprintf(name, 64, "%s", who->pw_name);
	else
		snprintf(name, 64, "%u", (unsigned)uid);
}

/* Empty for an address of zeros. */
const char *address_text(const uint8_t ip[16], char text[INET6_ADDRSTRLEN])
{
	struct in6_addr a;

	memcpy(&a, ip, sizeof(a));
	text[0] = '\0';
	if (IN6_IS_ADDR_V4MAPPED(&a))
		inet_ntop(AF_INET, ip + 12, text, INET6_ADDRSTRLEN);
	else if (!IN6_IS_ADDR_UNSPECIFIED(&a))
		inet_ntop(AF_INET6, &a, text, INET6_ADDRSTRLEN);
	return text;
}

/* Names that a process says may lack their end. */
#define row_name(row, name, from) \
	row_format((row), (name), "%.*s", (int)strnlen((from), sizeof(from)), (from))

static void row_handle(struct row *row, const char *name, uint64_t serial)
{
	if (serial)
		row_format(row, name, "%" PRIu64, serial);
	else
		row_text(row, name, "");
}

/* Of so many digits; 0: nothing. */
static void row_hex(struct row *row, const char *name, uint32_t number, int digits)
{
	if (number)
		row_format(row, name, "0x%0*x", digits, number);
	else
		row_text(row, name, "");
}

/* ---- records ---- */

static void describe_device(struct row *row, const struct vb_record_device *r)
{
	char text[INET6_ADDRSTRLEN], gids[FIELD_MOST] = "";

	row_name(row, "device", r->name);
	row_name(row, "interface", r->interface);
	row_text(row, "port", port_state_name(r->port_state));
	row_number(row, "mtu", r->active_mtu);
	row_format(row, "guid", "%016" PRIx64, be64toh(r->guid));
	for (unsigned i = 0; i < r->gids && i < VB_ARRAY_LEN(r->gid); i++)
		if (*address_text(r->gid[i], text) && strlen(gids) + strlen(text) + 2 < sizeof(gids))
			snprintf(gids + strlen(gids), sizeof(gids) - strlen(gids), "%s%s", gids[0] ? "," : "",
				 text);
	row_text(row, "gids", gids);
}

void peer_name(const struct vb_record_qp *r, const struct processes *all, char name[FIELD_TEXT])
{
	const struct process *p = r->peer_pid ? processes_of_slot(all, r->peer_qpn >> SLOT_SHIFT) : NULL;

	name[0] = '\0';
	if (r->peer_pid)
		snprintf(name, FIELD_TEXT, "%" PRId64 "%s%s", r->peer_pid, p ? " " : "", p ? p->name : "");
}

static void describe_peer(struct row *row, const struct vb_record_qp *r, const struct processes *all)
{
	char address[INET6_ADDRSTRLEN], process[FIELD_TEXT];

	peer_name(r, all, process);
	address_text(r->peer_gid, address);
	row_long_text(row, "to", process[0] ? process : address);
	row_text(row, "peer", address);
	row_detail(row);
	row_hex(row, "peer_qpn", r->peer_qpn, 6);
	row_detail(row);
	row_text(row, "peer_process", process);
	row_detail(row);
}

/* for_all: names, with spaces around, that tables show, too. */
static void describe_counts(struct row *row, const struct vb_counts *counts, const char *for_all)
{
#define X(name, what)                         \
	row_count(row, #name, counts->name);  \
	if (!strstr(for_all, " " #name " "))  \
		row_detail(row);
	VB_COUNTS(X)
#undef X
}

uint64_t bytes_done(const struct vb_counts *c)
{
	return c->send_bytes + c->write_bytes + c->read_bytes + c->atomic_bytes;
}

uint64_t requests_done(const struct vb_counts *c)
{
	return c->sends + c->writes + c->reads + c->atomics + c->flushes;
}

static void describe_qp(struct row *row, const struct vb_record_qp *r, const struct processes *all)
{
	char text[INET6_ADDRSTRLEN], rights[FIELD_TEXT];

	row_format(row, "qpn", "0x%06x", r->qpn);
	row_text(row, "type", qp_type_name(r->type));
	row_text(row, "state", qp_state_name(r->state));
	row_name(row, "device", r->device);
	row_detail(row);
	describe_peer(row, r, all);
	row_name(row, "path", r->path);
	row_name(row, "copy", r->copy);
	row_detail(row);
	row_count(row, "posted", r->posted);
	row_number(row, "unfinished", (uint32_t)(r->posted - r->completed));
	row_number(row, "waiting", (uint32_t)(r->recv_posted - r->recv_taken));
	row_count(row, "bytes", bytes_done(&r->counts));
	row_number(row, "mtu", r->mtu);
	row_detail(row);
	row_number(row, "pd", r->pd);
	row_detail(row);
	row_handle(row, "send_cq", r->send_cq);
	row_detail(row);
	row_handle(row, "recv_cq", r->recv_cq);
	row_detail(row);
	row_handle(row, "srq", r->srq);
	row_detail(row);
	describe_counts(row, &r->counts, "");
	row_text(row, "gid", address_text(r->gid, text));
	row_detail(row);
	row_text(row, "access", access_names(r->access, rights));
	row_detail(row);
	row_number(row, "completed", r->completed);
	row_detail(row);
	row_number(row, "receives_posted", r->recv_posted);
	row_detail(row);
	row_number(row, "receives_taken", r->recv_taken);
	row_detail(row);
	row_number(row, "max_send", r->max_send);
	row_detail(row);
	row_number(row, "max_recv", r->max_recv);
	row_detail(row);
	row_number(row, "sq_psn", r->sq_psn);
	row_detail(row);
	row_number(row, "rq_psn", r->rq_psn);
	row_detail(row);
	row_number(row, "retries", r->retries);
	row_detail(row);
	row_number(row, "port", r->port);
	row_detail(row);
	row_bool(row, "is_changing", r->busy);
	row_detail(row);
}

static void describe_cq(struct row *row, const struct vb_record_cq *r)
{
	static const char *const armed[] = { "", "any", "solicited" };

	row_handle(row, "cq", r->serial);
	row_name(row, "device", r->device);
	row_number(row, "capacity", r->capacity);
	row_number(row, "waiting", r->waiting);
	row_number(row, "produced", r->produced);
	row_number(row, "queues", r->users);
	row_text(row, "armed", name_in(armed, VB_ARRAY_LEN(armed), r->armed));
	row_text(row, "trouble", r->overrun ? "overrun" : r->busy ? "in use: not all is told" : "");
	row_bool(row, "has_channel", r->has_channel);
	row_detail(row);
}

static void describe_srq(struct row *row, const struct vb_record_srq *r)
{
	row_handle(row, "srq", r->serial);
	row_name(row, "device", r->device);
	row_number(row, "pd", r->pd);
	row_number(row, "max_wr", r->max_wr);
	row_number(row, "max_sge", r->max_sge);
	row_number(row, "waiting", r->waiting);
	row_number(row, "posted", r->posted);
	row_number(row, "limit", r->limit);
	row_number(row, "users", r->users);
	row_hex(row, "xrc", r->number, 6);
	row_bool(row, "in_use", r->busy);
	row_detail(row);
}

static void describe_pd(struct row *row, const struct vb_record_pd *r)
{
	row_handle(row, "pd", r->number);
	row_name(row, "device", r->device);
	row_number(row, "users", r->users);
}

static void describe_mr(struct row *row, const struct vb_record_mr *r)
{
	static const char *const mapped[] = { "never", "no", "yes" };
	char rights[FIELD_TEXT];

	row_format(row, "key", "0x%08x", r->key);
	row_format(row, "kind", "%s",
		   r->window == 1 ? "window 1" : r->window ? "window 2" : r->null ? "null region" : "region");
	row_number(row, "pd", r->pd);
	row_format(row, "address", "0x%" PRIx64, r->address);
	row_number(row, "bytes", r->length);
	row_text(row, "access", access_names(r->access, rights));
	row_text(row, "mapped", name_in(mapped, VB_ARRAY_LEN(mapped), r->mapped));
	row_format(row, "iova", "0x%" PRIx64, r->iova);
	row_detail(row);
	row_hex(row, "region", r->window ? r->of : 0, 8);
	row_number(row, "windows", r->window ? 0 : r->of);
	row_detail(row);
	row_hex(row, "only_qpn", r->qpn, 6);
}

static void row_endpoint(struct row *row, const char *name, const uint8_t ip[16], uint32_t scope,
			 uint16_t port)
{
	char text[INET6_ADDRSTRLEN], zone[16] = "";
	const char *address = address_text(ip, text);

	if (scope)
		snprintf(zone, sizeof(zone), "%%%u", scope);
	if (!*address && !port)
		row_text(row, name, "");
	else if (strchr(address, ':'))
		row_format(row, name, "[%s%s]:%u", address, zone, port);
	else
		row_format(row, name, "%s:%u", *address ? address : "*", port);
}

static void describe_cm_id(struct row *row, const struct vb_record_cm_id *r)
{
	row_handle(row, "id", r->serial);
	row_text(row, "space", port_space_name(r->port_space));
	row_text(row, "type", qp_type_name(r->qp_type));
	row_name(row, "state", r->state);
	row_endpoint(row, "source", r->source, r->source_scope, r->source_port);
	row_endpoint(row, "destination", r->destination, r->destination_scope, r->destination_port);
	row_name(row, "device", r->device);
	row_hex(row, "qpn", r->qpn, 6);
	row_number(row, "events", r->events_told);
	row_number(row, "unacknowledged", (uint32_t)(r->events_told - r->events_acked));
	row_bool(row, "is_synchronous", r->is_sync);
	row_detail(row);
}

static void describe_port(struct row *row, const struct vb_record_port *r)
{
	row_name(row, "device", r->device);
	row_count(row, "requests", requests_done(&r->counts));
	row_count(row, "bytes", bytes_done(&r->counts));
	describe_counts(row, &r->counts, " receives receive_bytes failed resent ");
}

void describe_record(struct row *row, enum vb_record_kind kind, const void *record,
		     const struct processes *all)
{
	switch (kind) {
	case VB_RECORD_DEVICE:
		describe_device(row, record);
		break;
	case VB_RECORD_PORT:
		describe_port(row, record);
		break;
	case VB_RECORD_QP:
		describe_qp(row, record, all);
		break;
	case VB_RECORD_CQ:
		describe_cq(row, record);
		break;
	case VB_RECORD_SRQ:
		describe_srq(row, record);
		break;
	case VB_RECORD_MR:
		describe_mr(row, record);
		break;
	case VB_RECORD_CM_ID:
		describe_cm_id(row, record);
		break;
	case VB_RECORD_PD:
		describe_pd(row, record);
		break;
	case VB_RECORD_NONE:
	case VB_RECORD_PROCESS:
	case VB_RECORD_KINDS:
		break;
	}
}

/* ---- processes ---- */

/* Among names with commas between. */
static bool is_listed(const char *names, const char *name)
{
	size_t n = strlen(name);

	for (; *names; names += strcspn(names, ","), names += *names == ',')
		if (strcspn(names, ",") == n && strncmp(names, name, n) == 0)
			return true;
	return false;
}

static void list_devices(struct row *row, const struct process *p)
{
	const struct vb_record_device *r;
	char text[FIELD_MOST] = "", name[72];
	size_t at = 0;

	while ((r = process_next(p, &at, VB_RECORD_DEVICE))) {
		snprintf(name, sizeof(name), "%.*s", (int)strnlen(r->name, sizeof(r->name)), r->name);
		if (!is_listed(text, name) && strlen(text) + strlen(name) + 2 < sizeof(text))
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", text[0] ? "," : "",
				 name);
	}
	row_text(row, "devices", text);
}

static uint64_t registered_bytes(const struct process *p)
{
	const struct vb_record_mr *r;
	uint64_t bytes = 0;
	size_t at = 0;

	while ((r = process_next(p, &at, VB_RECORD_MR)))
		bytes += r->window || r->null || r->length == UINT64_MAX ? 0 : r->length;
	return bytes;
}

void describe_process(struct row *row, const struct process *p)
{
	const struct vb_record_process *r;
	size_t at = 0;
	char user[64];

	user_name(p->uid, user);
	row_number(row, "pid", (uint64_t)p->pid);
	row_text(row, "user", user);
	row_text(row, "name", p->name);
	row_number(row, "slot", p->slot);
	list_devices(row, p);
	row_number(row, "qps", process_count(p, VB_RECORD_QP));
	row_number(row, "cqs", process_count(p, VB_RECORD_CQ));
	row_number(row, "srqs", process_count(p, VB_RECORD_SRQ));
	row_number(row, "mrs", process_count(p, VB_RECORD_MR));
	row_number(row, "mr_bytes", registered_bytes(p));
	row_number(row, "ids", process_count(p, VB_RECORD_CM_ID));
	row_text(row, "trouble", p->trouble);
	row_format(row, "run_state", "%c", p->run_state);
	row_detail(row);
	r = process_next(p, &at, VB_RECORD_PROCESS);
	row_format(row, "version", "%.*s", r ? (int)strnlen(r->version, sizeof(r->version)) : 0,
		   r ? r->version : "");
	row_detail(row);
	row_bool(row, "is_polling", r && r->polled);
	row_detail(row);
	row_bool(row, "is_local_off", r && r->local_off);
	row_detail(row);
}

/* ---- counters ---- */

struct vb_counts process_counts(const struct process *p)
{
	const struct vb_record_port *r;
	struct vb_counts sum = { 0 };
	size_t at = 0;

	while ((r = process_next(p, &at, VB_RECORD_PORT))) {
#define X(name, what) sum.name += r->counts.name;
		VB_COUNTS(X)
#undef X
	}
	return sum;
}

static uint64_t sum_of_drops(const struct vb_record_process *r)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < VB_DROP_REASONS; i++)
		sum += r->drops[i];
	return sum;
}

static void describe_drops(struct row *row, const struct vb_record_process *r)
{
#define X(NAME, word, why)                                          \
	row_count(row, "dropped_" word, r->drops[VB_DROP_##NAME]); \
	row_detail(row);
	VB_DROPS(X)
#undef X
}

static void count_cqs(struct row *row, const struct process *p)
{
	const struct vb_record_cq *r;
	uint64_t produced = 0;
	size_t at = 0;

	while ((r = process_next(p, &at, VB_RECORD_CQ)))
		produced += r->produced;
	row_count(row, "completions", produced);
}

void describe_counters(struct row *row, const struct process *p)
{
	static const struct vb_record_process nothing;
	const struct vb_record_process *r;
	struct vb_counts counts;
	size_t at = 0;

	row_number(row, "pid", (uint64_t)p->pid);
	row_text(row, "name", p->name);
	counts = process_counts(p);
	row_count(row, "requests", requests_done(&counts));
	row_count(row, "bytes", bytes_done(&counts));
	describe_counts(row, &counts, " receives receive_bytes resent ");
	count_cqs(row, p);
	r = process_next(p, &at, VB_RECORD_PROCESS);
	r = r ? r : &nothing;
	row_count(row, "packets_in", r->packets_in);
	row_count(row, "packets_out", r->packets_out);
	row_count(row, "dropped", sum_of_drops(r));
	row_count(row, "sleeps", r->sleeps);
	row_count(row, "polls", r->polls);
	row_text(row, "trouble", p->trouble);
	row_number(row, "asleep_ns", r->asleep_ns);
	row_detail(row);
	row_number(row, "congested", r->congested);
	row_detail(row);
	row_number(row, "send_failures", r->send_failures);
	row_detail(row);
	row_number(row, "memory_bytes", r->arena_bytes);
	row_detail(row);
	describe_drops(row, r);
}
