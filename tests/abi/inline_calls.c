/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls every inline function of the public headers on tables of functions that print how they are called.
 * Built once against our headers and once against the reference's, the two programs must print the same.
 *
 * The tables are filled with functions that take words, whatever the operation's parameters are; the calling
 * conventions of Linux pass up to six integers or pointers so. Objects are printed by name, numbers by their
 * low 32 bits.
 */
#include <infiniband/ib.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The objects that calls are made on, and memory for the structures that calls pass on without looking. */
static struct verbs_context ext;
/* The extended operations of rdma-core 44, in bytes: later ones are put before them. */
#define KNOWN (sizeof(ext) - offsetof(struct verbs_context, query_port))
static struct ibv_context *const context = &ext.context;
static struct ibv_pd pd, other_pd;
static struct ibv_mr mr;
static struct ibv_mw mw;
static struct ibv_dm dm;
static struct ibv_td td;
static struct ibv_xrcd xrcd;
static struct ibv_cq cq;
static struct ibv_cq_ex cq_ex;
static struct ibv_srq srq;
static struct ibv_wq wq;
static struct ibv_qp qp;
static struct ibv_qp_ex qp_ex;
static struct ibv_ah ah;
static struct ibv_flow flow;
static struct ibv_flow_action action;
static struct ibv_counters counters;
static struct ibv_rwq_ind_table table;
static struct ibv_comp_channel channel;
static struct rdma_cm_id id;
static char memory[4096];
static struct ibv_port_attr port_attr;
static struct ibv_device_attr_ex device_attr;
static struct ibv_srq_init_attr_ex srq_attr = { .pd = &pd };
static struct ibv_qp_init_attr_ex qp_attr = { .pd = &pd };
static struct ibv_wq_init_attr wq_attr = { .wq_context = &id };
static struct ibv_query_device_ex_input input;

/*
 * What operations return; what polls return once they were empty so often; what waiting for an event returns.
 */
static long answer;
static int empty_polls, poll_answer, event_answer;

static const struct {
	const void *address;
	const char *name;
} objects[] = {
	{ &ext.context, "context" }, { &pd, "pd" }, { &other_pd, "other_pd" }, { &mr, "mr" }, { &mw, "mw" },
	{ &dm, "dm" }, { &td, "td" }, { &xrcd, "xrcd" }, { &cq, "cq" }, { &cq_ex, "cq_ex" }, { &srq, "srq" },
	{ &wq, "wq" }, { &qp, "qp" }, { &qp_ex, "qp_ex" }, { &ah, "ah" }, { &flow, "flow" }, { &action, "action" },
	{ &counters, "counters" }, { &table, "table" }, { &channel, "channel" }, { &id, "id" },
	{ memory, "memory" }, { memory + 64, "memory+64" }, { &id.route.addr.src_addr, "src_addr" },
	{ &id.route.addr.dst_addr, "dst_addr" }, { &port_attr, "port_attr" }, { &device_attr, "device_attr" },
	{ &srq_attr, "srq_attr" }, { &qp_attr, "qp_attr" }, { &wq_attr, "wq_attr" }, { &input, "input" },
};

