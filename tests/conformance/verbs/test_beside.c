/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is exported beside the verbs: helpers of librdmacm, names of old, and those that provider libraries
 * are linked with.
 */
#include "world.h"

#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

/* ---- structures of the kernel's interface ---- */

void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src);

static void copy__members_of_the_same_name(void **state)
{
	struct ib_uverbs_qp_attr from = {
		.qp_state = IBV_QPS_RTS,
		.qkey = 5,
		.sq_psn = 6,
		.max_send_wr = 7,
		.max_inline_data = 8,
		.timeout = 14,
		.ah_attr = { .grh = { .flow_label = 9, .hop_limit = 10 }, .is_global = 1, .port_num = 1 },
		.alt_ah_attr = { .dlid = 11 },
		.alt_timeout = 12
	};
	struct ibv_qp_attr to = { 0 };
	ibv_copy_qp_attr_from_kern(&to, &from);
	assert_int_equal(to.qp_state, IBV_QPS_RTS);
	assert_true(to.qkey == 5 && to.sq_psn == 6 && to.timeout == 14 && to.alt_timeout == 12);
	assert_true(to.cap.max_send_wr == 7 && to.cap.max_inline_data == 8);
	assert_true(to.ah_attr.is_global && to.ah_attr.grh.flow_label == 9 && to.ah_attr.grh.hop_limit == 10);
	assert_int_equal(to.alt_ah_attr.dlid, 11);
	struct ibv_ah_attr ah = { 0 };
	ibv_copy_ah_attr_from_kern(&ah, &from.ah_attr);
	assert_memory_equal(&ah, &to.ah_attr, sizeof(ah));
	struct ib_user_path_rec rec = { .dgid = { 1, 2, 3 },
					.pkey = 0xffff,
					.mtu = 4,
					.packet_life_time = 13 },
				back = { 0 };
	struct ibv_sa_path_rec path = { 0 };
	ibv_copy_path_rec_from_kern(&path, &rec);
	assert_true(path.dgid.raw[2] == 3 && path.pkey == 0xffff && path.mtu == 4 &&
		    path.packet_life_time == 13);
	ibv_copy_path_rec_to_kern(&back, &path);
	assert_memory_equal(&back, &rec, sizeof(rec));
}

/* ---- names of old ---- */

int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *sysfs_dev, const char *fmt, ...);
void ibv_register_driver(const char *name, void *init);
/* newer programs cannot be linked with it */
__asm__(".symver ibv_register_driver, ibv_register_driver@IBVERBS_1.1");

static void old__harmless(void **state)
{
	struct world *w = *state;
	char text[16];
	assert_int_equal(ibv_dontfork_range(w->buffer, BUFFER), 0);
	assert_int_equal(ibv_dofork_range(w->buffer, BUFFER), 0);
	assert_string_equal(ibv_get_sysfs_path(), "/sys");
	assert_true(ibv_read_sysfs_file("/sys/class/net/lo", "mtu", text, sizeof(text)) > 0);
	assert_true(atoi(text) > 0);
	assert_int_equal(ibv_read_sysfs_file("/sys/class/net/lo", "nothing", text, sizeof(text)), -1);
	assert_int_equal(ibv_read_ibdev_sysfs_file(text, sizeof(text), NULL, "ports/%d/nothing", 1), -1);
	ibv_register_driver("none", NULL);
}

/* ---- what providers import ---- */

int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned index, unsigned *type);
void verbs_register_driver_34(const void *ops);
void verbs_register_driver_57(const void *ops);
void verbs_register_driver_59(const void *ops);
void verbs_register_driver_64(const void *ops);
void verbs_register_driver_65(const void *ops);
void __verbs_log(void *context, uint32_t level, const char *fmt, ...);
unsigned __ioctl_final_num_attrs(unsigned num_attrs, void *link);
void verbs_init_cq(void);
void verbs_set_ops(void);
void verbs_uninit_context(void);
void ibv_dmabuf_heap_free(void);
void ibv_dmabuf_heap_destroy(void);
void *ibv_dmabuf_heap_alloc(void);
void *ibv_dmabuf_heap_cc_shared_init(void);
void *_verbs_init_and_alloc_context(void);
void *verbs_open_device(void);
extern bool verbs_allow_disassociate_destroy;

