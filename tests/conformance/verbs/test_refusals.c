/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors that man pages promise and no other test of verbs provokes by the call itself. Forked children are
 * in test_fork.c, memory that runs out in test_no_memory.c. tests/abi/check_errors.py sees to it that none is
 * left out.
 */
#include "../../kernel.h"
#include "world.h"

#include <arpa/inet.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>

#include "../../unit/netns.h"

/* ---- memory ---- */

/* No memory here is known to outlive a loss of power. */
static void reg__for_persistence_refused(void **state)
{
	struct world *w = *state;
	assert_null_errno(EINVAL, ibv_reg_mr(w->pd, w->buffer, 64,
					     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_PERSISTENT));
}

static void rereg__refused(void **state)
{
	struct world *w = *state;
	struct ibv_mr *mr = ibv_reg_mr(w->pd, w->buffer, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(w->pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .bind_info = { .mr = mr,
						   .addr = (uintptr_t)w->buffer,
						   .length = 8,
						   .mw_access_flags = IBV_ACCESS_REMOTE_READ } };
	struct wire x = connected(w, NULL);
	void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_rereg_errno(EINVAL, ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0));
	assert_rereg_errno(EINVAL, ibv_rereg_mr(mr, 1 << 9, NULL, NULL, 0, 0));
	if (kernel_tells_what_is_mapped())
		assert_rereg_errno(EFAULT,
				   ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, hole, 4096, 0));
	assert_errno(0, ibv_bind_mw(x.a, mw, &bind));
	assert_int_equal(next_wc(w->cq).status, IBV_WC_SUCCESS);
	assert_rereg_errno(EBUSY,
			   ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, w->buffer + 64, 64, 0));
	assert_errno(EBUSY, ibv_dereg_mr(mr));
	assert_errno(0, ibv_dealloc_mw(mw));
	assert_errno(0, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, w->buffer + 64, 64, 0));
	assert_errno(0, ibv_dereg_mr(mr));
	disconnected(&x);
	munmap(hole, 4096);
}

static void reg_mr_ex__refused(void **state)
{
	struct world *w = *state;
	void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr_init_attr in = { .comp_mask = IBV_REG_MR_MASK_ADDR | 1ull << 40,
				       .addr = hole,
				       .length = 4096 };
	assert_null_errno(EOPNOTSUPP, ibv_reg_mr_ex(w->pd, &in));
	in.comp_mask = IBV_REG_MR_MASK_ADDR;
	if (kernel_tells_what_is_mapped())
		assert_null_errno(EFAULT, ibv_reg_mr_ex(w->pd, &in));
	munmap(hole, 4096);
}

static void window__refused(void **state)
{
	struct world *w = *state;
	struct ibv_pd *other = ibv_alloc_pd(w->ctx);
	struct ibv_mw *mw = ibv_alloc_mw(w->pd, IBV_MW_TYPE_1), *foreign = ibv_alloc_mw(other, IBV_MW_TYPE_1),
		      *second = ibv_alloc_mw(w->pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = { .bind_info = { .mr = w->mr, .addr = (uintptr_t)w->buffer, .length = 8 } };
	struct wire x = connected(w, NULL);
	assert_null_errno(EINVAL, ibv_alloc_mw(w->pd, 7));
	assert_errno(EPERM, ibv_bind_mw(x.a, foreign, &bind));
	assert_errno(EINVAL, ibv_bind_mw(x.a, second, &bind));
	for (uint64_t i = 0; i < DEPTH; i++)
		assert_errno(0, post_send(w, x.a, i, 0)); /* no receive is there: they wait */
	assert_errno(ENOMEM, ibv_bind_mw(x.a, mw, &bind));
	disconnected(&x);
	assert_errno(0, ibv_dealloc_mw(mw));
	assert_errno(0, ibv_dealloc_mw(foreign));
	assert_errno(0, ibv_dealloc_mw(second));
	assert_errno(0, ibv_dealloc_pd(other));
}

/* ---- queues ---- */

static void post_send__refused(void **state)
{
	struct world *w = *state;
	struct wire x = connected(w, NULL);
	struct ibv_sge sge = sge_at(w, 0, 64 * INLINE);
	struct ibv_send_wr *bad = NULL, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE
	};
	assert_errno(ENOMEM, ibv_post_send(x.a, &wr, &bad));
	assert_ptr_equal(bad, &wr);
	wr.send_flags = 0;
	for (int i = 0; i < DEPTH; i++)
		assert_errno(0, ibv_post_send(x.a, &wr, &bad));
	assert_errno(ENOMEM, ibv_post_send(x.a, &wr, &bad));
	disconnected(&x);
}

