/* SPDX-License-Identifier: BSD-2-Clause */
#include "faults/words.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "wire/cm_msg.h"

#define WORDS(table, before)                                                                                 \
	const struct vb_fault_words vb_fault_##table = { .prefix = before,                                   \
							 .words = table,                                     \
							 .count = VB_ARRAY_LEN(table) }

static const struct vb_fault_word errnos[] = {
#define X(name) { #name, name },
	X(EPERM) X(ENOENT) X(EINTR) X(EIO) X(EBADF) X(EAGAIN) X(ENOMEM) X(EACCES) X(EFAULT) X(EBUSY) X(ENODEV) X(EINVAL) X(ENFILE)
	X(EMFILE) X(ENOSPC) X(ENOSYS) X(EOPNOTSUPP) X(EADDRINUSE) X(EADDRNOTAVAIL) X(ENETDOWN) X(ENETUNREACH) X(ECONNRESET)
	X(ENOBUFS) X(EISCONN) X(ENOTCONN) X(ETIMEDOUT) X(ECONNREFUSED) X(EHOSTDOWN) X(EHOSTUNREACH)
#undef X
};
WORDS(errnos, "");

static const struct vb_fault_word statuses[] = {
#define X(name) { #name, IBV_WC_##name },
	X(LOC_LEN_ERR) X(LOC_QP_OP_ERR) X(LOC_EEC_OP_ERR) X(LOC_PROT_ERR) X(WR_FLUSH_ERR) X(MW_BIND_ERR) X(BAD_RESP_ERR)
	X(LOC_ACCESS_ERR) X(REM_INV_REQ_ERR) X(REM_ACCESS_ERR) X(REM_OP_ERR) X(RETRY_EXC_ERR) X(RNR_RETRY_EXC_ERR)
	X(LOC_RDD_VIOL_ERR) X(REM_INV_RD_REQ_ERR) X(REM_ABORT_ERR) X(INV_EECN_ERR) X(INV_EEC_STATE_ERR) X(FATAL_ERR)
	X(RESP_TIMEOUT_ERR) X(GENERAL_ERR)
#undef X
};
WORDS(statuses, "IBV_WC_");

/* Those of ports and devices. */
static const struct vb_fault_word events[] = {
#define X(name) { #name, IBV_EVENT_##name },
	X(DEVICE_FATAL) X(PORT_ACTIVE) X(PORT_ERR) X(LID_CHANGE) X(PKEY_CHANGE) X(SM_CHANGE) X(CLIENT_REREGISTER) X(GID_CHANGE)
#undef X
};
WORDS(events, "IBV_EVENT_");

static const struct vb_fault_word messages[] = {
#define X(name, prefix, rows, id) { #name, id },
	VB_CM_MESSAGES(X)
#undef X
};
WORDS(messages, "");

static const struct vb_fault_word reasons[] = {
#define X(name, value, text) { #name, value },
	VB_CM_REJ_REASONS(X)
#undef X
};
WORDS(reasons, "");

static const struct vb_fault_word packet_words[] = {
#define X(what, word, text) { word, VB_FAULT_OF_##what },
	VB_FAULT_PACKET_WORDS(X)
#undef X
};
WORDS(packet_words, "");

static const struct vb_fault_word completion_words[] = {
#define X(what, word, text) { word, VB_FAULT_COMPLETION_##what },
	VB_FAULT_COMPLETION_WORDS(X)
#undef X
};
WORDS(completion_words, "");

static const struct vb_fault_word kind_words[] = {
#define X(kind, word, text) { word, VB_FAULT_##kind },
	VB_FAULT_KINDS(X)
#undef X
};
WORDS(kind_words, "");

