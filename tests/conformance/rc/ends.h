/* SPDX-License-Identifier: BSD-2-Clause */
/* How what a region allowed comes to its end, in the middle of traffic. */
#ifndef VB_CONFORMANCE_ENDS_H
#define VB_CONFORMANCE_ENDS_H

#include "rc.h"

/* A region of the end's buffer, too, that can end without the first. */
struct ibv_mr *second_of(struct end *e);
/* With the domain that it may have moved to; NULL: it has ended. */
void close_second(struct end *e, struct ibv_mr *mr);

/* *mr: the region that is there afterwards, or NULL. */
typedef void ends_fn(struct end *e, struct ibv_mr **mr);

ends_fn deregister, deregister_and_use_its_place, show_its_other_half, take_it_to_another_domain;

#endif
