/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/outbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SOON_NS = 50 * VB_NS_PER_US, RARELY_NS = 2 * VB_NS_PER_MS };

struct waiting {
	struct vb_list node;
	uint64_t since_ns;
	char message[];
};

/* Listed while messages wait for it. */
struct receiver {
	struct vb_list node;
	struct vb_list messages; /* oldest first */
	uint64_t next_ns, pause_ns;
	uint64_t took_ns;        /* when it last accepted one, or began to have no room */
	uint64_t absent_ns;      /* since when it is absent or unready; 0: it is neither */
	uint64_t unready_ns;     /* when it was last found unready */
};

void vb_outbox_init(struct vb_outbox *o, const struct vb_outbox_type *type)
{
	o->type = type;
	o->waiting = 0;
	vb_list_init(&o->receivers);
}

static struct waiting *first_of(const struct receiver *r)
{
	return vb_container_of(r->messages.next, struct waiting, node);
}

static void drop_first(struct vb_outbox *o, struct receiver *r)
{
	struct waiting *w = first_of(r);

	vb_list_del(&w->node);
	free(w);
	o->waiting--;
}

static void drop_all(struct vb_outbox *o, struct receiver *r)
{
	while (!vb_list_is_empty(&r->messages))
		drop_first(o, r);
}

static void forget(struct receiver *r)
{
	vb_list_del(&r->node);
	free(r);
}

void vb_outbox_clear(struct vb_outbox *o)
{
	struct receiver *r;

	vb_list_for_each(r, &o->receivers, node) {
		drop_all(o, r);
		forget(r);
	}
}

/* ---- waiting ---- */

static struct receiver *find(const struct vb_outbox *o, const void *message)
{
	struct receiver *r;

	vb_list_for_each(r, &o->receivers, node)
		if (!vb_list_is_empty(&r->messages) && o->type->is_for_same(first_of(r)->message, message))
			return r;
	return NULL;
}

bool vb_outbox_waits_for(const struct vb_outbox *o, const void *message)
{
	return find(o, message) != NULL;
}

static bool is_absence(int err) { return err == -ECONNREFUSED || err == -EPERM; }

static void note_absence(struct receiver *r, int err, uint64_t now_ns)
{
	if (!r->absent_ns)
		r->absent_ns = now_ns;
	if (err == -EPERM)
		r->unready_ns = now_ns;
}

static struct receiver *receiver_new(struct vb_outbox *o, int err, uint64_t now_ns)
{
	struct receiver *r = malloc(sizeof(*r));

	if (!r)
		return NULL;
	*r = (struct receiver){ .next_ns = now_ns + SOON_NS, .pause_ns = SOON_NS, .took_ns = now_ns };
	if (is_absence(err))
		note_absence(r, err, now_ns);
	vb_list_init(&r->messages);
	vb_list_add_tail(&o->receivers, &r->node);
	return r;
}

/* True: it waits behind the others. */
static bool append(struct vb_outbox *o, struct receiver *r, const void *message, uint64_t now_ns)
{
	struct waiting *w =
		o->waiting < o->type->max_waiting ? malloc(sizeof(*w) + o->type->message_bytes) : NULL;

	if (!w)
		return false;
	memcpy(w->message, message, o->type->message_bytes);
	w->since_ns = now_ns;
	vb_list_add_tail(&r->messages, &w->node);
	o->waiting++;
	return true;
}

static void wait(struct vb_outbox *o, const void *message, int err, uint64_t now_ns)
{
	struct receiver *r = receiver_new(o, err, now_ns);

	if (r && !append(o, r, message, now_ns))
		forget(r);
}

void vb_outbox_send(struct vb_outbox *o, const void *message, uint64_t now_ns)
{
	struct receiver *r = find(o, message);

	if (r) {
		append(o, r, message, now_ns);
		return;
	}
	int err = o->type->send(message);
	if (is_absence(err) && !o->type->waits_if_absent(message))
		o->type->absent(message);
	else if (err == -EAGAIN || is_absence(err))
		wait(o, message, err, now_ns);
}

/* ---- trying again ---- */

uint64_t vb_outbox_deadline(const struct vb_outbox *o)
{
	uint64_t deadline = VB_OUTBOX_NEVER;
	struct receiver *r;

	vb_list_for_each(r, &o->receivers, node)
		deadline = vb_min_u64(deadline, r->next_ns);
	return deadline;
}

/* Nobody is there for the first message. */
static void give_up_first(struct vb_outbox *o, struct receiver *r)
{
	struct waiting *w = first_of(r);

	vb_list_del(&w->node);
	o->waiting--;
	o->type->absent(w->message);
	free(w);
}

static bool is_worth_waiting(const struct vb_outbox *o, const struct receiver *r, int err, uint64_t now_ns)
{
	const struct waiting *w = first_of(r);
	uint64_t until_ns = err == -EPERM ? r->absent_ns + VB_OUTBOX_UNREADY_NS :
					    vb_max_u64(w->since_ns, r->absent_ns) + VB_OUTBOX_ABSENT_NS;

	return o->type->waits_if_absent(w->message) && now_ns < until_ns;
}

/* A message may have come after now_ns. */
static bool is_too_old(const struct vb_outbox *o, const struct receiver *r, uint64_t now_ns)
{
	uint64_t from_ns = vb_max_u64(first_of(r)->since_ns, r->unready_ns);

	return o->type->max_age_ns && from_ns + o->type->max_age_ns < now_ns;
}

/*
 * Reports messages as absent that became too old after their receiver was found to be absent: an attempt in
 * time would have done so.
 */
static void drop_old(struct vb_outbox *o, struct receiver *r, uint64_t now_ns)
{
	while (!vb_list_is_empty(&r->messages) && is_too_old(o, r, now_ns)) {
		if (r->absent_ns)
			give_up_first(o, r);
		else
			drop_first(o, r);
	}
}

/* Returns why it stopped; 0: no message waits any more. */
static int send_waiting(struct vb_outbox *o, struct receiver *r, uint64_t now_ns)
{
	int err = 0;

	while (!vb_list_is_empty(&r->messages)) {
		if (!is_absence(err)) /* one refusal stands for all that wait */
			err = o->type->send(first_of(r)->message);
		if (err == -EAGAIN)
			return err;
		if (!is_absence(err)) {
			drop_first(o, r);
			r->took_ns = now_ns;
			r->absent_ns = 0;
			continue;
		}
		note_absence(r, err, now_ns);
		if (is_worth_waiting(o, r, err, now_ns))
			return err;
		give_up_first(o, r);
	}
	return 0;
}

static void try_receiver(struct vb_outbox *o, struct receiver *r, uint64_t now_ns)
{
	drop_old(o, r, now_ns);
	int err = send_waiting(o, r, now_ns);
	if (err == -EAGAIN)
		r->absent_ns = 0;
	if (err == -EAGAIN && now_ns - r->took_ns > VB_OUTBOX_FULL_NS)
		drop_all(o, r);
	r->pause_ns = r->took_ns == now_ns ? SOON_NS : vb_min_u64(2 * r->pause_ns, RARELY_NS);
	r->next_ns = now_ns + r->pause_ns;
	if (vb_list_is_empty(&r->messages))
		forget(r);
}

void vb_outbox_try(struct vb_outbox *o, uint64_t now_ns)
{
	struct receiver *r;

	vb_list_for_each(r, &o->receivers, node)
		if (r->next_ns <= now_ns)
			try_receiver(o, r, now_ns);
}
