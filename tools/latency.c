/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process says is hostile: it costs at most so many queue pairs and requests, and nonsense makes
 * nonsense of its own figures alone.
 */
#include "latency.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "command.h"
#include "wire/opcode.h"

enum { MAX_QPS = 65536, MAX_OPEN = 131072, PSN_MASK = 0xffffff, PSN_HALF = 0x800000 };

const struct latency_percentile latency_percentiles[LATENCY_PERCENTILES] = {
	{ "50%", 500 }, { "90%", 900 }, { "99%", 990 }, { "99.9%", 999 }, { "max", 1000 },
};
const char *const latency_pieces[LATENCY_PIECES] = { "queue", "under_way", "unpolled" };

/* A send from its post until it is polled. */
struct request {
	uint64_t wr_id, posted_ns, sent_ns, done_ns; /* 0: not yet */
	uint32_t opcode, bytes;
	bool is_signaled, failed;
};

/* Positions are free-running: head (oldest that is kept) <= done (next to complete) <= tail, sent too. */
struct latency_qp {
	struct latency_qp *next;
	uint32_t qpn, last_psn;
	bool has_psn;
	struct request *ring;
	uint64_t room, head, sent, done, tail;
};

static void *allocated(void *memory)
{
	if (!memory)
		exit(complain("out of memory"));
	return memory;
}

/* ---- queue pairs ---- */

static struct request *at(const struct latency_qp *qp, uint64_t position)
{
	return &qp->ring[position % qp->room];
}

static struct latency_qp *find_qp(const struct latency_process *p, uint32_t qpn)
{
	struct latency_qp *qp = p->qps[qpn % VB_ARRAY_LEN(p->qps)];

	while (qp && qp->qpn != qpn)
		qp = qp->next;
	return qp;
}

/* NULL: there are too many. */
static struct latency_qp *take_qp(struct latency_process *p, uint32_t qpn)
{
	struct latency_qp *qp = find_qp(p, qpn), **list = &p->qps[qpn % VB_ARRAY_LEN(p->qps)];

	if (qp || p->qp_count == MAX_QPS)
		return qp;
	qp = allocated(calloc(1, sizeof(*qp)));
	*qp = (struct latency_qp){ .next = *list, .qpn = qpn };
	p->qp_count++;
	return *list = qp;
}

static void grow(struct latency_qp *qp)
{
	struct latency_qp larger = *qp;

	larger.room = qp->room ? 2 * qp->room : 64;
	larger.ring = allocated(calloc(larger.room, sizeof(*larger.ring)));
	for (uint64_t i = qp->head; i != qp->tail; i++)
		*at(&larger, i) = *at(qp, i);
	free(qp->ring);
	*qp = larger;
}

/* Forgets all before it. */
static void let_go(struct latency_qp *qp, uint64_t head)
{
	qp->head = head;
	qp->sent = qp->sent < head ? head : qp->sent;
	qp->done = qp->done < head ? head : qp->done;
}

static void post(struct latency_qp *qp, const struct vb_capture_event *e)
{
	if (qp->tail - qp->head == qp->room && qp->room == MAX_OPEN)
		let_go(qp, qp->head + 1); /* something was lost */
	else if (qp->tail - qp->head == qp->room)
		grow(qp);
	*at(qp, qp->tail++) = (struct request){
		.wr_id = e->wr_id, .posted_ns = e->time_ns, .opcode = e->opcode, .bytes = e->bytes,
		.is_signaled = e->flags & IBV_SEND_SIGNALED,
	};
}

static bool has_packets(const struct request *r)
{
	return r->opcode != IBV_WR_LOCAL_INV && r->opcode != IBV_WR_BIND_MW;
}

static void leave(struct latency_qp *qp, uint32_t psn, uint64_t time_ns)
{
	uint32_t ahead = (psn - qp->last_psn) & PSN_MASK;

	if (qp->has_psn && (ahead == 0 || ahead >= PSN_HALF))
		return; /* it is sent again */
	qp->has_psn = true;
	qp->last_psn = psn;
	while (qp->sent != qp->tail && !has_packets(at(qp, qp->sent)))
		qp->sent++;
	if (qp->sent != qp->tail)
		at(qp, qp->sent++)->sent_ns = time_ns;
}

/* Of a success, the request asked for it. */
static bool may_complete(const struct request *r, const struct vb_capture_event *e)
{
	return r->wr_id == e->wr_id && (r->is_signaled || e->status != IBV_WC_SUCCESS);
}

static bool may_be_polled(const struct request *r, const struct vb_capture_event *e)
{
	return r->wr_id == e->wr_id && r->done_ns;
}

typedef bool fits_fn(const struct request *r, const struct vb_capture_event *e);

/* The first from there on that fits; `to` if there is none. */
static uint64_t seek(const struct latency_qp *qp, uint64_t from, uint64_t to, fits_fn *fits,
		     const struct vb_capture_event *e)
{
	while (from != to && !fits(at(qp, from), e))
		from++;
	return from;
}

/* Those before it that have no completion of their own are done with it, and do not count. */
static void complete(struct latency_qp *qp, const struct vb_capture_event *e)
{
	uint64_t found = seek(qp, qp->done, qp->tail, may_complete, e);

	if (found == qp->tail)
		return;
	at(qp, found)->done_ns = e->time_ns;
	at(qp, found)->failed = e->status != IBV_WC_SUCCESS;
	qp->done = found + 1;
}

/* ---- groups ---- */

/* n: sizes above 2^(n - 1) up to 2^n; all up to 64 are one. */
static uint32_t class_of(uint32_t bytes)
{
	return bytes <= 64 ? 6 : 32 - (uint32_t)__builtin_clz(bytes - 1);
}

