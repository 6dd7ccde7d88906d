/* SPDX-License-Identifier: BSD-2-Clause */
/* The network between the two hosts of sim_rdmacm: what is lost, delayed, doubled, cut off. */
#include "sim_rdmacm.h"

#include "proto/cm/gsi.h"
#include "wire/ip_cm.h"

static bool is_dead(uint32_t comm_id)
{
	for (unsigned i = 0; comm_id && i < world.num_dead; i++)
		if (world.dead_comm_ids[i] == comm_id)
			return true;
	return false;
}

static void fly(const struct vb_mad *mad)
{
	for (unsigned i = 0; i < MAX_FLYING; i++) {
		if (world.flying[i].is_used)
			continue;
		uint64_t delay = percent(80) ? chance() % 20 : chance() % 1500;
		world.flying[i] =
			(struct flying){ .due_ns = fake.now_ns + delay * MS, .mad = *mad, .is_used = true };
		return;
	}
}

void network_left(const void *bytes, size_t len)
{
	const struct vb_gsi_packet *packet = bytes;
	struct vb_cm_msg msg;

	if (len < sizeof(*packet))
		return;
	must(vb_cm_msg_parse(&packet->mad, sizeof(packet->mad), &msg) == 0);
	bool lost = !world.healed && (percent(world.loss) || fake.now_ns < world.cut_until_ns);
	lost |= is_dead(vb_cm_msg_sender_id(&msg)) || is_dead(vb_cm_msg_destination_id(&msg));
	tell("message %#x, %x to %x%s", msg.attribute, vb_cm_msg_sender_id(&msg),
	     vb_cm_msg_destination_id(&msg), lost ? ": lost" : "");
	if (lost)
		return;
	fly(&packet->mad);
	if (!world.healed && percent(world.doubling))
		fly(&packet->mad);
}

static struct flying *next_due(uint64_t until)
{
	struct flying *next = NULL;

	for (unsigned i = 0; i < MAX_FLYING; i++)
		if (world.flying[i].is_used && world.flying[i].due_ns <= until &&
		    (!next || world.flying[i].due_ns < next->due_ns))
			next = &world.flying[i];
	return next;
}

static void swap(uint8_t *a, uint8_t *b, size_t bytes)
{
	uint8_t kept[16];

	memcpy(kept, a, bytes);
	memcpy(a, b, bytes);
	memcpy(b, kept, bytes);
}

static void swap_ends(uint8_t *ip_cm_header)
{
	enum { SOURCE = 4, DESTINATION = 20 };
	swap(ip_cm_header + SOURCE, ip_cm_header + DESTINATION, 16);
}

/* Each of the two hosts has FAKE_OWN_ADDRESS, and FAKE_OTHER_ADDRESS is the other, in requests as well. */
static void translate(struct vb_mad *mad)
{
	enum { LOCAL_GID = 56, REMOTE_GID = 72, REQ_DATA = 140, SIDR_REQ_DATA = 16 };
	uint8_t *body = mad->b + VB_MAD_HEADER_BYTES;

	switch (vb_mad_attribute_id(mad)) {
	case VB_CM_ATTR_REQ:
		swap(body + LOCAL_GID, body + REMOTE_GID, 16);
		swap_ends(body + REQ_DATA);
		break;
	case VB_CM_ATTR_SIDR_REQ:
		swap_ends(body + SIDR_REQ_DATA);
		break;
	}
}

void network_pass_time(uint64_t ns)
{
	uint64_t until = fake.now_ns + ns;
	struct flying *f;

	while ((f = next_due(until))) {
		struct vb_mad mad = f->mad;
		f->is_used = false;
		if (f->due_ns > fake.now_ns)
			fake_pass_time(f->due_ns - fake.now_ns);
		translate(&mad);
		fake_cm_message(&mad, FAKE_OTHER_ADDRESS, FAKE_OWN_ADDRESS, -1);
	}
	if (until > fake.now_ns)
		fake_pass_time(until - fake.now_ns);
}
