/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hostile packets into an RC and a UC responder.
 *
 * Input: steps. The first byte of each says whether a packet is taken raw (a length and bytes), or made up:
 * an opcode, a PSN near the expected one, headers from the input, and a payload of a length that is right
 * more often than not; or whether output is drawn, a receive posted, the memory withdrawn.
 *
 * Invariants: memory is touched only where the check allows it, receives are taken and ended in turn, an
 * ignored packet changes nothing, nothing is executed after the end, kept packets stay within bounds and come
 * back.
 */
#include <errno.h>

#include "fuzz.h"
#include "proto/rc/rc_responder.h"
#include "proto/rc/uc.h"

enum { MTU = 256, BASE = 0x1000, MEMORY = 2048, RKEY = 3, MAX_PACKETS = 256, MAX_OUT = 64 };

static struct world {
	struct vb_rc_resp rc;
	struct vb_uc_resp uc;
	uint8_t memory[MEMORY];
	unsigned receives, buffers;
	bool taken, withdrawn;
} w;

static int receive_take(void *ctx, const struct vb_packet *packet)
{
	must(!w.taken && !w.rc.broken);
	if (w.receives == 0)
		return -EAGAIN;
	w.receives--;
	w.taken = true;
	return 0;
}

static int receive_place(void *ctx, uint64_t offset, const void *bytes, size_t len)
{
	must(w.taken && len > 0 && len <= MTU);
	if (offset + len > MEMORY)
		return -EMSGSIZE;
	memcpy(w.memory + offset, bytes, len);
	return 0;
}

static void receive_done(void *ctx, const struct vb_received *received)
{
	must(w.taken && received->bytes <= VB_MAX_MESSAGE_BYTES);
	w.taken = false;
}

static int check(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access)
{
	if (!len)
		return 0;
	if (w.withdrawn || rkey != RKEY)
		return -EACCES;
	return addr >= BASE && addr - BASE <= MEMORY && len <= MEMORY - (addr - BASE) ? 0 : -EACCES;
}

static int write_memory(void *ctx, uint32_t rkey, uint64_t addr, const void *bytes, size_t len)
{
	must(len <= MTU);
	if (check(ctx, rkey, addr, len, VB_ACCESS_WRITE))
		return -EACCES;
	memcpy(w.memory + (addr - BASE), bytes, len);
	return 0;
}

static int atomic(void *ctx, const struct vb_atomic *op, uint64_t *original)
{
	must(op->addr % 8 == 0 && check(ctx, op->rkey, op->addr, 8, VB_ACCESS_ATOMIC) == 0);
	memcpy(original, w.memory + (op->addr - BASE), 8);
	memcpy(w.memory + (op->addr - BASE), &op->swap_or_add, 8);
	return 0;
}

static int invalidate(void *ctx, uint32_t rkey) { return rkey == RKEY ? 0 : -EACCES; }

static void *buffer_take(void *ctx)
{
	if (w.buffers == 100)
		return NULL;
	w.buffers++;
	return malloc(VB_RC_BUFFER_BYTES);
}

static void buffer_give(void *ctx, void *buffer)
{
	must(w.buffers-- > 0);
	free(buffer);
}

static const struct vb_responder_ops ops = {
	.receive_take = receive_take,
	.receive_place = receive_place,
	.receive_done = receive_done,
	.check = check,
	.write = write_memory,
	.atomic = atomic,
	.invalidate = invalidate,
};

/* Fields of the extension headers that would be refused nearly always if they were left to chance. */
static void be_plausible(struct fuzz_input *in, uint8_t *bytes, const struct vb_opcode_row *row)
{
	if (vb_opcode_has(row, VB_EXT_RETH)) {
		struct vb_reth *reth = (struct vb_reth *)(bytes + vb_opcode_offset(row, VB_EXT_RETH));
		vb_reth_set_address(reth, BASE + take(in) * 8u);
		vb_reth_set_rkey(reth, RKEY);
		vb_reth_set_length(reth, take(in) * 4u);
	}
	if (vb_opcode_has(row, VB_EXT_ATOMICETH)) {
		struct vb_atomiceth *eth =
			(struct vb_atomiceth *)(bytes + vb_opcode_offset(row, VB_EXT_ATOMICETH));
		vb_atomiceth_set_address(eth, BASE + take(in) * 8u);
		vb_atomiceth_set_rkey(eth, RKEY);
	}
}

