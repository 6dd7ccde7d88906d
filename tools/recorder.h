/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures processes into a pcapng file. Each gets a ring of shared memory (host/inspect.h), which it fills
 * and this end empties; packets and events of all rings are written in the order of their times, once no
 * process can add an earlier one. What a process writes is hostile: a ring that makes no sense ends that
 * process's part, and a process that never finishes a note makes the rest ten seconds late.
 */
#ifndef VB_TOOLS_RECORDER_H
#define VB_TOOLS_RECORDER_H

#include <stdbool.h>
#include <stdio.h>

#include "answers/ask.h"
#include "pcapng.h"

struct recorder_options {
	const char *path;               /* "-": standard output */
	const char *named;              /* the file in messages; NULL: by its path */
	struct vb_capture_filter filter;
	bool in, out;                   /* which directions are written */
	uint64_t ring_bytes;            /* a power of two */
	uint64_t max_packets;           /* 0: no limit */
	struct latency *latency;        /* is told all records; or NULL */
};

struct recorder;

/* Opens the file; NULL with a message. */
struct recorder *recorder_open(const struct recorder_options *options);
/*
 * Captures a process that is at the other end of fd, which becomes the recorder's; of *p, the pid, the slot
 * and the name count. False with a message in `why`: it cannot be. That it refuses shows later.
 */
bool recorder_add(struct recorder *r, int fd, const struct process *p, const char **why);
/*
 * Is the process captured, or would it be in vain to ask it again? Those of other pid namespaces have no pid
 * here: a slot tells them apart.
 */
bool recorder_has(const struct recorder *r, const struct process *p);
/* Was any process? */
bool recorder_captured(const struct recorder *r);
/*
 * Waits up to so many ms for news, or for fd (-1: none) to be readable, and writes what has come. True:
 * enough has come.
 */
bool recorder_step(struct recorder *r, int fd, int wait_ms);
unsigned recorder_live(const struct recorder *r);
/* How many of these have not answered yet. */
unsigned recorder_asked(const struct recorder *r);
/* How many packets there are in the file. */
uint64_t recorder_written(const struct recorder *r);
/*
 * Writes the rest and closes the file; tells on standard error how much came, unless quiet. 0, or 1 with a
 * message.
 */
int recorder_close(struct recorder *r, bool quiet);

/* Takes an option of the filter. False after a message. */
bool recorder_option(struct recorder_options *options, const char *name, const char *value);
void recorder_defaults(struct recorder_options *options);
/* Of packets, the first one of each request, without its payload: what latencies need. */
void recorder_keep_beginnings(struct recorder_options *options);

/* What becomes of the capture of a program that is run. */
struct captured_run {
	struct recorder_options options; /* path NULL: no file of its own */
	const char *page;                /* timeline; or NULL */
	bool wants_latency;
	const char *picture;             /* of latencies; or NULL */
};

/*
 * Runs a program, which `become` turns a child into, and captures it and what it starts. Gives its exit
 * status (run_captured.c).
 */
int run_captured(const struct captured_run *run, char **argv, int (*become)(char **argv));

#endif
