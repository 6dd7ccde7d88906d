/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hostile replies into an RC requester.
 *
 * Input: steps: post a request, send some packets, let time pass, or receive a reply: an ACK, NAK, RNR NAK,
 * READ response or atomic answer with a PSN near those in flight, or raw bytes.
 *
 * Invariants: answers are placed within their request while it is not complete, completions come in order and
 * once, the counts keep their order, an ignored reply changes nothing, what is sent lies within its request,
 * and the machine never wants to send without end.
 */
#include "fuzz.h"
#include "proto/rc/rc_requester.h"
#include "wire/syndrome.h"

enum { MTU = 256, ENTRIES = 8, MAX_STEPS = 400, MAX_WRITES = 20000 };

static struct world {
	struct vb_rc_req req;
	struct vb_rc_entry entries[ENTRIES];
	uint64_t now;
	uint32_t completed;
	bool over;
} w;

static const struct vb_rc_entry *entry_of(uint32_t position)
{
	must(position - w.req.head < w.req.tail - w.req.head);
	return &w.entries[position % ENTRIES];
}

static int place(void *ctx, uint32_t position, uint64_t offset, const void *bytes, size_t len)
{
	const struct vb_request *r = &entry_of(position)->request;

	must(vb_request_is_answered(r) && offset + len <= r->length && !w.over);
	return ((const uint8_t *)bytes)[0] == 0xee ? -1 : 0;
}

static void check_counts(void)
{
	const struct vb_rc_req *r = &w.req;

	must(r->una <= r->next && r->next <= r->end && r->acked <= r->next &&
	     r->next - r->una <= VB_RC_WINDOW);
	must(r->reads_count <= r->config.max_rd_atomic);
	must(r->reported == w.completed && r->head - r->reported <= ENTRIES && r->tail - r->head <= ENTRIES);
}

static void complete(void)
{
	struct vb_rc_completion c;

	while (vb_rc_req_next_completion(&w.req, &c)) {
		must(!w.over && c.position == w.completed);
		if (c.status == VB_RC_SUCCESS)
			w.completed++;
		else
			w.over = true;
	}
}

static void post(struct fuzz_input *in)
{
	struct vb_request r = { .kind = take(in) % 5, .tail = take(in) % 4, .fence = take(in) & 1,
		.length = take(in) };

	if (r.length & 1)
		r.length <<= take(in) % 16;
	if (r.kind > VB_REQ_READ)
		r.length = 8;
	if (vb_rc_req_post(&w.req, &r))
		return;
	must(vb_request_check(&r, VB_SERVICE_RC) == 0);
}

static void write_some(unsigned most)
{
	struct vb_packet_out out;

	for (unsigned i = 0; i < most && vb_rc_req_write(&w.req, w.now, &out); i++) {
		const struct vb_request *r = &entry_of(out.position)->request;
		must(out.header_bytes <= VB_MAX_HEADER_BYTES && out.payload_bytes <= MTU);
		must(out.payload_bytes == 0 || (!vb_request_is_answered(r) &&
			out.payload_at + out.payload_bytes <= r->length));
		must(i + 1 < MAX_WRITES);
	}
}

static void pass_time(struct fuzz_input *in)
{
	uint64_t deadline = vb_rc_req_deadline(&w.req);

	w.now += (uint64_t)take(in) << 16;
	if (take(in) & 1 && deadline != VB_RC_NEVER && deadline > w.now)
		w.now = deadline;
	vb_rc_req_expire(&w.req, w.now);
}

static size_t make_reply(struct fuzz_input *in, uint8_t *bytes)
{
	static const uint8_t opcodes[] = { VB_OPB_ACKNOWLEDGE, VB_OPB_ACKNOWLEDGE, VB_OPB_READ_RESPONSE_FIRST,
		VB_OPB_READ_RESPONSE_MIDDLE,
					   VB_OPB_READ_RESPONSE_LAST, VB_OPB_READ_RESPONSE_ONLY,
					   VB_OPB_ATOMIC_ACKNOWLEDGE };
	uint8_t choice = take(in);
	const struct vb_opcode_row *row = vb_opcode_row(opcodes[choice % VB_ARRAY_LEN(opcodes)]);
	struct vb_bth *bth = (struct vb_bth *)bytes;
	uint32_t payload = !row->flags.payload ? 0 : take(in) & 1 ? MTU : take(in);

	memset(bytes, 0, row->header_bytes);
	memset(bytes + row->header_bytes, take(in), payload + 4);
	vb_bth_set_opcode(bth, (uint8_t)(row - vb_opcode_row(0)));
	vb_bth_set_pkey(bth, VB_PKEY_DEFAULT);
	vb_bth_set_pad_count(bth, -payload & 3);
	vb_bth_set_psn(bth, (uint32_t)w.req.una + (uint32_t)(int8_t)take(in));
	if (vb_opcode_has(row, VB_EXT_AETH))
		vb_aeth_set_syndrome((struct vb_aeth *)(bytes + vb_opcode_offset(row, VB_EXT_AETH)),
			choice & 128 ? take(in) : 31);
	return row->header_bytes + payload + (-payload & 3);
}

static void receive(struct fuzz_input *in, bool raw)
{
	static uint8_t bytes[1200];
	struct vb_packet packet;
	size_t len = raw ? take(in) : make_reply(in, bytes);

	for (size_t i = 0; raw && i < len; i++)
		bytes[i] = take(in);
	if (vb_packet_parse(bytes, len, &packet))
		return;
	struct vb_rc_req before = w.req;
	if (vb_rc_req_receive(&w.req, w.now, &packet) == VB_RC_IGNORED)
		must(memcmp(&before, &w.req, sizeof(before)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };

	memset(&w, 0, sizeof(w));
	w.now = 1000000;
	vb_rc_req_init(&w.req,
		       &(struct vb_rc_req_config){
			       .to = { .qpn = 1, .pkey = VB_PKEY_DEFAULT, .service = VB_SERVICE_RC },
			       .mtu = MTU,
			       .first_psn = take32(&in),
			       .max_window = 4u << take(&in) % 10,
			       .max_rd_atomic = 1 + take(&in) % 16,
			       .retry_count = take(&in) % 8,
			       .rnr_retry = take(&in) % 8,
			       .ack_timeout_ns = (uint64_t)take(&in) << 20,
			       .place = place },
		       w.entries, ENTRIES);
	for (unsigned i = 0; in.left && i < MAX_STEPS; i++) {
		uint8_t step = take(&in);
		switch (step % 8) {
		case 0: post(&in); break;
		case 1: write_some(1); break;
		case 2: write_some(MAX_WRITES); break;
		case 3: pass_time(&in); break;
		case 4: receive(&in, step & 128); break;
		default: receive(&in, false); break;
		}
		complete();
		check_counts();
	}
	return 0;
}
