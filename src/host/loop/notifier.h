/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A descriptor that signals "the queue is not empty". Consumers may poll(2) it, make it non-blocking, or
 * block. It is readable from the first raise after a clear on. Each raise is a new edge for edge-triggered
 * pollers.
 *
 * The owner guards its queue with a lock of its own, and calls raise and clear under it. After a raise it
 * calls wake, best without the lock, which the woken thread wants. A consumer that found the queue empty
 * reads vb_notifier_sequence under the lock, releases the lock and waits: so it misses no raise.
 */
#ifndef VB_HOST_NOTIFIER_H
#define VB_HOST_NOTIFIER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct vb_notifier {
	int fd;
	bool raised;
	_Atomic uint32_t sequence; /* raises so far: the futex that waiters sleep on */
	_Atomic uint32_t waiters;
};

/* 0 or -EMFILE, -ENFILE, -ENOMEM. */
VB_EXPORT int vb_notifier_init(struct vb_notifier *n);
VB_EXPORT void vb_notifier_fini(struct vb_notifier *n);

VB_EXPORT void vb_notifier_raise(struct vb_notifier *n);
VB_EXPORT void vb_notifier_wake(struct vb_notifier *n);
VB_EXPORT void vb_notifier_clear(struct vb_notifier *n);

static inline uint32_t vb_notifier_sequence(struct vb_notifier *n) { return n->sequence; }

static inline bool vb_notifier_is_raised(const struct vb_notifier *n) { return n->raised; }

/* -EAGAIN: the program made the descriptor O_NONBLOCK. */
VB_EXPORT int vb_notifier_may_wait(const struct vb_notifier *n);
/*
 * Sleeps until there was a raise after `sequence` was read. 0; -EAGAIN at once if it may not wait; -EINTR
 * after a signal handler without SA_RESTART, as read(2). A cancellation point.
 */
VB_EXPORT int vb_notifier_wait(struct vb_notifier *n, uint32_t sequence);

#endif