static void tag_list__refuses_when_full(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr_ex attr = tags_attr(w, 1, 8);
	struct ibv_sge sge = sge_at(w, 0, 64);
	struct ibv_ops_wr *bad, wr = { .opcode = IBV_WR_TAG_ADD,
				       .tm.add = { .sg_list = &sge, .num_sge = 1, .tag = 5, .mask = ~0ull } };
	struct ibv_srq *srq = ibv_create_srq_ex(w->ctx, &attr);
	assert_non_null(srq);
	assert_errno(0, ibv_post_srq_ops(srq, &wr, &bad));
	assert_errno(ENOMEM, ibv_post_srq_ops(srq, &wr, &bad));
	wr.opcode = 77;
	assert_errno(EINVAL, ibv_post_srq_ops(srq, &wr, &bad));
	assert_errno(0, ibv_destroy_srq(srq));
	attr.pd = NULL;
	assert_null_errno(EINVAL, ibv_create_srq_ex(w->ctx, &attr));
	attr.comp_mask |= 1u << 20;
	assert_null_errno(EOPNOTSUPP, ibv_create_srq_ex(w->ctx, &attr));
}

static void qp__types_that_are_not_there(void **state)
{
	struct world *w = *state;
	struct ibv_qp_init_attr attr = qp_attr(w);
	attr.qp_type = IBV_QPT_DRIVER;
	assert_null_errno(EOPNOTSUPP, ibv_create_qp(w->pd, &attr));
}

static void xrcd__refused(void **state)
{
	struct world *w = *state;
	char name[] = "xrcd-XXXXXX";
	enum { BOTH = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS };
	int fd = mkstemp(name);
	assert_true(fd >= 0 && !unlink(name));
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = fd };
	assert_null_errno(EINVAL, ibv_open_xrcd(w->ctx, &attr));
	attr = (struct ibv_xrcd_init_attr){ .comp_mask = BOTH, .fd = fd, .oflags = O_CREAT | O_TRUNC };
	assert_null_errno(EINVAL, ibv_open_xrcd(w->ctx, &attr));
	attr = (struct ibv_xrcd_init_attr){ .comp_mask = BOTH, .fd = -1 };
	assert_null_errno(EINVAL, ibv_open_xrcd(w->ctx, &attr));
	attr = (struct ibv_xrcd_init_attr){ .comp_mask = BOTH, .fd = 1 << 20, .oflags = O_CREAT };
	assert_null_errno(EBADF, ibv_open_xrcd(w->ctx, &attr));
	attr.fd = fd;
	attr.oflags = 0;
	assert_null_errno(EAGAIN, ibv_open_xrcd(w->ctx, &attr));
	attr.oflags = O_CREAT | O_EXCL;
	struct ibv_xrcd *xrcd = ibv_open_xrcd(w->ctx, &attr);
	assert_non_null(xrcd);
	assert_null_errno(EEXIST, ibv_open_xrcd(w->ctx, &attr));
	struct ibv_qp_open_attr open = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
						      IBV_QP_OPEN_ATTR_TYPE,
					 .qp_num = 0x123456,
					 .xrcd = xrcd,
					 .qp_type = IBV_QPT_XRC_RECV };
	assert_null_errno(EINVAL, ibv_open_qp(w->ctx, &open));
	open.xrcd = NULL;
	assert_null_errno(EINVAL, ibv_open_qp(w->ctx, &open));
	open.comp_mask = IBV_QP_OPEN_ATTR_NUM;
	assert_null_errno(EINVAL, ibv_open_qp(w->ctx, &open));
	assert_errno(0, ibv_close_xrcd(xrcd));
	close(fd);
}

static bool has_ipv6(struct ibv_context *ctx)
{
	static const uint8_t loopback[16] = { [15] = 1 };
	union ibv_gid gid;
	for (int i = 0; i < 8; i++)
		if (!ibv_query_gid(ctx, 1, i, &gid) && !memcmp(&gid, loopback, sizeof(gid)))
			return true;
	return false;
}