static bool is_before(const struct latency_group *g, uint32_t opcode, uint32_t size_class)
{
	return g->opcode != opcode ? g->opcode < opcode : g->size_class < size_class;
}

static struct latency_group *take_group(struct latency_process *p, uint32_t opcode, uint32_t bytes)
{
	uint32_t size_class = class_of(bytes);
	unsigned i = 0;

	while (i < p->group_count && is_before(p->groups[i], opcode, size_class))
		i++;
	if (i < p->group_count && p->groups[i]->opcode == opcode && p->groups[i]->size_class == size_class)
		return p->groups[i];
	p->groups = allocated(realloc(p->groups, (p->group_count + 1) * sizeof(struct latency_group *)));
	memmove(p->groups + i + 1, p->groups + i, (p->group_count - i) * sizeof(struct latency_group *));
	p->group_count++;
	p->groups[i] = allocated(calloc(1, sizeof(struct latency_group)));
	p->groups[i]->opcode = opcode;
	p->groups[i]->size_class = size_class;
	p->groups[i]->least_bytes = bytes;
	return p->groups[i];
}

static uint64_t between(uint64_t from, uint64_t to) { return to > from ? to - from : 0; }

/* polled_ns 0: it never was. */
static void count(struct latency_process *p, const struct request *r, uint64_t polled_ns)
{
	struct latency_group *g = take_group(p, r->opcode, r->bytes);
	uint64_t sent_ns = r->sent_ns ? r->sent_ns : r->posted_ns;

	g->least_bytes = r->bytes < g->least_bytes ? r->bytes : g->least_bytes;
	g->most_bytes = r->bytes > g->most_bytes ? r->bytes : g->most_bytes;
	g->failed += r->failed;
	if (r->failed)
		return;
	histogram_add(&g->histogram, between(r->posted_ns, r->done_ns));
	g->sums_ns[LATENCY_QUEUE] += between(r->posted_ns, sent_ns);
	g->sums_ns[LATENCY_UNDER_WAY] += between(sent_ns, r->done_ns);
	g->sums_ns[LATENCY_UNPOLLED] += between(r->done_ns, polled_ns);
}

static void count_up_to(struct latency_process *p, struct latency_qp *qp, uint64_t end, uint64_t polled_ns)
{
	for (uint64_t i = qp->head; i != end; i++)
		if (at(qp, i)->done_ns)
			count(p, at(qp, i), polled_ns);
	let_go(qp, end);
}

static void poll(struct latency_process *p, struct latency_qp *qp, const struct vb_capture_event *e)
{
	uint64_t found = seek(qp, qp->head, qp->done, may_be_polled, e);

	if (found != qp->done)
		count_up_to(p, qp, found + 1, e->time_ns);
}

/* ---- records ---- */

void latency_begin(struct latency *l, unsigned process, const char *name)
{
	while (l->count <= process) {
		l->processes = allocated(
			realloc(l->processes, (l->count + 1) * sizeof(struct latency_process *)));
		l->processes[l->count++] = NULL;
	}
	l->processes[process] = allocated(calloc(1, sizeof(struct latency_process)));
	snprintf(l->processes[process]->name, sizeof(l->processes[process]->name), "%s", name);
}

static bool is_known(uint32_t opcode) { return opcode <= IBV_WR_ATOMIC_WRITE; }

void latency_event(struct latency *l, unsigned process, const struct vb_capture_event *e)
{
	struct latency_process *p = l->processes[process];
	bool is_post = e->event == VB_EVENT_POST_SEND;
	struct latency_qp *qp = is_post ? take_qp(p, e->qpn) : find_qp(p, e->qpn);

	if (!qp || (!is_post && (e->flags & VB_EVENT_IS_RECEIVE)))
		return;
	if (is_post && !e->status && is_known(e->opcode))
		post(qp, e);
	else if (e->event == VB_EVENT_COMPLETION)
		complete(qp, e);
	else if (e->event == VB_EVENT_POLL)
		poll(p, qp, e);
}

void latency_packet(struct latency *l, unsigned process, const struct vb_capture_packet *p,
		    const uint8_t *bytes)
{
	const struct vb_bth *bth = (const struct vb_bth *)bytes;
	struct latency_qp *qp = find_qp(l->processes[process], p->qpn);

	if (!qp || !(p->flags & VB_CAPTURE_OUT) || p->kept < VB_BTH_BYTES)
		return;
	const struct vb_opcode_row *row = vb_opcode_row(bytes[0]);
	if (row->name && row->flags.request && row->flags.first)
		leave(qp, vb_bth_psn(bth), p->time_ns);
}

void latency_end(struct latency *l, unsigned process, uint64_t lost)
{
	struct latency_process *p = l->processes[process];

	p->lost = lost;
	for (unsigned i = 0; i < VB_ARRAY_LEN(p->qps); i++)
		for (struct latency_qp *qp = p->qps[i]; qp; qp = qp->next)
			count_up_to(p, qp, qp->done, 0);
}

static void free_qps(struct latency_qp *qp)
{
	while (qp) {
		struct latency_qp *next = qp->next;
		free(qp->ring);
		free(qp);
		qp = next;
	}
}

static void free_process(struct latency_process *p)
{
	for (unsigned i = 0; i < VB_ARRAY_LEN(p->qps); i++)
		free_qps(p->qps[i]);
	for (unsigned i = 0; i < p->group_count; i++)
		free(p->groups[i]);
	free(p->groups);
	free(p);
}

void latency_free(struct latency *l)
{
	for (unsigned i = 0; i < l->count; i++)
		if (l->processes[i])
			free_process(l->processes[i]);
	free(l->processes);
	*l = (struct latency){ .count = 0 };
}
