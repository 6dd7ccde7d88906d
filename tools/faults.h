/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VB_TOOLS_FAULTS_H
#define VB_TOOLS_FAULTS_H

#include "command.h"
#include "faults/plan.h"

/*
 * Reads an expression, or the file that "@FILE" names. *text is malloc'ed. False after a message that shows
 * the mistake.
 */
bool check_faults(const char *setting, struct vb_fault_plan *plan, char **text);

#endif
