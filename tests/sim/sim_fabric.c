/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many reliable connections that share links (fabric.h), in simulated time: how much of a link they use, how
 * evenly they share it, and how long short messages take beside long ones. The same numbers every time, so
 * they can be asserted.
 *
 * A flow is one connection: the requester at one host sends WRITEs of one size to the responder at another.
 * The simulation counts a packet as delivered when its ACK arrives. For comparison, DCQCN can set a flow's
 * rate instead of the requester; such packets count when they arrive. DCQCN is made for networks that lose
 * nothing, so the queues of its scenarios have no limit.
 *
 * usage: sim_fabric [-l] [NAME...]: the short scenarios, or with -l the long ones; those whose names begin so
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcqcn.h"
#include "fabric.h"
#include "proto/rc/cnp.h"
#include "unseen.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define KIB 1024u
#define TEN_GBIT 800 /* ps per byte */

enum { ENTRIES = 16, WINDOW = 1024, RETRY_TIME_MS = 67, RETRIES = 7, HEADERS = 12 + FABRIC_OVERHEAD };

/* ---- flows ---- */

struct flow {
	unsigned from, to;
	uint32_t mtu, message;   /* bytes */
	uint64_t messages;       /* UINT64_MAX: without end */
	uint64_t pause_ns;       /* after each message; 0: ENTRIES of them at a time */
	void (*done)(struct flow *flow); /* a message has completed */
	struct vb_rc_req req;
	struct vb_rc_entry entries[ENTRIES];
	struct vb_rc_resp resp;
	struct vb_cnp cnp;
	struct fabric_event go;  /* a deadline, or room in the link */
	uint64_t begun_at, posted, completed, counted_from;
	uint64_t next_post_at;
	uint32_t session;        /* its QP number; a flow may begin anew, towards another host */
	bool has_failed;
	bool is_dcqcn;
	struct dcqcn dcqcn;
	uint64_t received;       /* bytes, of DCQCN's */
};

enum { MOST_TIMES = 100000 };

static struct flow *flows;
static unsigned failed;          /* flows */
static uint64_t times[MOST_TIMES]; /* of single messages, ns */
static size_t num_times;

static void *buffer_take(void *ctx) { return malloc(VB_RC_BUFFER_BYTES); }

static void note_time(uint64_t ns)
{
	if (num_times < MOST_TIMES)
		times[num_times++] = ns;
}

static void post(struct flow *f)
{
	struct vb_request r = { .kind = VB_REQ_WRITE, .length = f->message };
	while (f->posted < f->messages && fabric.now >= f->next_post_at && !vb_rc_req_post(&f->req, &r)) {
		f->posted++;
		if (f->pause_ns) {
			f->begun_at = fabric.now;
			f->next_post_at = UINT64_MAX; /* until it has completed */
		}
	}
}

static void complete(struct flow *f)
{
	struct vb_rc_completion c;
	while (vb_rc_req_next_completion(&f->req, &c)) {
		if (c.status != VB_RC_SUCCESS) {
			f->has_failed = true;
			failed++;
			return;
		}
		f->completed++;
		if (f->pause_ns) {
			note_time(fabric.now - f->begun_at);
			f->next_post_at = fabric.now + f->pause_ns;
		}
		if (f->done)
			f->done(f);
	}
}

/* ---- DCQCN's ---- */

static void send_bare(struct flow *f, bool is_answer, uint32_t payload)
{
	struct vb_packet_out out = { .header_bytes = sizeof(struct vb_bth), .payload_bytes = payload };
	fabric_send(is_answer ? f->to : f->from, is_answer ? f->from : f->to, f, is_answer, &out);
}

static void go_at_rate(struct flow *f)
{
	while (fabric.now >= f->next_post_at && fabric_has_room(f->from, &f->go)) {
		send_bare(f, false, f->mtu);
		f->next_post_at = dcqcn_sent(&f->dcqcn, fabric.now, f->mtu);
	}
	if (fabric.now < f->next_post_at)
		fabric_set(&f->go, f->next_post_at);
}

static void arrived_at_rate(struct flow *f, const struct fabric_packet *p)
{
	if (p->is_answer) {
		dcqcn_notified(&f->dcqcn, fabric.now);
		return;
	}
	f->received += f->mtu;
	if (p->is_marked && vb_cnp_is_due(&f->cnp, fabric.now))
		send_bare(f, true, 16);
}