const struct vb_fault_verb vb_fault_verbs[] = {
#define QP(name) { #name, true },
#define X(name) { #name, false },
	QP(ibv_post_send) QP(ibv_post_recv) QP(ibv_wr_complete) QP(ibv_modify_qp) QP(ibv_query_qp) QP(ibv_destroy_qp)
	X(ibv_post_srq_recv) X(ibv_poll_cq) X(ibv_start_poll) X(ibv_req_notify_cq) X(ibv_get_cq_event) X(ibv_get_async_event)
	X(ibv_get_device_list) X(ibv_open_device) X(ibv_close_device) X(ibv_query_device) X(ibv_query_port) X(ibv_query_gid)
	X(ibv_query_pkey) X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_alloc_parent_domain) X(ibv_alloc_td) X(ibv_reg_mr) X(ibv_reg_mr_iova)
	X(ibv_reg_dmabuf_mr) X(ibv_reg_dm_mr) X(ibv_rereg_mr) X(ibv_dereg_mr) X(ibv_alloc_null_mr) X(ibv_advise_mr) X(ibv_alloc_dm)
	X(ibv_alloc_mw) X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) X(ibv_create_cq) X(ibv_create_cq_ex) X(ibv_resize_cq)
	X(ibv_modify_cq) X(ibv_destroy_cq) X(ibv_create_qp) X(ibv_create_qp_ex) X(ibv_open_qp) X(ibv_create_srq)
	X(ibv_create_srq_ex) X(ibv_modify_srq) X(ibv_query_srq) X(ibv_destroy_srq) X(ibv_create_ah) X(ibv_destroy_ah)
	X(ibv_attach_mcast) X(ibv_detach_mcast) X(ibv_open_xrcd) X(ibv_create_flow) X(ibv_create_wq) X(ibv_create_rwq_ind_table)
	X(ibv_create_counters)
	X(rdma_create_event_channel) X(rdma_create_id) X(rdma_destroy_id) X(rdma_bind_addr) X(rdma_resolve_addr) X(rdma_resolve_route)
	X(rdma_listen) X(rdma_connect) X(rdma_accept) X(rdma_reject) X(rdma_establish) X(rdma_disconnect) X(rdma_get_cm_event)
	X(rdma_ack_cm_event) X(rdma_get_request) X(rdma_create_ep) X(rdma_create_qp) X(rdma_create_qp_ex) X(rdma_create_srq)
	X(rdma_create_srq_ex) X(rdma_getaddrinfo) X(rdma_resolve_addrinfo) X(rdma_join_multicast) X(rdma_join_multicast_ex)
	X(rdma_leave_multicast) X(rdma_set_option) X(rdma_migrate_id) X(rdma_get_devices) X(rdma_init_qp_attr) X(rdma_notify)
#undef X
#undef QP
};
const unsigned vb_fault_nverbs = VB_ARRAY_LEN(vb_fault_verbs);

static char fold(char c)
{
	if (c == '-')
		return '_';
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool vb_fault_word_is(const char *word, const char *name, size_t bytes)
{
	size_t i = 0;
	while (i < bytes && word[i] && fold(word[i]) == fold(name[i]))
		i++;
	return i == bytes && !word[i];
}

/* Behind the prefix, if the name has it. */
static size_t skip_prefix(const char *prefix, const char *name, size_t bytes)
{
	size_t n = strlen(prefix);
	return n < bytes && vb_fault_word_is(prefix, name, n) ? n : 0;
}

const struct vb_fault_word *vb_fault_word_find(const struct vb_fault_words *words, const char *name,
					       size_t bytes)
{
	size_t skip = skip_prefix(words->prefix, name, bytes);
	for (unsigned i = 0; i < words->count; i++)
		if (vb_fault_word_is(words->words[i].name, name + skip, bytes - skip))
			return &words->words[i];
	return NULL;
}

const struct vb_fault_verb *vb_fault_verb_find(const char *name, size_t bytes)
{
	for (unsigned i = 0; i < vb_fault_nverbs; i++)
		if (vb_fault_word_is(vb_fault_verbs[i].name, name, bytes))
			return &vb_fault_verbs[i];
	return NULL;
}

const char *vb_fault_word_of(const struct vb_fault_words *words, int value)
{
	for (unsigned i = 0; i < words->count; i++)
		if (words->words[i].value == value)
			return words->words[i].name;
	return "?";
}
