/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VB_ADAPTER_REQUEST_H
#define VB_ADAPTER_REQUEST_H

#include "adapter/object.h"
#include "proto/rc/request.h"

/* A send queue entry as the engines have it. */
void vb_request_of_sqe(const struct vb_sqe *sqe, struct vb_request *r);

#endif
