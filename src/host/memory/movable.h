/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VB_HOST_MOVABLE_H
#define VB_HOST_MOVABLE_H

#include <stdbool.h>

/* Has the process anything that pins pages? They must not be moved then. Allocates nothing. */
bool vb_may_be_pinned(void);

#endif
