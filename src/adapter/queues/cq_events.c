/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events of completion queues: which completions give one, and the channels that hand them out. A CQ with
 * events stands in its channel's list once, with a count; the notifier is raised while the list is not empty.
 * events_queued and events_raised (handed out) are under the channel's lock, events_acked under the CQ's
 * events_lock.
 */
#include "adapter/queues/cq_events.h"

#include <errno.h>
#include <unistd.h>

#include "adapter/progress/progress.h"
#include "base/cancel.h"
#include "base/nanoseconds.h"

/*
 * A thread that waits for a channel's descriptor by poll(2) cannot be noticed at the call. So the thread that
 * armed is looked at in these intervals, twice at least, until it is seen to wait. An event at once would
 * wake programs for nothing that mean to poll next and have no processor yet.
 */
enum { LOOK_NS = 5 * VB_NS_PER_MS };

/* ---- completions that were there when the CQ was armed ---- */

static bool has_backlog_locked(const struct vb_cq *cq)
{
	for (uint32_t i = cq->head; i != cq->tail && (int32_t)(cq->backlog.end - i) > 0; i++)
		if (vb_cq_wants_event(cq, &cq->ring[i & cq->mask]))
			return true;
	return false;
}

static void report_backlog_locked(struct vb_cq *cq)
{
	cq->armed = 0;
	cq->backlog.reported_head = cq->head;
	cq->backlog.reported_tail = cq->tail;
}

static bool take_backlog(struct vb_cq *cq)
{
	vb_lock(&cq->lock);
	bool event = has_backlog_locked(cq);
	if (event)
		report_backlog_locked(cq);
	vb_unlock(&cq->lock);
	return event;
}

/* ---- channels ---- */

int vb_channel_init(struct vb_channel *ch)
{
	pthread_mutex_init(&ch->lock, NULL);
	vb_list_init(&ch->events);
	vb_list_init(&ch->backlogs);
	atomic_init(&ch->refs, 0);
	return vb_notifier_init(&ch->notifier);
}

int vb_channel_fini(struct vb_channel *ch)
{
	if (atomic_load(&ch->refs))
		return -EBUSY;
	vb_notifier_fini(&ch->notifier);
	pthread_mutex_destroy(&ch->lock);
	return 0;
}

/* Readable while there are events. True: it became so just now. */
static bool update_notifier_locked(struct vb_channel *ch)
{
	bool has = !vb_list_is_empty(&ch->events), news = has && !vb_notifier_is_raised(&ch->notifier);
	if (news)
		vb_notifier_raise(&ch->notifier);
	else if (!has)
		vb_notifier_clear(&ch->notifier);
	return news;
}

/* Events that a leading thread has left are for all threads. Releases the lock. */
static void share_and_unlock(struct vb_channel *ch)
{
	bool news = update_notifier_locked(ch);
	pthread_mutex_unlock(&ch->lock);
	if (news)
		vb_notifier_wake(&ch->notifier);
}

static void queue_locked(struct vb_channel *ch, struct vb_cq *cq)
{
	if (!cq->events_queued++)
		vb_list_add_tail(&ch->events, &cq->event_node);
}

static void queue_backlogs_locked(struct vb_channel *ch)
{
	for (struct vb_list *node; (node = vb_list_pop(&ch->backlogs));) {
		struct vb_cq *cq = vb_container_of(node, struct vb_cq, backlog.node);
		if (take_backlog(cq))
			queue_locked(ch, cq);
	}
}

/* Round robin. */
static struct vb_cq *take_locked(struct vb_channel *ch)
{
	struct vb_list *node = vb_list_pop(&ch->events);
	if (!node)
		return NULL;
	struct vb_cq *cq = vb_container_of(node, struct vb_cq, event_node);
	if (--cq->events_queued)
		vb_list_add_tail(&ch->events, node);
	cq->events_raised++;
	return cq;
}

static struct vb_cq *take(struct vb_channel *ch, uint32_t *sequence)
{
	pthread_mutex_lock(&ch->lock);
	if (vb_list_is_empty(&ch->events))
		queue_backlogs_locked(ch);
	struct vb_cq *cq = take_locked(ch);
	*sequence = vb_notifier_sequence(&ch->notifier);
	share_and_unlock(ch);
	return cq;
}