/* ---- RC's ---- */

/* Sends what may be sent; comes again when there will be more. */
static void go(struct flow *f)
{
	struct vb_packet_out out;
	bool has_room;
	complete(f);
	if (f->has_failed || f->completed == f->messages)
		return;
	post(f);
	while ((has_room = fabric_has_room(f->from, &f->go)) && vb_rc_req_write(&f->req, fabric.now, &out))
		fabric_send(f->from, f->to, f, false, &out);
	if (!has_room)
		return;
	uint64_t next = vb_rc_req_deadline(&f->req);
	if (f->pause_ns)
		next = vb_min_u64(next, f->next_post_at);
	if (next != VB_RC_NEVER)
		fabric_set(&f->go, next);
}

static void go_event(struct fabric_event *event)
{
	struct flow *f = vb_container_of(event, struct flow, go);
	if (f->is_dcqcn) {
		go_at_rate(f);
		return;
	}
	if (fabric.now >= vb_rc_req_deadline(&f->req))
		vb_rc_req_expire(&f->req, fabric.now);
	go(f);
}

static void request_arrived(struct flow *f, const struct fabric_packet *p, const struct vb_packet *packet)
{
	struct vb_packet_out out;
	if (p->is_marked && vb_cnp_is_due(&f->cnp, fabric.now)) {
		vb_cnp_build(&f->resp.config.to, &out);
		fabric_send(f->to, f->from, f, true, &out);
	}
	vb_rc_resp_receive(&f->resp, packet);
	while (vb_rc_resp_write(&f->resp, &out))
		fabric_send(f->to, f->from, f, true, &out);
}

/* Nobody looks at a payload. */
static void arrived(const struct fabric_packet *p)
{
	static uint8_t bytes[VB_RC_BUFFER_BYTES];
	struct flow *f = p->connection;
	struct vb_packet packet;
	if (f->is_dcqcn) {
		arrived_at_rate(f, p);
		return;
	}
	memcpy(bytes, p->header, sizeof(p->header));
	if (vb_packet_parse(bytes, p->bytes, &packet))
		abort();
	if (packet.destination_qpn != f->session)
		return;
	if (!p->is_answer) {
		request_arrived(f, p, &packet);
	} else if (!f->has_failed) {
		vb_rc_req_receive(&f->req, fabric.now, &packet);
		go(f);
	}
}

/* from, to, mtu and what is to be sent are set. */
static void start(struct flow *f, uint64_t at_ns)
{
	struct vb_packet_to to = { .qpn = ++f->session, .pkey = VB_PKEY_DEFAULT, .service = VB_SERVICE_RC };
	vb_rc_req_init(&f->req,
		       &(struct vb_rc_req_config){ .to = to, .mtu = f->mtu, .max_window = WINDOW,
			       .max_rd_atomic = 16, .retry_count = RETRIES, .rnr_retry = 7,
			       .ack_timeout_ns = RETRY_TIME_MS * MS, .place = place },
		       f->entries, ENTRIES);
	vb_rc_resp_init(&f->resp, &(struct vb_rc_resp_config){ .to = to,
							       .mtu = f->mtu,
							       .max_rd_atomic = 16,
							       .ops = &ops,
							       .buffer_take = buffer_take,
							       .buffer_give = buffer_give });
	f->cnp = (struct vb_cnp){ 0 };
	f->posted = f->completed = f->begun_at = f->next_post_at = 0;
	f->go.happen = go_event;
	dcqcn_init(&f->dcqcn, at_ns, 1e12 / TEN_GBIT);
	fabric_set(&f->go, at_ns);
}

static void end(struct flow *f) { vb_rc_resp_fini(&f->resp); }

/* Delivered since it was asked last. */
static uint64_t delivered_bytes(struct flow *f)
{
	/* packets, so that long messages count in part */
	uint64_t acked = (f->req.acked - vb_psn_first(f->req.config.first_psn)) * f->mtu,
		 bytes = f->is_dcqcn ? f->received : acked;
	uint64_t more = bytes - f->counted_from;
	f->counted_from = bytes;
	return more;
}

static void run_until(uint64_t ns)
{
	while (fabric_step(ns))
		;
	fabric.now = vb_max_u64(fabric.now, ns);
}

/* ---- scenarios ---- */

enum { WARM_MS = 50, MEASURED_MS = 200, ENDLESS_MS = 60000, AT_ONCE = 8 };

