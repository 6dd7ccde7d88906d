/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VB_ADAPTER_REQUEST_H
#define VB_ADAPTER_REQUEST_H

#include "adapter/object.h"
#include "proto/rc/request.h"

/* A send queue entry as the engines have it. srqn: vb_sqe_srqn. */
void vb_request_of_sqe(const struct vb_sqe *sqe, uint32_t srqn, struct vb_request *r);

#endif