static void ah__refused(void **state)
{
	struct world *w = *state;
	struct ibv_ah_attr good = connect_attr(w, 0).ah_attr, a = good;
	struct ibv_ah *ah;
	uint8_t mac[ETHERNET_LL_SIZE];
	a.static_rate = 255;
	assert_null_errno(EINVAL, ibv_create_ah(w->pd, &a));
	a = good;
	a.sl = 16;
	assert_null_errno(EINVAL, ibv_create_ah(w->pd, &a));
	a = good;
	memset(&a.grh.dgid, 0, sizeof(a.grh.dgid));
	assert_null_errno(EINVAL, ibv_create_ah(w->pd, &a));
	assert_errno(-EINVAL, ibv_resolve_eth_l2_from_gid(w->ctx, &a, mac, NULL));
	a.grh.dgid.raw[10] = a.grh.dgid.raw[11] = 0xff; /* 0.0.0.0 */
	assert_null_errno(EINVAL, ibv_create_ah(w->pd, &a));
	a.grh.dgid.raw[12] = 239; /* a group is a destination of datagrams */
	ah = ibv_create_ah(w->pd, &a);
	assert_non_null(ah);
	assert_errno(0, ibv_destroy_ah(ah));
	a.grh.dgid.raw[0] = 0xfd; /* an IPv6 address, for an IPv4 address's port */
	assert_null_errno(EINVAL, ibv_create_ah(w->pd, &a));
	a.grh.dgid.raw[0] = 0xff; /* but a group's may be so, if the port has one of its kind */
	if (!has_ipv6(w->ctx)) {
		assert_null_errno(EINVAL, ibv_create_ah(w->pd, &a));
		return;
	}
	ah = ibv_create_ah(w->pd, &a);
	assert_non_null(ah);
	assert_errno(0, ibv_destroy_ah(ah));
}

static void comp_cntr__refused(void **state)
{
	struct world *w = *state;
	struct ibv_comp_cntr_init_attr attr = { .type = IBV_COMP_CNTR_TYPE_WRS };
	struct ibv_comp_cntr *c = ibv_create_comp_cntr(w->ctx, &attr);
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_qp_attach_comp_cntr_attr attach = { .op_mask =
							       IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ };
	assert_errno(EOPNOTSUPP, ibv_qp_attach_comp_cntr(qp, c, &attach));
	attach.op_mask = IBV_QP_ATTACH_COMP_CNTR_OP_SEND;
	assert_errno(0, ibv_qp_attach_comp_cntr(qp, c, &attach));
	assert_errno(EBUSY, ibv_qp_attach_comp_cntr(qp, c, &attach));
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_comp_cntr(c));
}

/* ---- devices, ports, addresses ---- */

static void port__refused(void **state)
{
	struct world *w = *state;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	assert_errno(EINVAL, ibv_query_port(w->ctx, 2, &port));
	assert_minus1_errno(EINVAL, ibv_get_pkey_index(w->ctx, 1, htons(0x1234)));
	assert_minus1_errno(EINVAL, ibv_get_pkey_index(w->ctx, 2, htons(0xffff)));
	assert_errno(-EINVAL, (int)ibv_query_gid_table(w->ctx, &entry, 0, 0));
	assert_errno(-EOPNOTSUPP, (int)ibv_query_gid_table(w->ctx, &entry, 1, 1));
}

static void ah__unknown_addresses(void **state)
{
	struct world *w = *state;
	struct ibv_ah_attr attr = connect_attr(w, 0).ah_attr;
	struct ibv_grh grh = { .version_tclass_flow = htonl(6u << 28),
			       .sgid = attr.grh.dgid,
			       .dgid = { .raw = { 0xff, 0x0e, [15] = 9 } } };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	uint8_t mac[6];
	uint16_t vid;
	assert_minus1_errno(ENOENT, ibv_init_ah_from_wc(w->ctx, 1, &wc, &grh, &attr));
	attr = connect_attr(w, 0).ah_attr;
	attr.grh.dgid = (union ibv_gid){ .raw = { [10] = 0xff, 0xff, 10, 1, 2, 3 } };
	assert_errno(-EOPNOTSUPP, ibv_resolve_eth_l2_from_gid(w->ctx, &attr, mac, &vid));
}

/* ---- steering ---- */

