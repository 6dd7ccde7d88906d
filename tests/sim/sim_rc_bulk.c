/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much of a link's rate a reliable connection uses, in simulated time: one stream of WRITEs or READs over
 * a link with a rate, a delay and a queue, losing packets at random, or in groups with pauses between them.
 * The same numbers every time, so they can be asserted.
 *
 *	requester --> [ queue | rate | delay ] --> responder
 *	          <-- [ queue | rate | delay ] <--
 *
 * usage: sim_rc_bulk
 */
#include <stdio.h>
#include <stdlib.h>

#include "chance.h"
#include "unseen.h"

enum { MTU = 1024, MESSAGE = 65536, MESSAGES = 1024, ENTRIES = 128, IN_FLIGHT = 4096, BATCH = 64,
	OVERHEAD = 66, PICO_PER_BYTE = 1000, PAUSE_NS = 100000000 };

struct path {
	const char *name;
	uint64_t delay_ns;
	unsigned queue;			/* packets */
	unsigned loss;			/* per 100,000 */
	bool reads, keeps;
	/* of what the same path carries without loss; without loss: of the link's rate */
	unsigned least_percent;
	unsigned group;			/* messages between two pauses; 0: no pauses */
	unsigned most_lost;		/* packets, if there are pauses */
};

static const struct path paths[] = {
	{ "WRITE", 20000, 200, 0, false, true, 75 },
	{ "WRITE, 0.1 % loss", 20000, 200, 100, false, true, 75 },
	{ "WRITE, 1 % loss", 20000, 200, 1000, false, true, 60 },
	{ "WRITE, responder that drops", 20000, 200, 0, false, false, 75 },
	{ "WRITE, responder that drops, 0.1 % loss", 20000, 200, 100, false, false, 60 },
	{ "WRITE, short queue", 20000, 30, 0, false, true, 30 },
	{ "READ", 20000, 200, 0, true, true, 70 },
	{ "READ, 0.1 % loss", 20000, 200, 100, true, true, 75 },
	{ "READ, 1 % loss", 20000, 200, 1000, true, true, 55 },
	{ "WRITE, far away, in groups, short queue", 10000000, 200, 0, false, true, 1, .group = 32, .most_lost = 0 },
	{ "READ, far away, in groups, short queue", 10000000, 200, 0, true, true, 1, .group = 32, .most_lost = 0 },
};

struct flying {
	uint64_t arrives;
	uint8_t header[VB_MAX_HEADER_BYTES];
	size_t len;
};

struct direction {
	struct flying ring[IN_FLIGHT];
	unsigned head, tail;
	uint64_t free_at;
};

static struct world {
	const struct path *path;
	struct vb_rc_req req;
	struct vb_rc_resp resp;
	struct vb_rc_entry entries[ENTRIES];
	struct direction there, back;
	uint64_t now, random;
	unsigned posted, allowed, done, lost, packets;
} w;

static void *buffer_take(void *ctx) { return w.path->keeps ? malloc(VB_RC_BUFFER_BYTES) : NULL; }

static bool is_lost(void) { return chance_below(&w.random, 100000) < w.path->loss; }

static void launch(struct direction *d, const struct vb_packet_out *out)
{
	size_t len = out->header_bytes + out->payload_bytes + out->pad_bytes;
	uint64_t takes = (len + OVERHEAD) * PICO_PER_BYTE / 1000;

	w.packets++;
	if (d->free_at < w.now)
		d->free_at = w.now;
	bool is_full = d->free_at - w.now > w.path->queue * takes || d->tail - d->head == IN_FLIGHT;
	if (!is_full)
		d->free_at += takes;
	if (is_full || is_lost()) {
		w.lost++;
		return;
	}
	struct flying *f = &d->ring[d->tail++ % IN_FLIGHT];
	f->arrives = d->free_at + w.path->delay_ns;
	f->len = len;
	memcpy(f->header, out->header, sizeof(f->header));
}

