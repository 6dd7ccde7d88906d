/* SPDX-License-Identifier: BSD-2-Clause */
/* 64-bit byte order under the names of old programs. New ones use htobe64(3) and be64toh(3). */
#ifndef INFINIBAND_ARCH_H
#define INFINIBAND_ARCH_H

#include <endian.h>
#include <stdint.h>

#warning "<infiniband/arch.h> is for old programs; <endian.h> has htobe64() and be64toh()"

/* A program that brings its own ntohll keeps both of its own. */
#ifndef ntohll
#undef htonll

static inline uint64_t htonll(uint64_t x) __attribute__((__deprecated__));
static inline uint64_t ntohll(uint64_t x) __attribute__((__deprecated__));

static inline uint64_t htonll(uint64_t x)
{
	return htobe64(x);
}

static inline uint64_t ntohll(uint64_t x)
{
	return be64toh(x);
}

#define htonll htonll
#define ntohll ntohll
#endif

#endif /* INFINIBAND_ARCH_H */