static void counters__refused(void **state)
{
	struct world *w = *state;
	enum { ROOM = 16 };
	struct ibv_counters_init_attr init = { .comp_mask = 0 };
	struct ibv_counters *counters = ibv_create_counters(w->ctx, &init);
	struct ibv_counter_attach_attr attr = { .counter_desc = IBV_COUNTER_PACKETS };
	struct ibv_flow *rule = (struct ibv_flow *)w; /* never looked at */
	assert_errno(EOPNOTSUPP, ibv_attach_counters_point_flow(counters, &attr, rule));
	for (; attr.index < ROOM; attr.index++)
		assert_errno(0, ibv_attach_counters_point_flow(counters, &attr, NULL));
	assert_errno(ENOMEM, ibv_attach_counters_point_flow(counters, &attr, NULL));
	assert_errno(0, ibv_destroy_counters(counters));
}

static void wq__refused(void **state)
{
	struct world *w = *state;
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = w->pd, .cq = w->cq
	};
	struct ibv_wq *wq = ibv_create_wq(w->ctx, &attr);
	assert_non_null(wq);
	struct ibv_wq_attr change = { .attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE,
				      .wq_state = IBV_WQS_RDY,
				      .curr_wq_state = IBV_WQS_ERR };
	assert_errno(EINVAL, ibv_modify_wq(wq, &change));
	change = (struct ibv_wq_attr){ .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = 77 };
	assert_errno(EINVAL, ibv_modify_wq(wq, &change));
	change.attr_mask = IBV_WQ_ATTR_RESERVED;
	assert_errno(EINVAL, ibv_modify_wq(wq, &change));
	change.attr_mask = 0;
	assert_errno(EINVAL, ibv_modify_wq(wq, &change));
	struct ibv_rwq_ind_table_init_attr table = { .log_ind_tbl_size = 31, .ind_tbl = &wq };
	assert_null_errno(EINVAL, ibv_create_rwq_ind_table(w->ctx, &table));
	table = (struct ibv_rwq_ind_table_init_attr){ .comp_mask = 1, .ind_tbl = &wq };
	assert_null_errno(EINVAL, ibv_create_rwq_ind_table(w->ctx, &table));
	struct ibv_wq *half[] = { wq, NULL };
	table = (struct ibv_rwq_ind_table_init_attr){ .log_ind_tbl_size = 1, .ind_tbl = half };
	assert_null_errno(EINVAL, ibv_create_rwq_ind_table(w->ctx, &table));
	table.ind_tbl = NULL;
	assert_null_errno(EINVAL, ibv_create_rwq_ind_table(w->ctx, &table));
	struct ibv_context *other = open_test_device();
	table = (struct ibv_rwq_ind_table_init_attr){ .ind_tbl = &wq };
	assert_null_errno(EINVAL, ibv_create_rwq_ind_table(other, &table));
	assert_int_equal(ibv_close_device(other), 0);
	assert_errno(0, ibv_destroy_wq(wq));
}

/* ---- what the system denies ---- */

/* Runs in a child, which no thread of this process and no right that it gives up follows. */
static void in_child(void (*body)(void))
{
	pid_t pid = fork();
	int status;
	assert_true(pid >= 0);
	if (!pid) {
		is_forked_child = true;
		alarm(60);
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void give_up_packet_sockets(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3];
	assert_int_equal(syscall(SYS_capget, &header, rights), 0);
	rights[CAP_TO_INDEX(CAP_NET_RAW)].effective &= ~CAP_TO_MASK(CAP_NET_RAW);
	assert_int_equal(syscall(SYS_capset, &header, rights), 0);
}

static void without_rights(void)
{
	struct ibv_context *ctx = open_test_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_flow_attr rule = { .type = IBV_FLOW_ATTR_SNIFFER, .size = sizeof(rule), .port = 1 };
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct ibv_qp *made_before = ibv_create_qp(pd, &attr); /* where there is the right */
	give_up_packet_sockets();
	assert_null_errno(EPERM, ibv_create_qp(pd, &attr));
	if (made_before)
		assert_null_errno(EPERM, ibv_create_flow(made_before, &rule));
}

static void raw__needs_rights(void **state)
{
	in_child(without_rights);
}

static void take_all_slots(void)
{
	enum { SLOTS = 4096 };
	for (int i = 1; i < SLOTS; i++) {
		struct sockaddr_un name = { .sun_family = AF_UNIX };
		int n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "verbatim/slot/%d", i);
		int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		assert_errno(0, bind(s, (struct sockaddr *)&name,
				     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)));
	}
}