static size_t make_up(struct fuzz_input *in, uint8_t *bytes, bool is_uc)
{
	uint8_t choice = take(in);
	const struct vb_opcode_row *row =
		vb_opcode_row((uint8_t)(take(in) % 0x18 | (is_uc ? VB_SERVICE_UC << VB_OPCODE_BITS : 0)));
	struct vb_bth *bth = (struct vb_bth *)bytes;
	uint32_t expected = is_uc ? w.uc.expected : (uint32_t)w.rc.expected;

	if (!row->name)
		return 0;
	for (unsigned i = 0; i < row->header_bytes; i++)
		bytes[i] = choice & 1 ? take(in) : 0;
	size_t payload = !row->flags.payload ? 0 :
			 choice & 2	     ? take(in) * 4u :
			 row->flags.last     ? choice & ~3u :
					       MTU;
	if (!(choice & 4))
		be_plausible(in, bytes, row);
	vb_bth_set_opcode(bth, (uint8_t)(row - vb_opcode_row(0)));
	vb_bth_set_transport_version(bth, 0);
	vb_bth_set_pkey(bth, VB_PKEY_DEFAULT);
	vb_bth_set_psn(bth, expected + (choice & 8 ? (uint32_t)(int8_t)take(in) : 0));
	return row->header_bytes + payload;
}

static size_t take_raw(struct fuzz_input *in, uint8_t *bytes)
{
	size_t len = take(in) * 4u;

	for (size_t i = 0; i < len; i++)
		bytes[i] = take(in);
	return len;
}

static void receive_rc(const struct vb_packet *packet)
{
	struct vb_rc_resp before = w.rc;
	enum vb_rc_verdict verdict = vb_rc_resp_receive(&w.rc, packet);

	if (verdict == VB_RC_IGNORED)
		must(memcmp(&before, &w.rc, sizeof(before)) == 0);
	must((verdict == VB_RC_BROKEN) == w.rc.broken || verdict == VB_RC_IGNORED);
	must(w.rc.expected >= before.expected && w.rc.kept_count < VB_RC_KEPT &&
	     w.rc.kept_count == w.buffers);
}

static void draw(void)
{
	struct vb_packet_out out;

	for (unsigned i = 0; i < MAX_OUT && vb_rc_resp_write(&w.rc, &out); i++) {
		must(out.header_bytes <= VB_MAX_HEADER_BYTES && out.payload_bytes <= MTU);
		if (out.payload_bytes &&
		    check(NULL, out.rkey, out.payload_at, out.payload_bytes, VB_ACCESS_READ)) {
			must(w.withdrawn);
			vb_rc_resp_fault(&w.rc, &out);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	bool is_uc = take(&in) & 1;
	struct vb_packet_to to = { .qpn = 1, .pkey = VB_PKEY_DEFAULT, .service = VB_SERVICE_RC };

	memset(&w, 0, sizeof(w));
	vb_rc_resp_init(&w.rc, &(struct vb_rc_resp_config){ .to = to, .mtu = MTU, .first_psn = take32(&in),
		.max_rd_atomic = 1 + take(&in) % 16,
		.rnr_timer = 1, .ops = &ops, .buffer_take = buffer_take, .buffer_give = buffer_give });
	vb_uc_resp_init(&w.uc, &(struct vb_uc_resp_config){ .mtu = MTU, .first_psn = take32(&in),
		.pkey = VB_PKEY_DEFAULT, .ops = &ops });
	for (unsigned i = 0; in.left && i < MAX_PACKETS; i++) {
		static uint8_t bytes[VB_MAX_HEADER_BYTES + 4096];
		uint8_t step = take(&in);
		struct vb_packet packet;
		if (step % 8 == 7)
			w.receives++;
		else if (step % 8 == 6)
			draw();
		else if (step == 5)
			w.withdrawn = !w.withdrawn;
		else {
			size_t len = step % 8 == 4 ? take_raw(&in, bytes) : make_up(&in, bytes, is_uc);
			if (vb_packet_parse(bytes, len, &packet) == 0)
				is_uc ? (void)vb_uc_resp_receive(&w.uc, &packet) : receive_rc(&packet);
		}
	}
	vb_rc_resp_fini(&w.rc);
	must(w.buffers == 0);
	return 0;
}
