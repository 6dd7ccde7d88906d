/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records as rows. Names of the interface's constants are those of infiniband/verbs.h, without their
 * prefixes.
 */
#ifndef VB_TOOLS_DESCRIBE_H
#define VB_TOOLS_DESCRIBE_H

#include "answers/ask.h"
#include "row.h"

void describe_process(struct row *row, const struct process *p);
/* Of each kind's record; the others help to name peers. */
void describe_record(struct row *row, enum vb_record_kind kind, const void *record,
		     const struct processes *all);
void describe_counters(struct row *row, const struct process *p);

const char *qp_type_name(unsigned type);
const char *qp_state_name(unsigned state);
/* PID and program of a peer that shares memory with it; empty: it is none, or unknown. */
void peer_name(const struct vb_record_qp *r, const struct processes *all, char name[FIELD_TEXT]);
/* The peer's address; empty: none. */
const char *address_text(const uint8_t ip[16], char text[46]);
/* Of all kinds. */
uint64_t requests_done(const struct vb_counts *counts);
uint64_t bytes_done(const struct vb_counts *counts);
/* Of all ports that the process has used: what it counts altogether. */
struct vb_counts process_counts(const struct process *p);
/* Who owns the process: a name, or a number. */
void user_name(uid_t uid, char name[64]);

#endif