#define REFUSED(X)                                                                                         \
	X(execute_ioctl) X(ibv_cmd_advise_mr) X(ibv_cmd_alloc_dm) X(ibv_cmd_alloc_mw) X(ibv_cmd_alloc_pd)  \
	X(ibv_cmd_attach_mcast) X(ibv_cmd_close_xrcd) X(ibv_cmd_create_ah) X(ibv_cmd_create_counters)      \
	X(ibv_cmd_create_cq) X(ibv_cmd_create_cq_ex) X(ibv_cmd_create_flow) X(ibv_cmd_create_flow_action_esp) \
	X(ibv_cmd_create_qp) X(ibv_cmd_create_qp_ex) X(ibv_cmd_create_qp_ex2) X(ibv_cmd_create_rwq_ind_table) \
	X(ibv_cmd_create_srq) X(ibv_cmd_create_srq_ex) X(ibv_cmd_create_wq) X(ibv_cmd_dealloc_mw)          \
	X(ibv_cmd_dealloc_pd) X(ibv_cmd_dereg_mr) X(ibv_cmd_destroy_ah) X(ibv_cmd_destroy_counters)        \
	X(ibv_cmd_destroy_cq) X(ibv_cmd_destroy_flow) X(ibv_cmd_destroy_flow_action) X(ibv_cmd_destroy_qp) \
	X(ibv_cmd_destroy_rwq_ind_table) X(ibv_cmd_destroy_srq) X(ibv_cmd_destroy_wq) X(ibv_cmd_detach_mcast) \
	X(ibv_cmd_free_dm) X(ibv_cmd_get_context) X(ibv_cmd_modify_cq) X(ibv_cmd_modify_flow_action_esp)   \
	X(ibv_cmd_modify_qp) X(ibv_cmd_modify_qp_ex) X(ibv_cmd_modify_srq) X(ibv_cmd_modify_wq) X(ibv_cmd_open_qp) \
	X(ibv_cmd_open_xrcd) X(ibv_cmd_poll_cq) X(ibv_cmd_post_recv) X(ibv_cmd_post_send) X(ibv_cmd_post_srq_recv) \
	X(ibv_cmd_query_context) X(ibv_cmd_query_device_any) X(ibv_cmd_query_mr) X(ibv_cmd_query_port)     \
	X(ibv_cmd_query_qp) X(ibv_cmd_query_srq) X(ibv_cmd_read_counters) X(ibv_cmd_reg_dm_mr)             \
	X(ibv_cmd_reg_dmabuf_mr) X(ibv_cmd_reg_mr) X(ibv_cmd_req_notify_cq) X(ibv_cmd_rereg_mr)            \
	X(ibv_cmd_resize_cq)                                                                               \
	X(ibv_cmd_alloc_dmah) X(ibv_cmd_create_comp_cntr) X(ibv_cmd_create_cq_ex2) X(ibv_cmd_destroy_comp_cntr) \
	X(ibv_cmd_export_dmabuf_fd) X(ibv_cmd_free_dmah) X(ibv_cmd_inc_comp_cntr) X(ibv_cmd_inc_err_comp_cntr) \
	X(ibv_cmd_qp_attach_comp_cntr) X(ibv_cmd_query_comp_cntr_caps) X(ibv_cmd_query_port_speed)         \
	X(ibv_cmd_read_comp_cntr) X(ibv_cmd_read_err_comp_cntr) X(ibv_cmd_reg_mr_ex) X(ibv_cmd_set_comp_cntr) \
	X(ibv_cmd_set_err_comp_cntr)

#define X(name) int name(void);
REFUSED(X)
#undef X

static void provider__is_told_that_there_is_no_device(void **state)
{
	static const struct {
		const char *name;
		int (*call)(void);
	} refused[] = {
#define X(function) { #function, function },
		REFUSED(X)
#undef X
	};
	struct world *w = *state;
	unsigned type = 7;
	for (size_t i = 0; i < COUNT(refused); i++) {
		errno = 0;
		if (refused[i].call() != EOPNOTSUPP || errno != EOPNOTSUPP)
			fail_msg("%s does not refuse", refused[i].name);
	}
	assert_null_errno(EOPNOTSUPP, _verbs_init_and_alloc_context());
	assert_null_errno(EOPNOTSUPP, verbs_open_device());
	assert_null_errno(EOPNOTSUPP, ibv_dmabuf_heap_alloc());
	assert_null_errno(EOPNOTSUPP, ibv_dmabuf_heap_cc_shared_init());
	ibv_dmabuf_heap_free();
	ibv_dmabuf_heap_destroy();
	verbs_register_driver_34(NULL);
	verbs_register_driver_57(NULL);
	verbs_register_driver_59(NULL);
	verbs_register_driver_64(NULL);
	verbs_register_driver_65(NULL);
	__verbs_log(NULL, 0, "%d", 1);
	assert_int_equal(__ioctl_final_num_attrs(3, NULL), 3);
	verbs_init_cq();
	verbs_set_ops();
	verbs_uninit_context();
	assert_false(verbs_allow_disassociate_destroy);
	assert_int_equal(ibv_query_gid_type(w->ctx, 1, 0, &type), 0);
	assert_int_equal(type, 1); /* RoCE v2 */
	assert_minus1_errno(EINVAL, ibv_query_gid_type(w->ctx, 2, 0, &type));
}

/* ---- what no software device has ---- */

static void esp__is_the_kernels(void **state)
{
	struct world *w = *state;
	struct ibv_flow_action_esp_attr attr = { 0 };
	struct ibv_flow_action action = { .context = w->ctx };
	assert_null_errno(EOPNOTSUPP, ibv_create_flow_action_esp(w->ctx, &attr));
	assert_errno(EOPNOTSUPP, ibv_modify_flow_action_esp(&action, &attr));
	assert_errno(EOPNOTSUPP, ibv_destroy_flow_action(&action));
}

static void ece__is_a_vendors(void **state)
{
	struct world *w = *state;
	struct ibv_qp *qp = make_qp(w, NULL);
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = 1 };
	assert_errno(EOPNOTSUPP, ibv_set_ece(qp, &ece));
	assert_errno(EOPNOTSUPP, ibv_query_ece(qp, &ece));
	assert_true(!ece.vendor_id && !ece.options); /* which may be set: there is nothing to enhance */
	assert_errno(0, ibv_set_ece(qp, &ece));
	assert_errno(0, ibv_destroy_qp(qp));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(copy__members_of_the_same_name),
		WORLD_TEST(old__harmless),
		WORLD_TEST(provider__is_told_that_there_is_no_device),
		WORLD_TEST(esp__is_the_kernels),
		WORLD_TEST(ece__is_a_vendors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
