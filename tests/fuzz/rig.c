/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <errno.h>

#include "adapter/device/device.h"
#include "adapter/progress/progress.h"
#include "fake_host.h"

enum { GAP_BYTES = 256, STRIDE = ZONE_BYTES + GAP_BYTES, MEMORY_BYTES = GAP_BYTES + ZONES * STRIDE };
enum { SECRET_BYTE = 0x5e, SECRET_RUN = 8, LONGEST_POLL = 64, TICK_NS = 2000000 };
enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC
};

struct rig rig;

static uint8_t memory[MEMORY_BYTES], shadow[MEMORY_BYTES];
static uint8_t writable[MEMORY_BYTES];

uint8_t *rig_at(enum rig_zone zone) { return memory + GAP_BYTES + zone * STRIDE; }

/* ---- memory ---- */

static void register_zone(enum rig_zone zone)
{
	static const unsigned access[ZONES] = {
		ALL, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE, 0, ALL
	};
	struct vb_pd *pd = zone == FOREIGN ? &rig.other_pd : &rig.pd;

	must(vb_mr_init(&rig.mrs[zone], pd, rig_at(zone), ZONE_BYTES, (uintptr_t)rig_at(zone),
			access[zone]) == 0);
}

void rig_register_again(enum rig_zone zone)
{
	if (zone == SECRET)
		return;
	int memory_result = fake.memory_result;
	must(vb_mr_fini(&rig.mrs[zone]) == 0);
	fake.memory_result = 0;
	register_zone(zone);
	fake.memory_result = memory_result;
}

static void make_pristine(uint8_t *pristine)
{
	memset(pristine, SECRET_BYTE, MEMORY_BYTES);
	for (enum rig_zone zone = 0; zone < SECRET; zone++)
		for (unsigned i = 0; i < ZONE_BYTES; i++)	/* never the secret byte, which is even */
			pristine[rig_at(zone) - memory + i] = (uint8_t)(i * 7 + i / 256 + zone) | 1;
}

static void fill_memory(void)
{
	static uint8_t pristine[MEMORY_BYTES];

	if (!pristine[0])
		make_pristine(pristine);
	memcpy(memory, pristine, sizeof(memory));
	memcpy(shadow, pristine, sizeof(memory));
	memset(writable, 0, sizeof(writable));
	memset(writable + (rig_at(OPEN) - memory), 1, ZONE_BYTES);
}

static void allow(const uint8_t *at, size_t bytes) { memset(writable + (at - memory), 1, bytes); }

void rig_check_memory(void)
{
	enum { CHUNK = GAP_BYTES };
	_Static_assert(MEMORY_BYTES % CHUNK == 0, "whole chunks");

	for (unsigned at = 0; at < MEMORY_BYTES; at += CHUNK) {
		if (memcmp(memory + at, shadow + at, CHUNK) == 0)
			continue;
		for (unsigned i = at; i < at + CHUNK; i++)
			must(memory[i] == shadow[i] || writable[i]);
		memcpy(shadow + at, memory + at, CHUNK);
	}
}

bool rig_is_secret(const void *bytes, size_t len)
{
	static const uint8_t run[SECRET_RUN] = { SECRET_BYTE, SECRET_BYTE, SECRET_BYTE, SECRET_BYTE,
						 SECRET_BYTE, SECRET_BYTE, SECRET_BYTE, SECRET_BYTE };
	return memmem(bytes, len, run, sizeof(run)) != NULL;
}

void rig_left(const void *bytes, size_t len) { must(!rig_is_secret(bytes, len)); }

void rig_touched(const void *at, size_t bytes, bool written)
{
	const uint8_t *p = at;

	if (p < memory || p >= memory + sizeof(memory))
		return;
	must(bytes <= (size_t)(memory + sizeof(memory) - p));
	if (!written)
		rig_left(at, bytes);
	for (size_t i = 0; written && i < bytes; i++)
		must(writable[p - memory + i]);
}

/* ---- life ---- */

void rig_set_up(void)
{
	struct vb_device **devices;
	unsigned count;

	memset(&rig, 0, sizeof(rig));
	fake_reset();
	fake.touched = rig_touched;
	fake.left = rig_left;
	fill_memory();
	must(vb_device_list(&devices, &count) == 0 && count == 2);
	must(vb_context_init(&rig.ctx, devices[0]) == 0);
	for (unsigned i = 0; i < count; i++)
		vb_device_put(devices[i]);
	free(devices);
	must(vb_pd_init(&rig.pd, &rig.ctx) == 0 && vb_pd_init(&rig.other_pd, &rig.ctx) == 0);
	must(vb_cq_init(&rig.cq, &rig.ctx, NULL, NULL, 2 * RIG_QPS * MAX_POSTED) == 0);
	for (enum rig_zone zone = 0; zone < SECRET; zone++)
		register_zone(zone);
}

