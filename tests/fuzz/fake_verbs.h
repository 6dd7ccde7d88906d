/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libibverbs as far as librdmacm needs it: one device with one address, and queue pairs that are nothing but
 * numbers. And CM messages.
 */
#ifndef VB_FAKE_VERBS_H
#define VB_FAKE_VERBS_H

#include "wire/cm_msg.h"

enum { FAKE_OWN_ADDRESS = 0x0a000001, FAKE_OTHER_ADDRESS = 0x0a000002 }; /* 10.0.0.1, 10.0.0.2 */

/*
 * The device has the other host's address too, which is reached over the network all the same: what is sent
 * there can be given back.
 */
extern bool fake_is_both_hosts;

/* What queue pairs answer to changes of their state: 0 or an errno. */
extern int fake_modify_result;

void fake_gid(uint32_t address, uint8_t gid[16]);
/* A message for one of the ports that listen, or (port negative) for the inbox. */
void fake_cm_message(const struct vb_mad *mad, uint32_t from, uint32_t to, int port);

#endif