static void without_slots(void)
{
	struct rlimit files;
	assert_errno(0, getrlimit(RLIMIT_NOFILE, &files));
	files.rlim_cur = files.rlim_max;
	if (files.rlim_max < 5000 || setrlimit(RLIMIT_NOFILE, &files) || !netns_enter())
		return; /* it cannot be had here */
	struct ibv_device **list = ibv_get_device_list(NULL);
	take_all_slots();
	assert_null_errno(EADDRNOTAVAIL, ibv_open_device(list[0]));
	ibv_free_device_list(list);
}

static void device__without_slots(void **state)
{
	in_child(without_slots);
}

/* Returns what it was. */
static struct rlimit forbid_descriptors(void)
{
	struct rlimit files, none;
	assert_errno(0, getrlimit(RLIMIT_NOFILE, &files));
	none = (struct rlimit){ 0, files.rlim_max };
	assert_errno(0, setrlimit(RLIMIT_NOFILE, &none));
	return files;
}

/* In a process that has not asked for devices yet. */
static void without_descriptors(void)
{
	forbid_descriptors();
	assert_null_errno(EMFILE, ibv_get_device_list(NULL));
}

static void devices__without_descriptors(void **state)
{
	struct world *w = *state;
	in_child(without_descriptors);
	struct rlimit files = forbid_descriptors();
	assert_null_errno(EMFILE, ibv_open_device(w->ctx->device));
	assert_null_errno(EMFILE, ibv_create_comp_channel(w->ctx));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
}

enum { SOME_USER = 65531 };

/*
 * As a user of its own, whose processes count: with none left, what needs a thread is refused, and the rest
 * is there.
 */
static void without_threads(void)
{
	struct rlimit before, one = { 1, 1 };
	if (setresgid(SOME_USER, SOME_USER, SOME_USER) || getrlimit(RLIMIT_NPROC, &before) ||
	    setresuid(SOME_USER, SOME_USER, SOME_USER))
		return; /* it cannot be had here */
	one.rlim_max = before.rlim_max;
	assert_errno(0, setrlimit(RLIMIT_NPROC, &one));
	struct ibv_device **list = ibv_get_device_list(NULL);
	assert_non_null(list);
	struct ibv_context *ctx = ibv_open_device(list[0]);
	assert_non_null(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	assert_true(pd && cq);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 }
	};
	static char bytes[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	assert_null_errno(EAGAIN, ibv_create_qp(pd, &attr));
	assert_errno(0, ibv_dereg_mr(mr));
	assert_errno(0, setrlimit(RLIMIT_NPROC, &before));
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	assert_non_null(qp);
	assert_errno(0, ibv_destroy_qp(qp));
	assert_errno(0, ibv_destroy_cq(cq));
	assert_errno(0, ibv_dealloc_pd(pd));
	assert_errno(0, ibv_close_device(ctx));
	ibv_free_device_list(list);
}

static void device__without_threads(void **state)
{
	in_child(without_threads);
}

static void on_alarm(int signal) {}

static void waits__are_interrupted(void **state)
{
	struct world *w = *state;
	struct sigaction act = { .sa_handler = on_alarm }, before; /* without SA_RESTART */
	struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, never = { { 0 } };
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;
	sigaction(SIGALRM, &act, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	assert_minus1_errno(EINTR, ibv_get_cq_event(w->channel, &cq, &context));
	assert_minus1_errno(EINTR, ibv_get_async_event(w->ctx, &event));
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(reg__for_persistence_refused),
		WORLD_TEST(rereg__refused),
		WORLD_TEST(reg_mr_ex__refused),
		WORLD_TEST(window__refused),
		WORLD_TEST(post_send__refused),
		WORLD_TEST(tag_list__refuses_when_full),
		WORLD_TEST(qp__types_that_are_not_there),
		WORLD_TEST(xrcd__refused),
		WORLD_TEST(ah__refused),
		WORLD_TEST(comp_cntr__refused),
		WORLD_TEST(port__refused),
		WORLD_TEST(ah__unknown_addresses),
		WORLD_TEST(counters__refused),
		WORLD_TEST(wq__refused),
		cmocka_unit_test(raw__needs_rights),
		cmocka_unit_test(device__without_slots),
		cmocka_unit_test(device__without_threads),
		WORLD_TEST(devices__without_descriptors),
		WORLD_TEST(waits__are_interrupted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