static void print_word(long word)
{
	size_t i;

	for (i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
		if (objects[i].address == (const void *)word) {
			printf(" %s", objects[i].name);
			return;
		}
	printf(" %u", (unsigned int)word);
}

static long called(const char *name, int n, ...)
{
	va_list words;

	printf("  %s:", name);
	va_start(words, n);
	while (n--)
		print_word(va_arg(words, long));
	va_end(words);
	printf("\n");
	return answer;
}

/* A table entry for an operation of one to five parameters. */
#define OP1(op) static long on_##op(long a) { return called(#op, 1, a); }
#define OP2(op) static long on_##op(long a, long b) { return called(#op, 2, a, b); }
#define OP3(op) static long on_##op(long a, long b, long c) { return called(#op, 3, a, b, c); }
#define OP4(op) static long on_##op(long a, long b, long c, long d) { return called(#op, 4, a, b, c, d); }
#define OP5(op) \
	static long on_##op(long a, long b, long c, long d, long e) { return called(#op, 5, a, b, c, d, e); }

#define EXTENDED(_)										\
	_(4, query_port) _(5, advise_mr) _(1, alloc_null_mr) _(4, read_counters)		\
	_(3, attach_counters_point_flow) _(2, create_counters) _(1, destroy_counters) _(5, reg_dm_mr)	\
	_(2, alloc_dm) _(1, free_dm) _(2, modify_flow_action_esp) _(1, destroy_flow_action)	\
	_(2, create_flow_action_esp) _(2, modify_qp_rate_limit) _(2, alloc_parent_domain)	\
	_(1, dealloc_td) _(2, alloc_td) _(2, modify_cq) _(1, destroy_rwq_ind_table)		\
	_(2, create_rwq_ind_table) _(1, destroy_wq) _(2, modify_wq) _(2, create_wq)		\
	_(2, query_rt_values) _(2, create_cq_ex) _(4, query_device_ex) _(1, ibv_destroy_flow)	\
	_(2, ibv_create_flow) _(2, open_qp) _(2, create_qp_ex) _(2, get_srq_num)		\
	_(2, create_srq_ex) _(2, open_xrcd) _(1, close_xrcd)
#define WR_OPS(_)										\
	_(5, wr_atomic_cmp_swp) _(4, wr_atomic_fetch_add) _(4, wr_bind_mw) _(2, wr_local_inv)	\
	_(3, wr_rdma_read) _(3, wr_rdma_write) _(4, wr_rdma_write_imm) _(1, wr_send)		\
	_(2, wr_send_imm) _(2, wr_send_inv) _(4, wr_send_tso) _(4, wr_set_ud_addr)		\
	_(2, wr_set_xrc_srqn) _(3, wr_set_inline_data) _(3, wr_set_inline_data_list)		\
	_(4, wr_set_sge) _(3, wr_set_sge_list) _(1, wr_start) _(1, wr_complete) _(1, wr_abort)	\
	_(4, wr_atomic_write)
#define CQ_OPS(_)										\
	_(2, start_poll) _(1, next_poll) _(1, end_poll) _(1, read_opcode) _(1, read_vendor_err)	\
	_(1, read_byte_len) _(1, read_imm_data) _(1, read_qp_num) _(1, read_src_qp)		\
	_(1, read_wc_flags) _(1, read_slid) _(1, read_sl) _(1, read_dlid_path_bits)		\
	_(1, read_completion_ts) _(1, read_cvlan) _(1, read_flow_tag) _(2, read_tm_info)	\
	_(1, read_completion_wallclock_ns)
#define BASE_OPS(_) _(2, alloc_mw) _(3, bind_mw) _(1, dealloc_mw) _(2, req_notify_cq)
#define DEFINE(n, op)	OP##n(op)

EXTENDED(DEFINE)
WR_OPS(DEFINE)
CQ_OPS(DEFINE)
BASE_OPS(DEFINE)
OP4(memcpy_to_dm)
OP4(memcpy_from_dm)

/* Operations on lists of requests print the first one. */
static int on_post_send(struct ibv_qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	called("post_send", 3, (long)q, (long)wr->wr_id, (long)wr->next);
	called(" opcode", 3, (long)wr->opcode, (long)wr->send_flags, (long)wr->num_sge);
	called(" sge", 3, (long)wr->sg_list->addr, (long)wr->sg_list->length, (long)wr->sg_list->lkey);
	if (wr->opcode == IBV_WR_SEND && qp.qp_type == IBV_QPT_UD)
		called(" ud", 3, (long)wr->wr.ud.ah, (long)wr->wr.ud.remote_qpn, (long)wr->wr.ud.remote_qkey);
	else if (wr->opcode != IBV_WR_SEND)
		called(" rdma", 2, (long)wr->wr.rdma.remote_addr, (long)wr->wr.rdma.rkey);
	*bad = wr;
	return (int)answer;
}

static int on_recv(const char *op, void *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	called(op, 4, (long)queue, (long)wr->wr_id, (long)wr->next, (long)wr->num_sge);
	called(" sge", 3, (long)wr->sg_list->addr, (long)wr->sg_list->length, (long)wr->sg_list->lkey);
	*bad = wr;
	return (int)answer;
}

static int on_post_recv(struct ibv_qp *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return on_recv("post_recv", q, wr, bad);
}

static int on_post_srq_recv(struct ibv_srq *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return on_recv("post_srq_recv", q, wr, bad);
}

static int on_post_wq_recv(struct ibv_wq *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return on_recv("post_wq_recv", q, wr, bad);
}

static int on_post_srq_ops(struct ibv_srq *q, struct ibv_ops_wr *op, struct ibv_ops_wr **bad)
{
	called("post_srq_ops", 2, (long)q, (long)op->wr_id);
	*bad = NULL;
	return (int)answer;
}

static int on_poll_cq(struct ibv_cq *q, int n, struct ibv_wc *wc)
{
	called("poll_cq", 3, (long)q, (long)n, (long)wc);
	return empty_polls-- > 0 ? 0 : poll_answer;
}

/*
 * The libraries' exported functions, as far as inline functions use them; in parentheses a macro is the
 * function.
 */
#define EXPORT(kind, name, params, n, ...) \
	kind (name) params { return (kind)called(#name, n, __VA_ARGS__); }
EXPORT(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *p, struct ibv_qp_init_attr *a), 2, (long)p, (long)a)
EXPORT(struct ibv_srq *, ibv_create_srq, (struct ibv_pd *p, struct ibv_srq_init_attr *a), 2, (long)p, (long)a)
EXPORT(int, ibv_query_device, (struct ibv_context *c, struct ibv_device_attr *a), 2, (long)c, (long)a)
EXPORT(int, ibv_query_port, (struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *a), 3,
       (long)c, (long)port, (long)a)
EXPORT(int, _ibv_query_gid_ex,
       (struct ibv_context * c, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
	size_t size),
       6, (long)c, (long)port, (long)index, (long)entry, (long)flags, (long)size)
EXPORT(ssize_t, _ibv_query_gid_table,
       (struct ibv_context * c, struct ibv_gid_entry *entries, size_t n, uint32_t flags, size_t size), 5,
       (long)c, (long)entries, (long)n, (long)flags, (long)size)
EXPORT(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *p, void *a, size_t n, int access), 4,
       (long)p, (long)a, (long)n, (long)access)
EXPORT(struct ibv_mr *, ibv_reg_mr_iova, (struct ibv_pd *p, void *a, size_t n, uint64_t iova, int access), 5,
       (long)p, (long)a, (long)n, (long)iova, (long)access)
EXPORT(struct ibv_mr *, ibv_reg_mr_iova2,
       (struct ibv_pd * p, void *a, size_t n, uint64_t iova, unsigned int access), 5, (long)p, (long)a,
       (long)n, (long)iova, (long)access)
EXPORT(int, ibv_dereg_mr, (struct ibv_mr *m), 1, (long)m)

int ibv_get_cq_event(struct ibv_comp_channel *c, struct ibv_cq **q, void **q_context)
{
	called("ibv_get_cq_event", 1, (long)c);
	*q = &cq;
	*q_context = &id;
	return event_answer;
}

void ibv_ack_cq_events(struct ibv_cq *q, unsigned int n)
{
	called("ibv_ack_cq_events", 2, (long)q, (long)n);
}

/* Calls that give a number, a pointer and nothing. */
static void gave(const char *kind, long word)
{
	printf("  = %s", kind);
	print_word(word);
	printf(" errno %d\n", errno);
}

#define INT(call) do { printf("%s\n", #call); errno = 0; gave("int", (long)(call)); } while (0)
#define PTR(call) do { printf("%s\n", #call); errno = 0; gave("pointer", (long)(call)); } while (0)
#define VOID(call) do { printf("%s\n", #call); call; } while (0)

static void fill_tables(void)
{
#define SET(table, op)	(*(void **)(void *)&(table).op = (void *)on_##op)
#define SET_EXT(n, op)	SET(ext, op);
#define SET_WR(n, op)	SET(qp_ex, op);
#define SET_CQ(n, op)	SET(cq_ex, op);
#define SET_BASE(n, op)	SET(ext.context.ops, op);
	EXTENDED(SET_EXT)
	WR_OPS(SET_WR)
	CQ_OPS(SET_CQ)
	BASE_OPS(SET_BASE)
	SET(dm, memcpy_to_dm);
	SET(dm, memcpy_from_dm);
	ext.post_srq_ops = on_post_srq_ops;
	wq.post_recv = on_post_wq_recv;
	ext.context.ops.post_send = on_post_send;
	ext.context.ops.post_recv = on_post_recv;
	ext.context.ops.post_srq_recv = on_post_srq_recv;
	ext.context.ops.poll_cq = on_poll_cq;
}

static void fill_objects(void)
{
	pd.context = other_pd.context = mr.context = mw.context = dm.context = td.context = context;
	xrcd.context = cq.context = cq_ex.context = srq.context = wq.context = qp.context = context;
	ah.context = flow.context = action.context = counters.context = table.context = channel.context =
		context;
	qp_ex.qp_base.context = context;
	mr.pd = mw.pd = &pd;
	mr.addr = memory;
	mr.length = sizeof(memory);
	mr.lkey = 1001;
	id.verbs = context;
	id.qp = &qp;
	id.pd = &pd;
	id.send_cq = id.recv_cq = &cq;
	id.send_cq_channel = id.recv_cq_channel = &channel;
}

/* Every call that looks for an extended operation. */
static void extended_calls(void)
{
	struct ibv_ops_wr op = { .wr_id = 7 }, *bad_op = NULL;

	memset(&port_attr, 0xff, sizeof(port_attr));
	memset(&device_attr, 0xff, sizeof(device_attr));
	INT(ibv_query_port(context, 1, &port_attr));
	printf("cleared: %d\n", port_attr.link_layer == 0);
	INT(ibv_advise_mr(&pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 3, (struct ibv_sge *)(void *)memory, 5));
	PTR(ibv_alloc_null_mr(&pd));
	PTR(ibv_create_counters(context, (struct ibv_counters_init_attr *)(void *)memory));
	INT(ibv_attach_counters_point_flow(&counters, (struct ibv_counter_attach_attr *)(void *)memory,
					   &flow));
	INT(ibv_read_counters(&counters, (uint64_t *)(void *)memory, 2, 1));
	INT(ibv_destroy_counters(&counters));
	PTR(ibv_reg_dm_mr(&pd, &dm, 8, 9, 10));
	PTR(ibv_alloc_dm(context, (struct ibv_alloc_dm_attr *)(void *)memory));
	INT(ibv_free_dm(&dm));
	PTR(ibv_create_flow_action_esp(context, (struct ibv_flow_action_esp_attr *)(void *)memory));
	INT(ibv_modify_flow_action_esp(&action, (struct ibv_flow_action_esp_attr *)(void *)memory));
	INT(ibv_destroy_flow_action(&action));
	INT(ibv_modify_qp_rate_limit(&qp, (struct ibv_qp_rate_limit_attr *)(void *)memory));
	PTR(ibv_alloc_parent_domain(context, (struct ibv_parent_domain_init_attr *)(void *)memory));
	PTR(ibv_alloc_td(context, (struct ibv_td_init_attr *)(void *)memory));
	INT(ibv_dealloc_td(&td));
	INT(ibv_modify_cq(&cq, (struct ibv_modify_cq_attr *)(void *)memory));
	INT(ibv_post_srq_ops(&srq, &op, &bad_op));
	printf("bad operation: %d\n", bad_op == &op);
	PTR(ibv_create_rwq_ind_table(context, (struct ibv_rwq_ind_table_init_attr *)(void *)memory));
	INT(ibv_destroy_rwq_ind_table(&table));
	INT(ibv_modify_wq(&wq, (struct ibv_wq_attr *)(void *)memory));
	INT(ibv_destroy_wq(&wq));
	INT(ibv_query_rt_values_ex(context, (struct ibv_values_ex *)(void *)memory));
	PTR(ibv_create_cq_ex(context, (struct ibv_cq_init_attr_ex *)(void *)memory));
	INT(ibv_query_device_ex(context, NULL, &device_attr));
	printf("cleared: %d\n", device_attr.phys_port_cnt_ex == 0);
	PTR(ibv_create_flow(&qp, (struct ibv_flow_attr *)(void *)memory));
	INT(ibv_destroy_flow(&flow));
	PTR(ibv_open_qp(context, (struct ibv_qp_open_attr *)(void *)memory));
	INT(ibv_get_srq_num(&srq, (uint32_t *)(void *)memory));
	PTR(ibv_open_xrcd(context, (struct ibv_xrcd_init_attr *)(void *)memory));
}

/* Creations whose path depends on the attributes. */
static void creations(void)
{
	uint32_t mask;
	int type;

	for (mask = 0; mask < 128; mask++)
		for (type = IBV_SRQT_BASIC; type <= IBV_SRQT_TM; type++) {
			srq_attr.comp_mask = qp_attr.comp_mask = mask;
			srq_attr.srq_type = (enum ibv_srq_type)type;
			printf("mask %u type %d\n", mask, type);
			PTR(ibv_create_srq_ex(context, &srq_attr));
			PTR(ibv_create_qp_ex(context, &qp_attr));
		}
	answer = (long)&wq;
	wq.events_completed = 5;
	PTR(ibv_create_wq(context, &wq_attr));
	printf("work queue: %d %u\n", wq.wq_context == &id, wq.events_completed);
	INT(pthread_mutex_lock(&wq.mutex));
	for (answer = -1; answer < 200; answer++)
		INT(ibv_query_device_ex(context, NULL, &device_attr));
	answer = 0;
	INT(ibv_query_device_ex(context, &input, &device_attr));
	input.comp_mask = 1;
	INT(ibv_query_device_ex(context, &input, &device_attr));
}

static void registrations(void)
{
	volatile int plain = IBV_ACCESS_LOCAL_WRITE;

	PTR(ibv_reg_mr(&pd, memory, 3, IBV_ACCESS_LOCAL_WRITE));
	PTR(ibv_reg_mr(&pd, memory, 3, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING));
	PTR(ibv_reg_mr(&pd, memory, 3, 1 << 29));
	PTR(ibv_reg_mr(&pd, memory, 3, 1 << 30));
	PTR(ibv_reg_mr(&pd, memory, 3, plain));
	PTR(ibv_reg_mr(&pd, memory, 3, plain & 0xff));
	PTR(ibv_reg_mr(&pd, memory, 3, plain | (1 << 20)));
	PTR(ibv_reg_mr_iova(&pd, memory, 3, 77, IBV_ACCESS_LOCAL_WRITE));
	PTR(ibv_reg_mr_iova(&pd, memory, 3, 77, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING));
	PTR(ibv_reg_mr_iova(&pd, memory, 3, 77, plain));
}

static void windows(void)
{
	struct ibv_mw_bind bind = { .wr_id = 5 };
	int type, owner, region, range;

	PTR(ibv_alloc_mw(&pd, IBV_MW_TYPE_2));
	INT(ibv_dealloc_mw(&mw));
	ext.context.ops.alloc_mw = NULL;
	PTR(ibv_alloc_mw(&pd, IBV_MW_TYPE_1));
	for (type = 1; type <= 2; type++)
		for (owner = 0; owner < 2; owner++)
			for (region = 0; region < 2; region++)
				for (range = 0; range < 4; range++) {
					mw.type = (enum ibv_mw_type)type;
					mw.pd = owner ? &pd : &other_pd;
					bind.bind_info.mr = region ? &mr : NULL;
					bind.bind_info.addr = range & 1 ? 1 : 0;
					bind.bind_info.length = range & 2 ? 1 : 0;
					printf("bind %d %d %d %d: %d\n", type, owner, region, range,
					       ibv_bind_mw(&qp, &mw,
							   (struct ibv_mw_bind *)memcpy(memory, &bind,
											sizeof(bind))));
				}
}

static void work_requests(void)
{
	struct ibv_data_buf *bufs = (struct ibv_data_buf *)(void *)memory;
	struct ibv_sge *sges = (struct ibv_sge *)(void *)memory;

	VOID(ibv_wr_start(&qp_ex));
	VOID(ibv_wr_atomic_cmp_swp(&qp_ex, 1, 2, 3, 4));
	VOID(ibv_wr_atomic_fetch_add(&qp_ex, 1, 2, 3));
	VOID(ibv_wr_bind_mw(&qp_ex, &mw, 1, (struct ibv_mw_bind_info *)(void *)memory));
	VOID(ibv_wr_local_inv(&qp_ex, 1));
	VOID(ibv_wr_rdma_read(&qp_ex, 1, 2));
	VOID(ibv_wr_rdma_write(&qp_ex, 1, 2));
	VOID(ibv_wr_rdma_write_imm(&qp_ex, 1, 2, 3));
	VOID(ibv_wr_send(&qp_ex));
	VOID(ibv_wr_send_imm(&qp_ex, 1));
	VOID(ibv_wr_send_inv(&qp_ex, 1));
	VOID(ibv_wr_send_tso(&qp_ex, memory, 1, 2));
	VOID(ibv_wr_atomic_write(&qp_ex, 1, 2, memory));
	VOID(ibv_wr_set_ud_addr(&qp_ex, &ah, 1, 2));
	VOID(ibv_wr_set_xrc_srqn(&qp_ex, 1));
	VOID(ibv_wr_set_inline_data(&qp_ex, memory, 1));
	VOID(ibv_wr_set_inline_data_list(&qp_ex, 1, bufs));
	VOID(ibv_wr_set_sge(&qp_ex, 1, 2, 3));
	VOID(ibv_wr_set_sge_list(&qp_ex, 1, sges));
	INT(ibv_wr_complete(&qp_ex));
	VOID(ibv_wr_abort(&qp_ex));
}

static void completions(void)
{
	INT(ibv_start_poll(&cq_ex, (struct ibv_poll_cq_attr *)(void *)memory));
	INT(ibv_wc_read_opcode(&cq_ex));
	INT(ibv_wc_read_vendor_err(&cq_ex));
	INT(ibv_wc_read_byte_len(&cq_ex));
	INT(ibv_wc_read_imm_data(&cq_ex));
	INT(ibv_wc_read_invalidated_rkey(&cq_ex));
	INT(ibv_wc_read_qp_num(&cq_ex));
	INT(ibv_wc_read_src_qp(&cq_ex));
	INT(ibv_wc_read_wc_flags(&cq_ex));
	INT(ibv_wc_read_slid(&cq_ex));
	INT(ibv_wc_read_sl(&cq_ex));
	INT(ibv_wc_read_dlid_path_bits(&cq_ex));
	INT(ibv_wc_read_completion_ts(&cq_ex));
	INT(ibv_wc_read_completion_wallclock_ns(&cq_ex));
	INT(ibv_wc_read_cvlan(&cq_ex));
	INT(ibv_wc_read_flow_tag(&cq_ex));
	VOID(ibv_wc_read_tm_info(&cq_ex, (struct ibv_wc_tm_info *)(void *)memory));
	INT(ibv_next_poll(&cq_ex));
	VOID(ibv_end_poll(&cq_ex));
	PTR(ibv_cq_ex_to_cq(&cq_ex));
	INT(ibv_req_notify_cq(&cq, 1));
	INT(ibv_poll_cq(&cq, 3, (struct ibv_wc *)(void *)memory));
}

static void devices(void)
{
	INT(ibv_memcpy_to_dm(&dm, 1, memory, 2));
	INT(ibv_memcpy_from_dm(memory, &dm, 1, 2));
	INT(ibv_close_xrcd(&xrcd));
	INT(ibv_query_gid_ex(context, 1, 2, (struct ibv_gid_entry *)(void *)memory, 3));
	INT(ibv_query_gid_table(context, (struct ibv_gid_entry *)(void *)memory, 4, 5));
}

static void posts(void)
{
	struct ibv_sge sge = { .addr = 1, .length = 2, .lkey = 3 };
	struct ibv_send_wr send = { .wr_id = 4, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ },
			   *bad_send;
	struct ibv_recv_wr recv = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 }, *bad_recv;

	INT(ibv_post_send(&qp, &send, &bad_send));
	INT(ibv_post_recv(&qp, &recv, &bad_recv));
	INT(ibv_post_srq_recv(&srq, &recv, &bad_recv));
	INT(ibv_post_wq_recv(&wq, &recv, &bad_recv));
}

