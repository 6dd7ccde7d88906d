/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended completion queues: ibv_start_poll, ibv_next_poll and ibv_end_poll give one completion at a time.
 * From start to end, one thread has the queue to itself.
 */
#include <string.h>

#include "base/clock.h"
#include "verbs/verbs.h"

static inline struct vb_verbs_cq *of(struct ibv_cq_ex *ex)
{
	return vb_container_of(ex, struct vb_verbs_cq, ex);
}

/* ---- polling ---- */

static int take(struct vb_verbs_cq *cq)
{
	int got = vb_cq_poll(&cq->cq, 1, &cq->current);
	if (got <= 0)
		return got ? -got : ENOENT;
	cq->ex.wr_id = cq->current.wr_id;
	cq->ex.status = cq->current.status;
	cq->current_qpn = cq->current.qp_num;
	return 0;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	if (!of(ex)->is_single_threaded)
		pthread_mutex_unlock(&of(ex)->poll_lock);
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct vb_verbs_cq *cq = of(ex);
	int err = attr->comp_mask ? -EINVAL : vb_refuse_inherited(ex->context, "ibv_start_poll");
	if (err)
		return -err;
	if (!cq->is_single_threaded)
		pthread_mutex_lock(&cq->poll_lock);
	err = take(cq);
	if (err)
		end_poll(ex);
	return err;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	return take(of(ex));
}

/* ---- reading the current completion ---- */

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex) { return of(ex)->current.opcode; }
static uint32_t read_vendor_err(struct ibv_cq_ex *ex) { return of(ex)->current.vendor_err; }
static uint32_t read_byte_len(struct ibv_cq_ex *ex) { return of(ex)->current.byte_len; }
static __be32 read_imm_data(struct ibv_cq_ex *ex) { return of(ex)->current.imm; }
static uint32_t read_qp_num(struct ibv_cq_ex *ex) { return of(ex)->current_qpn; }
static uint32_t read_src_qp(struct ibv_cq_ex *ex) { return of(ex)->current.src_qp; }
static unsigned int read_wc_flags(struct ibv_cq_ex *ex) { return of(ex)->current.wc_flags; }
static uint32_t read_slid(struct ibv_cq_ex *ex) { return 0; }
static uint8_t read_sl(struct ibv_cq_ex *ex) { return of(ex)->current.sl; }
static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex) { return 0; }

static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
	const struct vb_cqe *e = &of(ex)->current;
	return e->is_frame ? (uint16_t)e->cvlan : 0;
}

static uint32_t read_flow_tag(struct ibv_cq_ex *ex)
{
	const struct vb_cqe *e = &of(ex)->current;
	return e->is_frame ? e->flow_tag : 0;
}

/* Only of a message that matched a tag; others carry their headers with them. */
static void read_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	const struct vb_cqe *e = &of(ex)->current;
	bool matched = e->wc_flags & IBV_WC_TM_MATCH;
	*info = (struct ibv_wc_tm_info){ .tag = matched ? e->tag : 0, .priv = matched ? e->app_ctx : 0 };
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ex) { return of(ex)->current.timestamp_ns; }

/* The monotonic time stamp, converted by the difference that the two clocks have now. */
static uint64_t read_wallclock_ns(struct ibv_cq_ex *ex)
{
	uint64_t now_ns = vb_clock_ns(CLOCK_REALTIME);
	return now_ns - (vb_now_ns() - of(ex)->current.timestamp_ns);
}

/* ---- creation ---- */

enum {
	TIMESTAMPS = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	READABLE = IBV_WC_STANDARD_FLAGS | TIMESTAMPS | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG |
		   IBV_WC_EX_WITH_TM_INFO,
	KNOWN_MASK = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
	KNOWN_FLAGS = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
};

static uint32_t flags_of(const struct ibv_cq_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
}

static struct ibv_pd *parent_of(const struct ibv_cq_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? attr->parent_domain : NULL;
}

static int check_attr(struct ibv_context *pub, const struct ibv_cq_init_attr_ex *attr)
{
	static const char call[] = "ibv_create_cq_ex";
	if (attr->comp_mask & ~(uint32_t)KNOWN_MASK) {
		vb_explain_limit(call, "comp_mask 0x%x: this device knows 0x%x only", attr->comp_mask,
				 KNOWN_MASK);
		return -EOPNOTSUPP;
	}
	if (attr->wc_flags & ~(uint64_t)READABLE) {
		vb_explain_limit(call, "wc_flags 0x%llx: this device can tell 0x%x only",
				 (unsigned long long)attr->wc_flags, READABLE);
		return -EOPNOTSUPP;
	}
	if (flags_of(attr) & ~(uint32_t)KNOWN_FLAGS) {
		vb_explain_limit(call, "flags 0x%x: this device knows 0x%x only", attr->flags, KNOWN_FLAGS);
		return -EOPNOTSUPP;
	}
	return parent_of(attr) ?
		       vb_check_same_context(call, pub, "the parent domain", attr->parent_domain->context) :
		       0;
}

static void fill_readers(struct ibv_cq_ex *ex, uint64_t wc_flags)
{
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
#define READER(flag, member, function)        \
	if (wc_flags & IBV_WC_EX_WITH_##flag) \
		ex->member = function;
	READER(BYTE_LEN, read_byte_len, read_byte_len)
	READER(IMM, read_imm_data, read_imm_data)
	READER(QP_NUM, read_qp_num, read_qp_num)
	READER(SRC_QP, read_src_qp, read_src_qp)
	READER(SLID, read_slid, read_slid)
	READER(SL, read_sl, read_sl)
	READER(DLID_PATH_BITS, read_dlid_path_bits, read_dlid_path_bits)
	READER(CVLAN, read_cvlan, read_cvlan)
	READER(FLOW_TAG, read_flow_tag, read_flow_tag)
	READER(COMPLETION_TIMESTAMP, read_completion_ts, read_completion_ts)
	READER(COMPLETION_TIMESTAMP_WALLCLOCK, read_completion_wallclock_ns, read_wallclock_ns)
	READER(TM_INFO, read_tm_info, read_tm_info)
#undef READER
}

struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *pub, struct ibv_cq_init_attr_ex *attr)
{
	int err = check_attr(pub, attr);
	if (err)
		return vb_fail_null(err);
	struct vb_verbs_cq *cq = vb_make_cq(pub, attr->cqe, attr->cq_context, attr->channel,
					    attr->comp_vector, parent_of(attr), "ibv_create_cq_ex");
	if (!cq)
		return NULL;
	cq->is_single_threaded = (flags_of(attr) & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) ||
				 vb_is_single_threaded(parent_of(attr));
	cq->cq.ignores_overrun = flags_of(attr) & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	vb_cq_mark(&cq->cq, VB_CQ_TIMESTAMPS, attr->wc_flags & TIMESTAMPS);
	fill_readers(&cq->ex, attr->wc_flags);
	if (vb_check_enabled)
		vb_checked_cq_ex(&cq->ex, cq->is_single_threaded);
	return &cq->ex;
}