/* What came out. */
struct figures {
	double used;             /* part of the link's bytes that are payload, of what can be */
	double fair;             /* Jain's index of the flows' rates; 1: all are equal */
	char more[120];
};

struct scenario {
	const char *name;
	void (*run)(const struct scenario *s, struct figures *out);
	unsigned hosts;          /* that send */
	uint32_t mtu, message;   /* message: 0 where flows have no end */
	unsigned slower;         /* all times are so many times as long as at 10 Gbit/s; 0: 1 */
	bool marks, is_long, dcqcn;
	double least_used, least_fair;
};

static uint64_t slowed(const struct scenario *s, uint64_t time) { return time * vb_max_u64(s->slower, 1); }

static struct fabric_link link_of(const struct scenario *s)
{
	return (struct fabric_link){ .per_byte_ps = slowed(s, TEN_GBIT),
				     .delay_ns = slowed(s, 5 * US),
				     .jitter_ns = slowed(s, 5 * US),
				     .queue = s->dcqcn ? UINT32_MAX : 256 * KIB,
				     .mark_from = 32 * KIB,
				     .mark_all = s->marks ? 128 * KIB : 0 };
}

static void begin(const struct scenario *s, unsigned hosts, unsigned num_flows)
{
	struct fabric_link link = link_of(s);
	fabric_begin(1, hosts, &link, arrived);
	free(flows);
	flows = calloc(num_flows, sizeof(*flows));
	if (!flows)
		abort();
	failed = 0;
	num_times = 0;
}

static void begin_endless(const struct scenario *s, unsigned i, unsigned from, unsigned to)
{
	flows[i] = (struct flow){ .from = from, .to = to, .mtu = s->mtu, .message = 64 * KIB,
				  .messages = UINT64_MAX, .is_dcqcn = s->dcqcn };
	start(&flows[i], fabric.now + fabric_random(MS));
}

static double of_link(const struct scenario *s, double bytes_per_s)
{
	return bytes_per_s / (1e12 / (double)slowed(s, TEN_GBIT) * s->mtu / (s->mtu + HEADERS));
}

/* Of n flows without end: their parts of the link once they have settled. */
static void measure(const struct scenario *s, unsigned n, double *parts, struct figures *out)
{
	double sum = 0, squares = 0, seconds = (double)slowed(s, MEASURED_MS) / 1000;
	run_until(fabric.now + slowed(s, WARM_MS * MS));
	for (unsigned i = 0; i < n; i++)
		delivered_bytes(&flows[i]);
	run_until(fabric.now + slowed(s, MEASURED_MS * MS));
	for (unsigned i = 0; i < n; i++) {
		parts[i] = of_link(s, (double)delivered_bytes(&flows[i]) / seconds);
		sum += parts[i];
		squares += parts[i] * parts[i];
		end(&flows[i]);
	}
	out->used = sum;
	out->fair = sum * sum / (n * squares);
}

static double lost_percent(void) { return 100.0 * (double)fabric.lost / (double)fabric.packets; }

/* All send to one. */
static void incast(const struct scenario *s, struct figures *out)
{
	static double parts[FABRIC_HOSTS];
	begin(s, s->hosts + 1, s->hosts);
	for (unsigned i = 0; i < s->hosts; i++)
		begin_endless(s, i, i + 1, 0);
	measure(s, s->hosts, parts, out);
	unsigned silent = 0;
	for (unsigned i = 0; i < s->hosts; i++)
		silent += parts[i] == 0;
	snprintf(out->more, sizeof(out->more), "%.1f %% of packets lost, %u hosts delivered nothing",
		 lost_percent(), silent);
}

/* Two send to one, the one from ten times as far. */
static void near_and_far(const struct scenario *s, struct figures *out)
{
	double parts[2];
	begin(s, 3, 2);
	struct fabric_link far = link_of(s);
	far.delay_ns = slowed(s, 95 * US);
	fabric_set_link(2, &far);
	for (unsigned i = 0; i < 2; i++)
		begin_endless(s, i, i + 1, 0);
	measure(s, 2, parts, out);
	snprintf(out->more, sizeof(out->more), "near %.2f, far %.2f", parts[0], parts[1]);
}

