/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent: the one place where the CM machine meets time, memory and the wire. It runs in whichever thread
 * calls or, for messages, timers and dead peers, in the progress thread; always under the lock.
 */
#ifndef VB_RDMACM_AGENT_H
#define VB_RDMACM_AGENT_H

#include "rdmacm/agent/channel.h"

/* The machine. NULL: the agent is not open. */
struct vb_cm_table *vb_cma_table_locked(void);
/* After a call of the machine: delivers its events, sends its MADs, sets the timer. */
void vb_cma_agent_run_locked(const struct vb_cm_out *out);
/*
 * An endpoint for vb_cm_connect, vb_cm_request: a fresh comm id of this process's first slot. peer: where
 * messages go.
 */
struct vb_cm_endpoint vb_cma_endpoint_locked(void *user, const struct vb_cm_route *peer);
/*
 * Gives up the lock now and then: the process ends. Waits a short while for peers on the network to answer
 * the DREQs that they got, and repeats these, because nobody will do so later.
 */
void vb_cma_agent_finish_locked(void);
/*
 * Calls that send a connection's last message end with this, without the lock: the program may leave by
 * _exit next, and the message must be out by then (ud/gsi.h).
 */
void vb_cma_agent_flush(void);

/* Makes the machine and subscribes to its inputs. arrived: gets messages for QP 1. 0 or -ENOMEM. */
int vb_cma_agent_open_locked(vb_inbox_handler *arrived);
/* In a forked child: the machine, its timer and its messages are the parent's. */
void vb_cma_agent_forget(void);

/* An event of the machine becomes one of an id's (deliver.c). */
void vb_cma_deliver_locked(const struct vb_cm_event *event);

#endif