struct rig_qp *rig_add_qp(enum ibv_qp_type type)
{
	struct vb_qp_init_attr init = { .type = type,
					.send_cq = &rig.cq,
					.recv_cq = &rig.cq,
					.sq_sig_all = true,
					.cap = { .max_send_wr = MAX_POSTED,
						 .max_recv_wr = MAX_POSTED,
						 .max_send_sge = 4,
						 .max_recv_sge = 4 } };
	unsigned i = 0;

	while (i < RIG_QPS && rig.qps[i].exists)
		i++;
	must(i < RIG_QPS);
	memset(&rig.qps[i], 0, sizeof(rig.qps[i]));
	must(vb_qp_init(&rig.qps[i].qp, &rig.pd, &init) == 0);
	rig.qps[i].exists = true;
	return &rig.qps[i];
}

/* In the error state all that was posted completes. */
void rig_remove_qp(struct rig_qp *q)
{
	if (rig_move(q, IBV_QPS_ERR) == 0) {
		fake_run();
		for (unsigned i = 0; i < 4 * MAX_POSTED / LONGEST_POLL; i++)
			rig_poll();
		must(q->sends_done == q->sends && q->receives_done == q->receives);
	}
	must(vb_qp_fini(&q->qp) == 0);
	q->exists = false;
}

void rig_tear_down(void)
{
	for (unsigned i = 0; i < RIG_QPS; i++)
		if (rig.qps[i].exists)
			rig_remove_qp(&rig.qps[i]);
	for (enum rig_zone zone = 0; zone < SECRET; zone++)
		must(vb_mr_fini(&rig.mrs[zone]) == 0);
	rig_check_memory();
	must(vb_cq_fini(&rig.cq) == 0);
	must(vb_pd_fini(&rig.pd) == 0 && vb_pd_fini(&rig.other_pd) == 0);
	vb_context_fini(&rig.ctx);
}

/* ---- states ---- */

int rig_move(struct rig_qp *q, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int err = vb_qp_modify(&q->qp, &attr, IBV_QP_STATE);

	if (!err && state == IBV_QPS_RESET)
		q->sends = q->sends_done = q->receives = q->receives_done = 0;
	return err;
}