/* The next packet that has arrived; its payload is whatever. */
static bool land(struct direction *d, struct vb_packet *packet)
{
	static uint8_t bytes[VB_RC_BUFFER_BYTES];

	if (d->head == d->tail || d->ring[d->head % IN_FLIGHT].arrives > w.now)
		return false;
	const struct flying *f = &d->ring[d->head++ % IN_FLIGHT];
	memcpy(bytes, f->header, sizeof(f->header));
	return vb_packet_parse(bytes, f->len, packet) == 0;
}

static void send_all(void)
{
	struct vb_request r = { .kind = w.path->reads ? VB_REQ_READ : VB_REQ_WRITE, .length = MESSAGE };
	struct vb_packet_out out;

	while (w.posted < w.allowed && vb_rc_req_post(&w.req, &r) == 0)
		w.posted++;
	while (vb_rc_req_write(&w.req, w.now, &out))
		launch(&w.there, &out);
	while (vb_rc_resp_write(&w.resp, &out))
		launch(&w.back, &out);
}

static void receive_batch(void)
{
	struct vb_packet packet;

	for (unsigned i = 0; i < BATCH && land(&w.there, &packet); i++)
		vb_rc_resp_receive(&w.resp, &packet);
	for (unsigned i = 0; i < BATCH && land(&w.back, &packet); i++)
		vb_rc_req_receive(&w.req, w.now, &packet);
}

static uint64_t next_arrival(const struct direction *d)
{
	return d->head == d->tail ? UINT64_MAX : d->ring[d->head % IN_FLIGHT].arrives;
}

/* Bytes per simulated microsecond; 0 on failure. */
static uint64_t run(const struct path *path)
{
	struct vb_packet_to to = { .qpn = 1, .pkey = VB_PKEY_DEFAULT, .service = VB_SERVICE_RC };
	struct vb_rc_completion c;

	memset(&w, 0, sizeof(w));
	w.path = path;
	w.now = w.random = 1000000;
	w.allowed = path->group ? path->group : MESSAGES;
	vb_rc_req_init(&w.req, &(struct vb_rc_req_config){ .to = to, .mtu = MTU, .max_window = 1024,
		.max_rd_atomic = 16, .retry_count = 7,
		.rnr_retry = 7, .place = place }, w.entries, ENTRIES);
	vb_rc_resp_init(&w.resp, &(struct vb_rc_resp_config){ .to = to,
							      .mtu = MTU,
							      .max_rd_atomic = 16,
							      .ops = &ops,
							      .buffer_take = buffer_take,
							      .buffer_give = buffer_give });
	while (w.done < MESSAGES) {
		send_all();
		uint64_t next = vb_min_u64(vb_rc_req_deadline(&w.req), vb_min_u64(next_arrival(&w.there),
			next_arrival(&w.back)));
		if (next == UINT64_MAX)
			return 0;
		w.now = next > w.now ? next : w.now;
		receive_batch();
		if (w.now >= vb_rc_req_deadline(&w.req))
			vb_rc_req_expire(&w.req, w.now);
		for (; vb_rc_req_next_completion(&w.req, &c); w.done++)
			if (c.status != VB_RC_SUCCESS)
				return 0;
		if (w.done == w.allowed && w.done < MESSAGES) {
			w.now += PAUSE_NS;
			w.allowed += path->group;
		}
	}
	vb_rc_resp_fini(&w.resp);
	return (uint64_t)MESSAGE * MESSAGES * 1000 / (w.now - 1000000);
}

int main(void)
{
	uint64_t lossless = 0;
	bool all_ok = true;

	printf("1..%zu\n", VB_ARRAY_LEN(paths));
	for (unsigned i = 0; i < VB_ARRAY_LEN(paths); i++) {
		uint64_t rate = run(&paths[i]), whole = paths[i].loss ? lossless : 1000000 / PICO_PER_BYTE;
		bool ok = rate * 100 >= whole * paths[i].least_percent && rate > 0 &&
			  (!paths[i].group || w.lost <= paths[i].most_lost);
		if (!paths[i].loss)
			lossless = rate;
		printf("%s %u - %s: %llu MB/s, %u packets, %u lost, %llu sent again\n", ok ? "ok" : "not ok",
			i + 1, paths[i].name,
		       (unsigned long long)rate, w.packets, w.lost, (unsigned long long)w.req.packets_resent);
		all_ok &= ok;
	}
	return !all_ok;
}