/* ---- waiting ---- */

static bool has_event(void *arg)
{
	struct vb_channel *ch = arg;
	pthread_mutex_lock(&ch->lock);
	bool has = !vb_list_is_empty(&ch->events);
	pthread_mutex_unlock(&ch->lock);
	return has;
}

static void stop_leading(struct vb_channel *ch)
{
	atomic_store(&ch->is_led, false);
	vb_progress_lead_end();
}

static void cancelled(void *arg)
{
	struct vb_channel *ch = arg;
	stop_leading(ch);
	pthread_mutex_lock(&ch->lock);
	share_and_unlock(ch);
}

static int wait_for_event(struct vb_channel *ch, uint32_t sequence)
{
	int err = vb_notifier_may_wait(&ch->notifier);
	if (err)
		return err;
	if (!vb_progress_lead())
		return vb_notifier_wait(&ch->notifier, sequence);
	pthread_cleanup_push(cancelled, ch);
	atomic_store(&ch->is_led, true); /* before the look at the list: pairs with vb_channel_notify */
	err = vb_progress_lead_until(has_event, ch);
	pthread_cleanup_pop(0);
	stop_leading(ch);
	return err;
}

int vb_channel_get(struct vb_channel *ch, struct vb_cq **cq)
{
	uint32_t sequence;
	int err = 0;
	while (!err && !(*cq = take(ch, &sequence)))
		err = wait_for_event(ch, sequence);
	return err;
}

/* ---- events ---- */

/* The thread that leads for the channel takes the event itself: nobody need be woken. */
void vb_channel_notify(struct vb_channel *ch, struct vb_cq *cq)
{
	bool is_mine = vb_progress_leads_for(ch);
	pthread_mutex_lock(&ch->lock);
	queue_locked(ch, cq);
	if (!is_mine)
		vb_notifier_raise(&ch->notifier);
	pthread_mutex_unlock(&ch->lock);
	if (is_mine)
		return;
	vb_notifier_wake(&ch->notifier);
	if (atomic_load(&ch->is_led))
		vb_loop_wake_waiter();
}

/* The next thread that waits checks whether they are still there. */
static void note_backlog(struct vb_channel *ch, struct vb_cq *cq)
{
	pthread_mutex_lock(&ch->lock);
	if (vb_list_is_empty(&cq->backlog.node))
		vb_list_add_tail(&ch->backlogs, &cq->backlog.node);
	pthread_mutex_unlock(&ch->lock);
}

void vb_channel_forget(struct vb_channel *ch, struct vb_cq *cq)
{
	pthread_mutex_lock(&ch->lock);
	vb_list_del(&cq->backlog.node);
	vb_list_del(&cq->event_node);
	cq->events_queued = 0;
	uint32_t handed_out = cq->events_raised;
	share_and_unlock(ch);

	pthread_mutex_lock(&cq->events_lock);
	while ((int32_t)(handed_out - cq->events_acked) > 0)
		vb_cond_wait(&cq->events_cond, &cq->events_lock);
	pthread_mutex_unlock(&cq->events_lock);
}

void vb_cq_ack_events(struct vb_cq *cq, unsigned n)
{
	pthread_mutex_lock(&cq->events_lock);
	cq->events_acked += n;
	pthread_cond_broadcast(&cq->events_cond);
	pthread_mutex_unlock(&cq->events_lock);
}

/* ---- arming ---- */

static void backlog_fired(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_cq *cq = timer->arg;
	vb_lock(&cq->lock);
	uint32_t times = cq->backlog.times;
	struct vb_thread_looks looks = cq->backlog.looks;
	bool is_due = has_backlog_locked(cq) && now_ns >= cq->backlog.since_ns + LOOK_NS;
	vb_unlock(&cq->lock);
	bool has_moved_on = is_due && vb_thread_has_moved_on(&looks);
	vb_lock(&cq->lock);
	bool is_same = cq->backlog.times == times, has_backlog = has_backlog_locked(cq),
	     event = has_backlog && is_same && has_moved_on;
	if (is_due && is_same)
		cq->backlog.looks = looks;
	if (event)
		report_backlog_locked(cq);
	cq->backlog.is_timed = has_backlog && !event;
	vb_unlock(&cq->lock);
	if (has_backlog && !event)
		vb_timer_set(timer, now_ns + LOOK_NS);
	if (event)
		vb_channel_notify(cq->channel, cq);
}

