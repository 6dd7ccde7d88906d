/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VB_TOOLS_FAULTS_H
#define VB_TOOLS_FAULTS_H

#include "command.h"
#include "faults/plan.h"

/* An expression, or what the file holds that "@FILE" names; malloc'ed. NULL: *why says why not. */
char *faults_text(const char *setting, const char **why);
/* Reads one. *text is malloc'ed. False after a message that shows the mistake. */
bool check_faults(const char *setting, struct vb_fault_plan *plan, char **text);

#endif