static void cm_posts(void)
{
	struct ibv_sge sge = { .addr = 1, .length = 2, .lkey = 3 };

	INT(rdma_post_recvv(&id, &ah, &sge, 1));
	INT(rdma_post_sendv(&id, &ah, &sge, 1, IBV_SEND_SIGNALED));
	INT(rdma_post_readv(&id, &ah, &sge, 1, IBV_SEND_FENCE, 10, 11));
	INT(rdma_post_writev(&id, &ah, &sge, 1, IBV_SEND_INLINE, 10, 11));
	INT(rdma_post_recv(&id, &ah, memory + 64, 100, &mr));
	INT(rdma_post_send(&id, &ah, memory + 64, 100, &mr, 0));
	INT(rdma_post_send(&id, &ah, memory + 64, 100, NULL, IBV_SEND_INLINE));
	INT(rdma_post_read(&id, &ah, memory + 64, 100, &mr, 0, 10, 11));
	INT(rdma_post_write(&id, &ah, memory + 64, 100, &mr, 0, 10, 11));
	INT(rdma_post_write(&id, &ah, memory + 64, 100, NULL, IBV_SEND_INLINE, 10, 11));
	qp.qp_type = IBV_QPT_UD;
	INT(rdma_post_ud_send(&id, &cq, memory + 64, 100, &mr, 0, &ah, 12));
	INT(rdma_post_ud_send(&id, &cq, memory + 64, 100, NULL, IBV_SEND_INLINE, &ah, 12));
	qp.qp_type = IBV_QPT_RC;
	id.srq = &srq;
	INT(rdma_post_recv(&id, &ah, memory, 4096, &mr));
	id.srq = NULL;
	INT(rdma_dereg_mr(&mr));
	PTR(rdma_reg_msgs(&id, memory, 9));
	PTR(rdma_reg_read(&id, memory, 9));
	PTR(rdma_reg_write(&id, memory, 9));
}

