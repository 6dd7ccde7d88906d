/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/fault_injection.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/device/device.h"
#include "adapter/progress/progress.h"
#include "adapter/progress/qpn.h"
#include "adapter/queues/queue.h"
#include "base/lock.h"
#include "base/log.h"
#include "host/memory/memory.h"

bool vb_faults_on, vb_faults_on_wire;

static bool is_bad;                 /* the expression cannot be read */
static char text[VB_FAULT_TEXT_BYTES + 1];
static struct vb_fault_plan plan;
static struct vb_fault_state *state; /* under lock */
static struct vb_lock lock;

/* ---- the clock ---- */

static _Atomic uint64_t began_ns; /* 0: no device was opened yet */

static uint64_t elapsed(void)
{
	uint64_t began = atomic_load(&began_ns);
	return began ? vb_now_ns() - began : 0;
}

/* ---- asking ---- */

static void log_bite(const struct vb_fault_bite *bite, const struct vb_fault_subject *s)
{
	const struct vb_fault_rule *r = bite->rule;
	unsigned long long count = bite->count;
	const char *again = s->is_repeat ? ", sent again" : "";
	if (s->qp)
		vb_explain("fault", "%u (%.*s) at number %llu of queue pair %u%s", bite->number,
			   (int)r->bytes, text + r->at, count, s->qp, again);
	else
		vb_explain("fault", "%u (%.*s) at number %llu", bite->number, (int)r->bytes, text + r->at,
			   count);
}

unsigned vb_fault_ask(struct vb_fault_subject *subject, struct vb_fault_bite bites[VB_FAULT_RULES])
{
	unsigned cursor = 0, n = 0;
	if (is_bad)
		return 0;
	subject->elapsed_ns = elapsed();
	vb_lock(&lock);
	while (n < VB_FAULT_RULES && vb_fault_next(&plan, state, subject, &cursor, &bites[n]))
		n++;
	vb_unlock(&lock);
	for (unsigned i = 0; i < n; i++)
		log_bite(&bites[i], subject);
	return n;
}

bool vb_fault_has(uint32_t kinds) { return vb_fault_plan_has(&plan, kinds); }

uint32_t vb_fault_qp(uint32_t qpn)
{
	enum { SPECIAL = 2, GROUPS = 0xffffff }; /* QP 0 and 1 are nobody's */
	return qpn < SPECIAL || qpn == GROUPS ? 0 : vb_qpn_place(qpn) + 1;
}

bool vb_fault_repeats(enum vb_fault_direction direction, bool answers, uint32_t qp, uint32_t psn)
{
	vb_lock(&lock);
	bool repeats = vb_fault_is_repeat(state, direction, answers, qp, psn);
	vb_unlock(&lock);
	return repeats;
}

void vb_fault_forget_psns(uint32_t qpn)
{
	uint32_t qp = vb_fault_qp(qpn);
	vb_lock(&lock);
	for (unsigned i = 0; i < 4; i++)
		state->psn[i / 2][i % 2][qp] = 0;
	vb_unlock(&lock);
}

/* ---- what is done to ports, devices and peers ---- */

static _Atomic uint32_t vanished;      /* rules whose peers have gone, by their numbers from 0 on */
static _Atomic uint64_t frozen_until;
static atomic_bool is_dead;            /* DEVICE_FATAL */
static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER; /* held while links follow the rules */
static struct action {
	struct vb_timer timer;
	atomic_bool is_down;           /* of a link: it waits for its end, if that comes */
	atomic_bool is_missed;         /* that its device is not there was said */
} actions[VB_FAULT_RULES];

uint64_t vb_fault_frozen_until(void) { return atomic_load(&frozen_until); }

static bool has_vanished(const struct in6_addr *peer)
{
	for (uint32_t rules = atomic_load(&vanished); rules; rules &= rules - 1) {
		const struct vb_fault_rule *r = &plan.rules[__builtin_ctz(rules)];
		if (!r->has_peer || memcmp(peer, r->peer, sizeof(*peer)) == 0)
			return true;
	}
	return false;
}

bool vb_fault_is_cut(const struct in6_addr *own, const struct in6_addr *peer)
{
	return has_vanished(peer) || vb_device_is_cut(own);
}

/* A device that has failed answers nothing more: its queue pairs are in the error state. */
static void break_qps(const char *device)
{
	struct vb_qp *qp;
	uint64_t cursor = 0;
	while (vb_qpn_next(&cursor, &qp)) {
		if (!qp)
			continue;
		if (!*device || strcmp(qp->ctx->device->name, device) == 0)
			vb_qp_break(qp, -1);
		vb_qp_unref(qp);
	}
}

/* Whoever hears of a failed device finds it so. */
static void raise_event(const struct vb_fault_rule *r)
{
	bool is_fatal = r->value == IBV_EVENT_DEVICE_FATAL;
	if (is_fatal && !*r->device)
		atomic_store(&is_dead, true);
	vb_device_raise(r->device, (enum ibv_event_type)r->value);
	if (is_fatal)
		break_qps(r->device);
}

