/* SPDX-License-Identifier: BSD-2-Clause */
/* What all packets of this host have, whoever makes them: numbers of their IP headers. */
#ifndef VB_INET_H
#define VB_INET_H

#include <stdint.h>

enum { VB_HOP_LIMIT = 64 /* of packets for which none was given */ };

#endif
