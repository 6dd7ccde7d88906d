/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-core has a library for the devices of each vendor (libmlx5.so.1, ...). Programs link it, in
 * case there is such a device. It imports private calls of libibverbs, which differ between
 * releases. The libraries made here have the same names and import nothing. They answer as on a
 * machine without such a device, so a program starts with any release of rdma-core.
 *
 * generate.py makes a library of a table. Each function of it has one of these answers; none looks
 * at its arguments, so none declares them.
 */
#ifndef VB_VENDORS_ANSWERS_H
#define VB_VENDORS_ANSWERS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

/* A function's name at its node; there it is the default. */
#define VB_ANSWER(function, name, node, type, ...)  \
	VB_EXPORT type function(void);              \
	VB_EXPORT type function(void) { __VA_ARGS__ } \
	VB_SYMVER(function, name, node)

#define VB_ANSWER_error(f, name, node)     VB_ANSWER(f, name, node, int, return errno = EOPNOTSUPP;)
#define VB_ANSWER_negative(f, name, node)  VB_ANSWER(f, name, node, int, return -EOPNOTSUPP;)
#define VB_ANSWER_minus_one(f, name, node) VB_ANSWER(f, name, node, long, errno = EOPNOTSUPP; return -1;)
#define VB_ANSWER_null(f, name, node)      VB_ANSWER(f, name, node, void *, errno = EOPNOTSUPP; return NULL;)
#define VB_ANSWER_no(f, name, node)        VB_ANSWER(f, name, node, long, return 0;)
#define VB_ANSWER_nothing(f, name, node)   VB_ANSWER(f, name, node, void, )

#endif