/* A further freeze does not end an earlier one. */
static void freeze_until(uint64_t end_ns)
{
	uint64_t until = atomic_load(&frozen_until);
	while (until < end_ns && !atomic_compare_exchange_weak(&frozen_until, &until, end_ns))
		;
}

/* Whoever asks for it is told that it cannot be, as with an expression that cannot be read. */
static void look_for_device(const struct vb_fault_rule *r)
{
	unsigned i = (unsigned)(r - plan.rules);
	if (!*r->device || vb_device_is_there(r->device) || atomic_exchange(&actions[i].is_missed, true))
		return;
	vb_explain_line("fault", "%u (%.*s): there is no device %s", i + 1, (int)r->bytes, text + r->at,
			r->device);
}

/* A link is down as long as any rule says so. */
static void cut_links(void)
{
	const char *names[VB_FAULT_RULES];
	unsigned n = 0;
	pthread_mutex_lock(&links_lock);
	for (unsigned i = 0; i < plan.count; i++)
		if (atomic_load(&actions[i].is_down))
			names[n++] = plan.rules[i].device;
	vb_device_cut(names, n);
	pthread_mutex_unlock(&links_lock);
}

static void act(const struct vb_fault_rule *r)
{
	struct action *a = &actions[r - plan.rules];
	look_for_device(r);
	switch ((enum vb_fault_kind)r->kind) {
	case VB_FAULT_FREEZE:
		freeze_until(vb_now_ns() + r->time_ns);
		break;
	case VB_FAULT_LINK:
		atomic_store(&a->is_down, true);
		cut_links();
		if (r->time_ns != VB_FAULT_FOREVER)
			vb_timer_set(&a->timer, vb_now_ns() + r->time_ns);
		break;
	case VB_FAULT_EVENT:
		raise_event(r);
		break;
	case VB_FAULT_VANISH:
		atomic_fetch_or(&vanished, 1u << (r - plan.rules));
		break;
	case VB_FAULT_DROP:
	case VB_FAULT_DELAY:
	case VB_FAULT_DUPLICATE:
	case VB_FAULT_REORDER:
	case VB_FAULT_CORRUPT:
	case VB_FAULT_STALL:
	case VB_FAULT_FAIL:
	case VB_FAULT_COMPLETE:
	case VB_FAULT_RNR:
	case VB_FAULT_LOSE:
	case VB_FAULT_REFUSE:
	case VB_FAULT_NKINDS:
		break; /* no actions */
	}
}

static void start(const struct vb_fault_rule *r)
{
	vb_explain("fault", "%u (%.*s)", (unsigned)(r - plan.rules) + 1, (int)r->bytes, text + r->at);
	act(r);
}

/* The rule's time has come, or its end. What calls trigger has only an end. */
static void timer_fired(struct vb_timer *timer, uint64_t now_ns)
{
	struct action *a = timer->arg;
	struct vb_fault_rule *r = &plan.rules[a - actions];
	if (atomic_exchange(&a->is_down, false)) {
		vb_explain("fault", "%u (%.*s) is over", (unsigned)(a - actions) + 1, (int)r->bytes,
			   text + r->at);
		cut_links();
	} else if (!r->verb) {
		start(r);
	}
}

void vb_fault_begin(void)
{
	uint64_t none = 0, now = vb_now_ns();
	if (is_bad || !atomic_compare_exchange_strong(&began_ns, &none, now))
		return;
	for (unsigned i = 0; i < plan.count; i++) {
		struct vb_fault_rule *r = &plan.rules[i];
		if (vb_fault_site_of(r->kind) != VB_FAULT_TRIGGER || r->verb)
			continue;
		if (r->has_after)
			vb_timer_set(&actions[i].timer, now + r->after_ns);
		else
			start(r);
	}
}

/* ---- calls ---- */

/* A device that has failed can only be closed and its objects destroyed. */
static bool needs_device(const char *call)
{
	static const char *const words[] = { "ibv_advise", "ibv_alloc", "ibv_attach", "ibv_create",
					     "ibv_modify", "ibv_open",  "ibv_post",   "ibv_query",
					     "ibv_reg",    "ibv_rereg", "ibv_resize", "ibv_wr" };
	for (size_t i = 0; i < VB_ARRAY_LEN(words); i++)
		if (strncmp(call, words[i], strlen(words[i])) == 0)
			return true;
	return false;
}

static bool is_of_qp(const char *call)
{
	const struct vb_fault_verb *verb = vb_fault_verb_find(call, strlen(call));
	return verb && verb->of_qp;
}

