/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A guest who shares an XRC domain and says anything (adapter/xrc/xrc_protocol.h), to the process that has a
 * queue in it: well-formed requests with some members from the input, and bytes as they come. Receives are
 * posted into memory that anybody may change; the rest of the memory stays as the rights say, and no secret
 * is in an answer.
 */
#include "adapter/xrc_server.h"
#include "fake_host.h"
#include "rig.h"

enum { MAX_STEPS = 200, GUESTS = 2, MAX_RECEIVES = 8, GUEST_QPN = FAKE_PEER_SLOT << VB_SLOT_SHIFT | 5 };
enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC
};

static struct {
	struct vb_xrc_server share;
	struct vb_xrcd xrcd;
	struct vb_srq srq;
	void *guests[GUESTS];
	unsigned posted, done;
} w;

static _Alignas(16) uint8_t request[VB_RPC_MAX_BYTES], reply[VB_RPC_MAX_BYTES];

static void begin(void)
{
	struct ibv_srq_attr attr = { .max_wr = MAX_RECEIVES, .max_sge = 1 };
	bool others;
	memset(&w, 0, sizeof(w));
	memcpy(w.share.name, "domain", 7);
	must(vb_xrc_server_open(&w.share, 1, &others) == 0 && !others);
	w.xrcd = (struct vb_xrcd){ .ctx = &rig.ctx, .number = 1, .share = &w.share };
	must(vb_srq_init(&w.srq, &rig.pd, &attr) == 0);
	must(vb_xrc_srq_join(&w.srq, &w.xrcd, &rig.cq) == 0);
}

static void show_out(unsigned i)
{
	if (w.guests[i])
		fake_desk_ops->disconnect(w.guests[i]);
	w.guests[i] = NULL;
}

static void poll_queue(void)
{
	struct vb_cqe e;
	while (vb_cq_poll(&rig.cq, 1, &e) == 1) {
		must(e.is_recv && e.is_srq && e.srq == &w.srq && e.wr_id < w.posted);
		must(e.status != IBV_WC_SUCCESS || e.byte_len <= VB_MAX_MSG);
		w.done++;
	}
	must(w.done <= w.posted);
}

static void end(void)
{
	for (unsigned i = 0; i < GUESTS; i++)
		show_out(i);
	poll_queue();
	must(vb_srq_fini(&w.srq) == 0);
	vb_xrc_server_close(&w.share);
}

static void post_receive(struct fuzz_input *in)
{
	struct ibv_sge sge = { (uintptr_t)rig_at(OPEN) + take(in), take(in) * 16u, rig.mrs[OPEN].key };
	struct ibv_recv_wr *bad, wr = { .wr_id = w.posted, .sg_list = &sge, .num_sge = 1 };
	w.posted += vb_srq_post_recv(&w.srq, &wr, &bad) == 0;
}

/* What a guest of ours would say, but for what the input has it say otherwise. */
static size_t make_up(struct fuzz_input *in)
{
	enum rig_zone zone = take(in) % ZONES;
	struct vb_xrc_request r = {
		.version = VB_XRC_VERSION,
		.op = take(in) % (VB_XRC_CLOSE_QP + 2),
		.qpn = GUEST_QPN,
		.src_qpn = 9,
		.access = ALL,
		.srqn = w.srq.number,
		.kind = take(in) % 4,
		.rkey = zone < SECRET ? rig.mrs[zone].key : take32(in),
		.address = (uintptr_t)rig_at(zone) + take(in) * 33u,
		.length = take(in) * 33u,
	};
	uint8_t odd = take(in);
	size_t bytes = r.op == VB_XRC_PLACE || r.op == VB_XRC_WRITE ? r.length : 0;
	if (r.op == VB_XRC_PLACE)
		r.address = take(in);
	if (odd % 8 == 1)
		r.srqn = take32(in);
	if (odd % 8 == 2)
		r.length = (uint64_t)take32(in) << 32 | take32(in);
	if (odd % 8 == 3)
		r.address = (uint64_t)take32(in) << 32 | take32(in);
	if (odd % 8 == 4)
		bytes = take32(in) % VB_XRC_DATA_BYTES;
	memcpy(request, &r, sizeof(r));
	memset(request + sizeof(r), take(in) | 1, bytes);
	return sizeof(r) + bytes;
}

static size_t take_raw(struct fuzz_input *in)
{
	size_t n = take(in) % (sizeof(struct vb_xrc_request) + 32);
	for (size_t i = 0; i < n; i++)
		request[i] = take(in);
	return n;
}

static void say(struct fuzz_input *in, unsigned i, size_t bytes)
{
	if (!w.guests[i])
		must(w.guests[i] = fake_desk_ops->connect(fake_desk_owner));
	size_t n = fake_desk_ops->call(w.guests[i], request, bytes, reply);
	must(n <= sizeof(reply));
	rig_left(reply, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	rig_set_up();
	begin();
	for (unsigned i = 0; in.left && i < MAX_STEPS; i++) {
		uint8_t step = take(&in);
		unsigned guest = step >> 7;
		switch (step % 8) {
		case 0:
			post_receive(&in);
			break;
		case 1:
			say(&in, guest, take_raw(&in));
			break;
		case 2:
			show_out(step % 32 == 2 ? guest : GUESTS - 1);
			break;
		case 3:
			rig_register_again(take(&in) % SECRET);
			break;
		default:
			say(&in, guest, make_up(&in));
		}
		poll_queue();
	}
	end();
	rig_check_memory();
	rig_tear_down();
	return 0;
}
