/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The processes of this network namespace that use verbatim, and what those of the same user report of
 * themselves (host/inspect.h). A process is found by the name on which it listens, and the kernel vouches
 * for its pid and user. All are asked at once, and none is waited for longer than `timeout_ms`. The verbatim
 * command uses it, and the answers to rdma(8) and about counters, which may come from two threads of a
 * program: each has processes of its own.
 */
#ifndef VB_ANSWERS_ASK_H
#define VB_ANSWERS_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "host/inspect.h"

struct process {
	uint32_t slot;
	pid_t pid;             /* 0: in another pid namespace */
	uid_t uid;
	char name[64];         /* of its program, as vb_clean_text has it; "?" if unknown */
	char run_state;        /* as in /proc/PID/stat; '?' */
	bool is_foreign;       /* another user's, or of other rights: this process may not ask it */
	char trouble[96];      /* why it has not answered, or not fully; empty: it has */
	int fd, memfd;         /* -1: none */
	bool waits;            /* for its answer */
	uint8_t *records;
	size_t bytes;
};

struct processes {
	struct process *list;
	unsigned count;
	bool is_short;         /* memory or descriptors were out: something is missing */
	bool keeps;            /* what processes_ask has used, for the next time */
};

/* Connects to all. For those that it may not ask, `trouble` says why. */
void processes_find(struct processes *processes);
/*
 * The same for a caller that asks repeatedly. *processes is zero at first; the caller keeps it from call to
 * call. A process that has answered, and still runs, is asked the way that it was asked before.
 */
void processes_refresh(struct processes *processes);
/* Asks for records of these kinds (bit n: kind n). */
void processes_ask(struct processes *processes, uint32_t kinds, unsigned timeout_ms);
void processes_free(struct processes *processes);

/*
 * Tells why this process may not deal with another one: that one is another user's or has other rights
 * (host/ipc/rights.h). NULL: it may. socket: a connection to the other, or -1. *lack: a negative errno if
 * this process lacks something and cannot tell.
 */
const char *process_why_not(const struct ucred *who, int socket, int *lack);

/* Sends a question with a descriptor; 0 or a negative errno. */
int process_question(const struct process *p, const struct vb_question *q, int fd);

/*
 * The next record behind *at (0 at first) of a kind, or NULL. What the process left out of it is
 * zero. VB_RECORD_MAX bytes can be read, until the thread's next call.
 */
const void *process_next(const struct process *p, size_t *at, enum vb_record_kind kind);
unsigned process_count(const struct process *p, enum vb_record_kind kind);

/* The process that reports a slot as its own; NULL: none does. */
const struct process *processes_of_slot(const struct processes *processes, uint32_t slot);

#endif