int vb_fault_meet(const char *call, uint32_t qpn)
{
	struct vb_fault_bite bites[VB_FAULT_RULES];
	struct vb_fault_subject subject = { .site = VB_FAULT_TRIGGER,
					    .verb = call,
					    .qp = is_of_qp(call) ? vb_fault_qp(qpn) : 0 };
	int err = 0;
	if (is_bad)
		return -EINVAL;
	unsigned n = vb_fault_ask(&subject, bites);
	for (unsigned i = 0; i < n; i++)
		act(bites[i].rule);
	subject.site = VB_FAULT_CALL;
	n = vb_fault_ask(&subject, bites);
	for (unsigned i = 0; i < n; i++) {
		if (bites[i].rule->kind == VB_FAULT_STALL)
			vb_sleep_ns(bites[i].rule->time_ns);
		else if (!err)
			err = -bites[i].rule->value;
	}
	if (!err && atomic_load(&is_dead) && needs_device(call))
		err = -EIO;
	return err;
}

/* ---- completions ---- */

/* Unreliable services stop at a failed send and go on receiving. sq.lock is held. */
static void stop_sends_locked(struct vb_qp *qp)
{
	if (atomic_load(&qp->state) != IBV_QPS_RTS)
		return;
	if (qp->sq.head != qp->sq.tail)
		vb_qp_fail_sends(qp, IBV_WC_WR_FLUSH_ERR, NULL);
	else
		atomic_store(&qp->state, IBV_QPS_SQE);
}

static bool is_unreliable(const struct vb_qp *qp)
{
	return qp->type == IBV_QPT_UC || qp->type == IBV_QPT_UD || qp->type == IBV_QPT_RAW_PACKET;
}

void vb_qp_fail_queue(uint32_t qpn, bool is_recv)
{
	struct vb_qp *qp = vb_qpn_get(qpn);
	if (!qp)
		return;
	if (!is_recv && is_unreliable(qp)) {
		vb_lock(&qp->sq.lock);
		stop_sends_locked(qp);
		vb_unlock(&qp->sq.lock);
	} else {
		vb_qp_break(qp, -1);
	}
	vb_qp_unref(qp);
}

void vb_cq_flush(struct vb_cq *cq, uint32_t qpn, bool is_recv)
{
	vb_lock(&cq->lock);
	for (uint32_t i = cq->head; i != cq->tail; i++) {
		struct vb_cqe *e = &cq->ring[i & cq->mask];
		if (e->qp_num == qpn && e->is_recv == is_recv && e->status == IBV_WC_SUCCESS)
			e->status = IBV_WC_WR_FLUSH_ERR;
	}
	vb_unlock(&cq->lock);
}

/* ---- the setting ---- */

/* "@FILE" is what the file holds. False: it cannot be had, and that was said. */
static bool take_text(const char *setting)
{
	size_t bytes = strlen(setting);
	int err = 0;
	if (*setting == '@')
		err = vb_file_read(setting + 1, text, sizeof(text));
	else if (bytes < sizeof(text))
		memcpy(text, setting, bytes + 1);
	else
		err = -EFBIG;
	if (err)
		vb_explain_line("VERBATIM_FAULTS", "%s: %s; so every call fails",
				*setting == '@' ? setting + 1 : "the expression", strerror(-err));
	return !err;
}

static bool parse(void)
{
	struct vb_fault_error error;
	if (vb_fault_parse(text, strlen(text), &plan, &error) == 0)
		return true;
	vb_explain_line(
		"VERBATIM_FAULTS",
		"at character %zu ('%.*s'): %s; so every call fails (verbatim faults EXPRESSION checks it)",
		error.at + 1, (int)error.bytes, text + error.at, error.why);
	return false;
}

static void apply_plan(void)
{
	state = calloc(1, sizeof(*state));
	is_bad = !state;
	vb_faults_on_wire = vb_fault_plan_has(&plan, VB_FAULT_WIRE_KINDS);
	if (vb_faults_on_wire)
		vb_local_turn_off();
	for (unsigned i = 0; i < plan.count; i++)
		actions[i].timer = (struct vb_timer){ .fire = timer_fired, .arg = &actions[i] };
}

/* The child's first device is its beginning. */
static void forget(void)
{
	vb_lock_init(&lock);
	pthread_mutex_init(&links_lock, NULL);
	if (state)
		memset(state, 0, sizeof(*state));
	atomic_store(&began_ns, 0);
	atomic_store(&vanished, 0);
	atomic_store(&frozen_until, 0);
	atomic_store(&is_dead, false);
	for (unsigned i = 0; i < plan.count; i++)
		actions[i] = (struct action){ .timer = { .fire = timer_fired, .arg = &actions[i] } };
}

__attribute__((constructor)) static void read_setting(void)
{
	const char *setting = getenv("VERBATIM_FAULTS");
	if (!setting || !*setting)
		return;
	vb_faults_on = true;
	is_bad = !take_text(setting) || !parse();
	if (is_bad)
		return;
	apply_plan();
	vb_host_at_fork(forget);
}