static void cm_completions(void)
{
	struct ibv_wc *wc = (struct ibv_wc *)(void *)memory;
	int n;

	poll_answer = 1;
	for (n = 0; n < 6; n++) {
		printf("%d empty polls\n", n);
		empty_polls = n;
		INT(rdma_get_send_comp(&id, wc));
		empty_polls = n;
		INT(rdma_get_recv_comp(&id, wc));
	}
	empty_polls = 6;
	event_answer = -1;
	INT(rdma_get_send_comp(&id, wc));
	empty_polls = 6;
	answer = ENOMEM;
	INT(rdma_get_recv_comp(&id, wc));
}

static void arithmetic(void)
{
	struct ib_addr a, b;
	uint32_t i;

	for (i = 0; i < 0x200000; i += 977)
		printf("%u ", ibv_flow_label_to_udp_sport(i));
	for (i = 0; i < 0x300; i++)
		printf("%x ", ibv_inc_rkey(0xabcdef00 + i));
	for (i = 0; i < 32; i++)
		printf("%d ", ibv_is_qpt_supported(0x2c3a5f1e, (enum ibv_qp_type)i));
	printf("\n%d %d\n", ibv_inc_rkey(0xffffffff) == 0xffffff00,
	       vext_field_avail(struct ibv_qp_attr, port_num, 4));

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	for (i = 0; i < 16; i++) {
		printf("any %d loopback %d ", ib_addr_any(&a), ib_addr_loopback(&a));
		a.sib_raw[i] = 1;
		printf("any %d loopback %d order %d\n", ib_addr_any(&a), ib_addr_loopback(&a),
		       ib_addr_cmp(&a, &b) > 0);
		a.sib_raw[i] = 0;
	}
	ib_addr_set(&a, 1, 2, 3, 4);
	ib_addr_set(&b, 1, 2, 3, 4);
	printf("%x %x %x %x order %d\n", a.sib_addr32[0], a.sib_addr32[1], a.sib_addr32[2], a.sib_addr32[3],
	       ib_addr_cmp(&a, &b));
	PTR(rdma_get_local_addr(&id));
	PTR(rdma_get_peer_addr(&id));
	INT(rdma_seterrno(0));
	INT(rdma_seterrno(EBUSY));
}

int main(void)
{
	size_t size;

	fill_objects();
	printf("no extension\n");
	fill_tables();
	ext.sz = sizeof(ext);
	extended_calls();
	printf("empty extension\n");
	ext.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	memset(&ext, 0, offsetof(struct verbs_context, sz));
	extended_calls();
	fill_tables();
	for (size = 0; size <= KNOWN + 8; size += 4) {
		printf("extension of %zu bytes\n", size);
		ext.sz = size;
		answer = (long)size;
		extended_calls();
	}
	ext.sz = sizeof(ext);
	answer = 1;
	creations();
	registrations();
	windows();
	work_requests();
	completions();
	devices();
	posts();
	cm_posts();
	answer = 0;
	cm_posts();
	cm_completions();
	arithmetic();
	return 0;
}
