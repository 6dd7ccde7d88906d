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
/* Who owns the process: a name, or a number. */
void user_name(uid_t uid, char name[64]);

#endif