/* Two pairs of hosts share nothing; the links of one lose a packet in 100. */
static void lossy_and_good(const struct scenario *s, struct figures *out)
{
	double parts[2];
	begin(s, 4, 2);
	struct fabric_link lossy = link_of(s);
	lossy.loss = 1000;
	fabric_set_link(1, &lossy);
	for (unsigned i = 0; i < 2; i++)
		begin_endless(s, i, i, 2 + i);
	measure(s, 2, parts, out);
	out->used = parts[0] < 0.95 ? 0 : parts[1]; /* the other must not notice */
	snprintf(out->more, sizeof(out->more), "good %.2f, lossy %.2f", parts[0], parts[1]);
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static double percentile_us(unsigned percent)
{
	qsort(times, num_times, sizeof(*times), by_size);
	return num_times ? (double)times[(num_times - 1) * percent / 100] / 1000 : 0;
}

/* Messages of 4 KiB from one host more, beside the long ones of the others. */
static void short_beside_long(const struct scenario *s, struct figures *out)
{
	double parts[FABRIC_HOSTS];
	struct flow *few;
	begin(s, s->hosts + 2, s->hosts + 1);
	for (unsigned i = 0; i < s->hosts; i++)
		begin_endless(s, i, i + 1, 0);
	few = &flows[s->hosts];
	*few = (struct flow){ .from = s->hosts + 1, .mtu = s->mtu, .message = 4 * KIB, .messages = UINT64_MAX,
			      .pause_ns = 200 * US };
	start(few, fabric.now);
	measure(s, s->hosts, parts, out);
	end(few);
	snprintf(out->more, sizeof(out->more), "%zu short messages took %.0f us, 99 %% of them at most %.0f",
		 num_times, percentile_us(50), percentile_us(99));
}

/* ---- until all is done ---- */

static struct {
	unsigned hosts;
	uint64_t done, all;      /* messages */
} whole;

/* How much of the hosts' links is used, if each sends so many bytes. */
static void run_whole(const struct scenario *s, uint64_t bytes_of_each, struct figures *out)
{
	uint64_t from = fabric.now;
	while (whole.done < whole.all && fabric_step(from + ENDLESS_MS * MS))
		;
	double seconds = (double)(fabric.now - from) / 1e9;
	out->used = whole.done < whole.all ? 0 : of_link(s, (double)bytes_of_each / seconds);
	out->fair = 1;
	snprintf(out->more, sizeof(out->more), "%llu of %llu messages in %.1f ms, %.1f %% of packets lost",
		 (unsigned long long)whole.done, (unsigned long long)whole.all, seconds * 1000,
		 lost_percent());
}

static void to_next_host(struct flow *f)
{
	unsigned distance = (f->to + whole.hosts - f->from) % whole.hosts + AT_ONCE;
	whole.done++;
	end(f);
	f->to = (f->from + distance) % whole.hosts;
	if (distance < whole.hosts)
		start(f, fabric.now);
}

/* Each host has a message for each other, and sends some of them at a time. */
static void all_to_all(const struct scenario *s, struct figures *out)
{
	unsigned n = s->hosts;
	begin(s, n, n * AT_ONCE);
	whole.hosts = n;
	whole.done = 0;
	whole.all = (uint64_t)n * (n - 1);
	for (unsigned i = 0; i < n * AT_ONCE; i++) {
		flows[i] = (struct flow){ .from = i / AT_ONCE, .to = (i / AT_ONCE + i % AT_ONCE + 1) % n,
					  .mtu = s->mtu, .message = s->message, .messages = 1,
					  .done = to_next_host };
		start(&flows[i], fabric.now + fabric_random(100 * US));
	}
	run_whole(s, (uint64_t)(n - 1) * s->message, out);
}

/* The next host may send what it has got. */
static void pass_on(struct flow *f)
{
	struct flow *next = &flows[f->to];
	whole.done++;
	next->messages = vb_min_u64(f->completed + 1, whole.all / whole.hosts);
	fabric_set(&next->go, fabric.now);
}

/* An all-reduce by a ring: in each step a host passes on to the next one what it has got in the last. */
static void ring(const struct scenario *s, struct figures *out)
{
	unsigned n = s->hosts, steps = 2 * (n - 1);
	begin(s, n, n);
	whole.hosts = n;
	whole.done = 0;
	whole.all = (uint64_t)n * steps;
	for (unsigned i = 0; i < n; i++) {
		flows[i] = (struct flow){ .from = i, .to = (i + 1) % n, .mtu = s->mtu, .message = s->message,
					  .messages = 1, .done = pass_on };
		start(&flows[i], fabric.now);
	}
	run_whole(s, (uint64_t)steps * s->message, out);
	for (unsigned i = 0; i < n; i++)
		end(&flows[i]);
}

static const struct scenario scenarios[] = {
	{ "incast of 2", incast, 2, 1024, .least_used = 0.95, .least_fair = 0.9 },
	{ "incast of 16", incast, 16, 1024, .least_used = 0.9, .least_fair = 0.9 },
	{ "incast of 16, marked", incast, 16, 1024, .marks = true, .least_used = 0.95, .least_fair = 0.95 },
	/* With less than five packets for each, timeouts decide. */
	{ "incast of 16, MTU 4096", incast, 16, 4096, .least_used = 0.8, .least_fair = 0.55 },
	{ "incast of 64", incast, 64, 1024, .least_used = 0.8, .least_fair = 0.6 },
	{ "near and far", near_and_far, 2, 1024, .least_used = 0.9, .least_fair = 0.95 },
	{ "near and far, marked", near_and_far, 2, 1024, .marks = true, .least_used = 0.9,
	  .least_fair = 0.95 },
	{ "near and far, 500 Mbit/s", near_and_far, 2, 1024, .slower = 20, .least_used = 0.95,
	  .least_fair = 0.95 },
	{ "near and far, 500 Mbit/s, marked", near_and_far, 2, 1024, .slower = 20, .marks = true,
	  .least_used = 0.95, .least_fair = 0.95 },
	{ "incast of 16, 500 Mbit/s", incast, 16, 1024, .slower = 20, .least_used = 0.95, .least_fair = 0.9 },
	{ "a lossy link beside a good one", lossy_and_good, 2, 1024, .least_used = 0.75 },
	{ "a lossy link beside a good one, 500 Mbit/s", lossy_and_good, 2, 1024, .slower = 20,
	  .least_used = 0.86 },
	{ "short messages beside 4 streams", short_beside_long, 4, 1024, .least_used = 0.9, .least_fair = 0.8 },
	{ "short messages beside 4 streams, marked", short_beside_long, 4, 1024, .marks = true,
	  .least_used = 0.95, .least_fair = 0.9 },
	{ "DCQCN: incast of 2", incast, 2, 1024, .marks = true, .dcqcn = true },
	{ "DCQCN: incast of 16", incast, 16, 1024, .marks = true, .dcqcn = true },
	{ "DCQCN: near and far", near_and_far, 2, 1024, .marks = true, .dcqcn = true },
	{ "DCQCN: short messages beside 4 streams", short_beside_long, 4, 1024, .marks = true, .dcqcn = true },
	{ "all to all, 100 hosts", all_to_all, 100, 4096, 16 * KIB, .least_used = 0.3 },
	{ "all-reduce, 32 hosts", ring, 32, 4096, 256 * KIB, .least_used = 0.5 },
	{ "all to all, 1,000 hosts", all_to_all, 1000, 4096, 16 * KIB, .is_long = true, .least_used = 0.3 },
	{ "incast of 1,000", incast, 1000, 1024, .is_long = true, .least_used = 0.5 },
	{ "all-reduce, 1,000 hosts", ring, 1000, 4096, 8 * KIB, .is_long = true, .least_used = 0.1 },
};

static bool is_wanted(const struct scenario *s, bool is_long, char **names)
{
	for (char **name = names; *name; name++)
		if (!strncmp(s->name, *name, strlen(*name)))
			return true;
	return !*names && s->is_long == is_long;
}

int main(int argc, char **argv)
{
	unsigned n = 0;
	bool all_good = true, is_long = argc > 1 && !strcmp(argv[1], "-l");
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned i = 0; i < VB_ARRAY_LEN(scenarios); i++) {
		const struct scenario *s = &scenarios[i];
		struct figures out = { 0 };
		if (!is_wanted(s, is_long, argv + 1 + is_long))
			continue;
		s->run(s, &out);
		bool good = !failed && out.used >= s->least_used && out.fair >= s->least_fair;
		printf("%s %u - %s: %.2f of the link, fairness %.2f, %s\n", good ? "ok" : "not ok", ++n,
		       s->name, out.used, out.fair, out.more);
		if (failed)
			printf("# %u flows ended with an error\n", failed);
		all_good &= good;
	}
	printf("1..%u\n", n);
	fabric_end();
	free(flows);
	return !all_good || !n;
}
