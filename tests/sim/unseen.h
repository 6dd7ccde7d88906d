/* SPDX-License-Identifier: BSD-2-Clause */
/* For simulations of how much goes through, and not of what: a responder and a requester without memory. */
#ifndef VB_SIM_UNSEEN_H
#define VB_SIM_UNSEEN_H

#include <stdlib.h>

#include "proto/rc/rc_responder.h"

static int receive_take(void *ctx, const struct vb_packet *packet) { return 0; }
static int receive_place(void *ctx, uint64_t offset, const void *bytes, size_t len) { return 0; }
static void receive_done(void *ctx, const struct vb_received *received) { }
static int check(void *ctx, uint32_t rkey, uint64_t addr, uint64_t len, enum vb_access access) { return 0; }
static int write_memory(void *ctx, uint32_t rkey, uint64_t addr, const void *bytes, size_t len) { return 0; }
static int invalidate(void *ctx, uint32_t rkey) { return 0; }
static int place(void *ctx, uint32_t position, uint64_t offset, const void *bytes, size_t len) { return 0; }
static void buffer_give(void *ctx, void *buffer) { free(buffer); }

static const struct vb_responder_ops ops = { .receive_take = receive_take,
					     .receive_place = receive_place,
					     .receive_done = receive_done,
					     .check = check,
					     .write = write_memory,
					     .invalidate = invalidate };

#endif