static int init(struct rig_qp *q, struct ibv_qp_attr *attr)
{
	bool is_ud = q->qp.type == IBV_QPT_UD;

	attr->qp_state = IBV_QPS_INIT;
	attr->port_num = 1;
	attr->qkey = 0x1234;
	attr->qp_access_flags = ALL;
	return vb_qp_modify(&q->qp, attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static int to_rtr(struct rig_qp *q, struct ibv_qp_attr *attr)
{
	int mask = IBV_QP_STATE;

	attr->qp_state = IBV_QPS_RTR;
	if (q->qp.type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (q->qp.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return vb_qp_modify(&q->qp, attr, mask);
}

static int to_rts(struct rig_qp *q, struct ibv_qp_attr *attr)
{
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	attr->qp_state = IBV_QPS_RTS;
	if (q->qp.type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return vb_qp_modify(&q->qp, attr, mask);
}

int rig_connect(struct rig_qp *q, uint32_t address, uint32_t dest_qpn, uint8_t rnr_retry)
{
	struct ibv_qp_attr attr = { .path_mtu = IBV_MTU_256, .dest_qp_num = dest_qpn, .rq_psn = 100,
	.sq_psn = 100,
		.max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 8, .retry_cnt = 2,
		.rnr_retry = rnr_retry,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1, .hop_limit = 1 } } };
	uint8_t *gid = attr.ah_attr.grh.dgid.raw;

	gid[10] = gid[11] = 0xff;
	for (unsigned i = 0; i < 4; i++)
		gid[12 + i] = (uint8_t)(address >> (24 - 8 * i));
	int err = init(q, &attr);
	if (!err)
		err = to_rtr(q, &attr);
	return err ? err : to_rts(q, &attr);
}

/* ---- work ---- */

/* A range of a zone, within it more often than not. */
static struct ibv_sge range_of(struct fuzz_input *in, enum rig_zone zone)
{
	uint8_t shape = take(in);
	uint32_t offset = take(in) * 16u, length = shape & 1 ? take(in) : take(in) * 8u;

	if (shape & 2 && offset + 40 * length <= ZONE_BYTES)
		length *= 40;
	if ((shape & 0xf0) == 0xf0)
		offset += ZONE_BYTES - 256;
	return (struct ibv_sge){ .addr = (uintptr_t)rig_at(zone) + offset,
				 .length = length,
				 .lkey = rig.mrs[zone].key };
}

static bool is_inside(const struct ibv_sge *sge, enum rig_zone zone)
{
	return sge->addr - (uintptr_t)rig_at(zone) <= ZONE_BYTES &&
	       sge->length <= ZONE_BYTES - (sge->addr - (uintptr_t)rig_at(zone));
}

/* What the peer has registered is at the address that the input says, by a key that it says. */
static void aim(struct fuzz_input *in, struct ibv_send_wr *wr)
{
	uint64_t addr = FAKE_MEMORY + take(in) * 256u;
	uint32_t rkey = take(in) & 7 ? 0x101 : take(in);

	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = addr;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = take(in);
	} else {
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = rkey;
	}
}

void rig_post_send(struct rig_qp *q, struct fuzz_input *in, struct ibv_ah *ah, uint32_t qpn)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND,
						      IBV_WR_SEND_WITH_IMM,
						      IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_WRITE_WITH_IMM,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_CMP_AND_SWP,
						      IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_SEND };
	uint8_t choice = take(in);
	struct ibv_send_wr wr = { .wr_id = q->sends++, .opcode = opcodes[choice % 8], .imm_data = choice },
			   *bad;
	bool answered = wr.opcode >= IBV_WR_RDMA_READ;
	enum rig_zone zone = answered ? ANSWERS : SOURCES;
	struct ibv_sge sge[2] = { range_of(in, zone), range_of(in, zone) };

	wr.sg_list = sge;
	wr.num_sge = choice & 8 ? 2 : 1;
	wr.send_flags = (choice & 16 ? IBV_SEND_SOLICITED : 0) | (choice & 32 ? IBV_SEND_FENCE : 0);
	if (choice & 64 && !answered && sge[0].length < 32 && is_inside(&sge[0], zone)) {
		wr.send_flags |= IBV_SEND_INLINE;
		wr.num_sge = 1;
	}
	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		sge[0].length = 8, wr.num_sge = 1;
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qpn;
		wr.wr.ud.remote_qkey = 0x1234;
	} else {
		aim(in, &wr);
	}
	for (int i = 0; answered && i < wr.num_sge; i++)
		if (is_inside(&sge[i], zone))
			allow(rig_at(zone) + (sge[i].addr - (uintptr_t)rig_at(zone)), sge[i].length);
	if (vb_qp_post_send(&q->qp, &wr, &bad))
		q->sends--;
}

void rig_post_receive(struct rig_qp *q, struct fuzz_input *in)
{
	struct ibv_sge sge[2] = { range_of(in, RECEIVES), range_of(in, RECEIVES) };
	struct ibv_recv_wr wr = { .wr_id = q->receives, .sg_list = sge, .num_sge = take(in) & 1 ? 2 : 1 },
			   *bad;

	for (int i = 0; i < wr.num_sge; i++)
		if (is_inside(&sge[i], RECEIVES))
			allow((uint8_t *)(uintptr_t)sge[i].addr, sge[i].length);
	if (vb_qp_post_recv(&q->qp, &wr, &bad) == 0)
		q->receives++;
}

static void check_completion(const struct vb_cqe *c)
{
	struct rig_qp *q = vb_container_of(c->qp, struct rig_qp, qp);

	must(q >= rig.qps && q < rig.qps + RIG_QPS && q->exists);
	must(c->status <= IBV_WC_GENERAL_ERR);
	must(c->wr_id == (c->is_recv ? q->receives_done++ : q->sends_done++));
	must(q->sends_done <= q->sends && q->receives_done <= q->receives);
	rig.successes += c->status == IBV_WC_SUCCESS;
}

void rig_poll(void)
{
	struct vb_cqe c[LONGEST_POLL];
	int n = vb_cq_poll(&rig.cq, LONGEST_POLL, c);

	must(n >= 0);
	for (int i = 0; i < n; i++)
		check_completion(&c[i]);
}

/* Progress may have left all to a poller who polls more often than here: some time passes for it, too. */
void rig_talk(struct rig_qp *left, struct rig_qp *right)
{
	unsigned before = rig.successes;

	rig_post_receive(right, &(struct fuzz_input){ (const uint8_t *)"\0\0\x40\0\0\0\0", 7 });
	rig_post_send(left, &(struct fuzz_input){ (const uint8_t *)"\0\0\0\x10\0\0\0\0", 8 }, NULL, 0);
	for (unsigned i = 0; i < 8; i++) {
		fake_pass_time(TICK_NS);
		fake_run();
		rig_poll();
	}
	must(left->sends_done == left->sends && right->receives_done == right->receives &&
	     rig.successes >= before + 2);
}
