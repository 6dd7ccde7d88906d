/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Socket addresses of the family AF_IB: a GID, a partition and a service instead of IP address and port.
 * rdma_cm(7)
 */
#ifndef _RDMA_IB_H
#define _RDMA_IB_H

#include <endian.h>
#include <linux/types.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef AF_IB
#define AF_IB	27
#endif
#ifndef PF_IB
#define PF_IB	AF_IB
#endif

/* A GID in network order. Programs write a->sib_raw and so on. */
struct ib_addr {
	union {
		__u8	uib_addr8[16];
		__be16	uib_addr16[8];
		__be32	uib_addr32[4];
		__be64	uib_addr64[2];
	} ib_u;
#define sib_addr8		ib_u.uib_addr8
#define sib_addr16		ib_u.uib_addr16
#define sib_addr32		ib_u.uib_addr32
#define sib_addr64		ib_u.uib_addr64
#define sib_raw			ib_u.uib_addr8
#define sib_subnet_prefix	ib_u.uib_addr64[0]
#define sib_interface_id	ib_u.uib_addr64[1]
};

/* True for the wildcard, all zeros. */
static inline int ib_addr_any(const struct ib_addr *a)
{
	return !a->sib_addr64[0] && !a->sib_addr64[1];
}

/* True for the loopback address, 127 zeros and a one. */
static inline int ib_addr_loopback(const struct ib_addr *a)
{
	return !a->sib_addr64[0] && a->sib_addr64[1] == htobe64(1);
}

/* Set the address to four words in network order. */
static inline void ib_addr_set(struct ib_addr *addr, __be32 w1, __be32 w2, __be32 w3, __be32 w4)
{
	const __be32 words[4] = { w1, w2, w3, w4 };

	memcpy(addr->sib_addr32, words, sizeof(words));
}

/* Order of two addresses, as memcmp(3) tells it: 0 if they are equal. */
static inline int ib_addr_cmp(const struct ib_addr *a1, const struct ib_addr *a2)
{
	return memcmp(a1->sib_raw, a2->sib_raw, sizeof(a1->sib_raw));
}

/* A socket address. sib_sid is the service identifier, of which the bits in sib_sid_mask count. */
struct sockaddr_ib {
	unsigned short int	sib_family;	/* AF_IB */
	__be16			sib_pkey;
	__be32			sib_flowinfo;
	struct ib_addr		sib_addr;
	__be64			sib_sid;
	__be64			sib_sid_mask;
	__u64			sib_scope_id;
};

#ifdef __cplusplus
}
#endif

#endif /* _RDMA_IB_H */
