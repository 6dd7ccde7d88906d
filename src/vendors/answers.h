/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Libraries with the names of those that rdma-core has for devices of single vendors (libmlx5.so.1, ...). Programs link them to use
 * such a device if there is one. rdma-core's own ask libibverbs for private calls that change with each release; these ask nobody,
 * and answer as on a machine without such a device. So a program starts whichever release it comes with.
 *
 * generate.py makes a library of a table. Each function of it has one of these answers; none looks at its arguments, so none declares
 * them.
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
