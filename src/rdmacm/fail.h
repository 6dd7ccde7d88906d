/* SPDX-License-Identifier: BSD-2-Clause */
/* How public calls of librdmacm fail. */
#ifndef VB_RDMACM_FAIL_H
#define VB_RDMACM_FAIL_H

#include <errno.h>

#include "adapter/fault_injection.h"
#include "base/base.h"
#include "base/log.h"

/* Fails a public call: explains, sets errno, gives -1. err is positive. */
#define vb_cma_fail(err, ...) (__extension__({          \
		vb_explain(__func__, __VA_ARGS__);      \
		errno = (err);                          \
		-1;                                     \
	}))

/* Does a fault on purpose make this public call fail? errno says how. Once per call, at its head. */
static inline bool vb_cma_is_faulty(const char *call)
{
	int err = vb_fault_call(call, 0);

	if (vb_unlikely(err))
		errno = -err;
	return err;
}

/* What a public call returns for 0 or a negative errno. */
static inline int vb_cma_result(int err)
{
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

#endif