/*
 * Records an arming that found completions. vb_channel_get or backlog_fired later finds out whether the
 * program waits. True: the caller sets the timer.
 */
static bool note_backlog_locked(struct vb_cq *cq)
{
	bool is_new = !cq->backlog.is_timed;
	uintptr_t thread = vb_lock_self();
	pid_t tid = is_new || cq->backlog.thread != thread ? gettid() : cq->backlog.looks.tid;
	cq->backlog.looks = (struct vb_thread_looks){ .tid = tid };
	cq->backlog.thread = thread;
	cq->backlog.times++;
	cq->backlog.end = cq->tail;
	cq->backlog.since_ns = vb_now_ns();
	cq->backlog.is_timed = true;
	return is_new;
}

int vb_cq_arm(struct vb_cq *cq, bool solicited_only)
{
	vb_progress_before_arming();
	vb_lock(&cq->lock);
	if (cq->armed != 1)
		cq->armed = solicited_only ? 2 : 1;
	bool has_some = cq->channel && cq->head != cq->tail,
	     starts_timer = has_some && note_backlog_locked(cq),
	     is_reported = cq->backlog.reported_head == cq->head && cq->backlog.reported_tail == cq->tail;
	uint64_t since_ns = cq->backlog.since_ns;
	vb_unlock(&cq->lock);
	if (has_some && !is_reported)
		note_backlog(cq->channel, cq);
	if (starts_timer)
		vb_timer_set(&cq->backlog.timer, since_ns + LOOK_NS);
	vb_progress_arm();
	return 0;
}

/* ---- moderation ---- */

bool vb_cq_event_is_due(struct vb_cq *cq)
{
	if (++cq->held >= cq->moderate_count) {
		cq->held = 0;
		return true;
	}
	if (cq->held == 1)
		vb_timer_set(&cq->moderation, vb_now_ns() + cq->moderate_ns);
	return false;
}

/* The oldest completion has waited long enough. */
static void moderation_fired(struct vb_timer *timer, uint64_t now_ns)
{
	struct vb_cq *cq = timer->arg;
	vb_lock(&cq->lock);
	bool event = cq->held && cq->armed;
	cq->held = 0;
	if (event)
		cq->armed = 0;
	vb_unlock(&cq->lock);
	if (event && cq->channel)
		vb_channel_notify(cq->channel, cq);
}

/* Completions that wait give their event now: the old terms end. */
void vb_cq_moderate(struct vb_cq *cq, uint32_t count, uint64_t period_ns)
{
	vb_lock(&cq->lock);
	cq->moderate_count = count;
	cq->moderate_ns = period_ns;
	vb_unlock(&cq->lock);
	moderation_fired(&cq->moderation, 0);
}

/* ---- a CQ's part ---- */

void vb_cq_events_init(struct vb_cq *cq)
{
	vb_list_init(&cq->event_node);
	cq->moderation = (struct vb_timer){ .fire = moderation_fired, .arg = cq };
	cq->backlog.timer = (struct vb_timer){ .fire = backlog_fired, .arg = cq };
	vb_list_init(&cq->backlog.node);
	pthread_mutex_init(&cq->events_lock, NULL);
	pthread_cond_init(&cq->events_cond, NULL);
}

void vb_cq_events_fini(struct vb_cq *cq)
{
	vb_timer_cancel(&cq->moderation);
	vb_timer_cancel(&cq->backlog.timer);
	if (cq->channel)
		vb_channel_forget(cq->channel, cq);
	pthread_cond_destroy(&cq->events_cond);
	pthread_mutex_destroy(&cq->events_lock);
}
