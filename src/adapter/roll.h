/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rolls of objects that nothing else lists, for those who look into the process (inspect.h). An object is on its roll from its creation
 * to its destruction, which waits for a look at it. A forked child starts with empty rolls.
 */
#ifndef VB_ADAPTER_ROLL_H
#define VB_ADAPTER_ROLL_H

#include "base/base.h"
#include "base/list.h"

enum vb_roll { VB_ROLL_CONTEXTS, VB_ROLL_PDS, VB_ROLL_CQS, VB_ROLL_SRQS, VB_ROLLS };

struct vb_rolled {
	struct vb_list node;
	uint64_t serial; /* in the order of creation, never 0 */
};

void vb_roll_add(enum vb_roll roll, struct vb_rolled *rolled);
/* What is on no roll is left alone. */
void vb_roll_remove(struct vb_rolled *rolled);
/*
 * Calls look(rolled, arg) for those that come after *cursor (a serial, 0 at first) until it returns false; *cursor follows. False: that
 * was all. look must not wait for anything: nothing on a roll is created or destroyed meanwhile.
 */
bool vb_roll_look(enum vb_roll roll, uint64_t *cursor, bool (*look)(struct vb_rolled *rolled, void *arg), void *arg);

#endif
