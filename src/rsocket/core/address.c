/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses that programs pass, and addresses that they get. */
#include <infiniband/ib.h>
#include <netinet/in.h>
#include <string.h>

#include "rsocket/core/rs.h"

static socklen_t length_of(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_IB)
		return sizeof(struct sockaddr_ib);
	return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

bool vb_rs_is_whole_address(const struct sockaddr *addr, socklen_t len)
{
	if (!addr || len < sizeof(sa_family_t))
		return false;
	return addr->sa_family == AF_UNSPEC || len >= length_of(addr);
}

void vb_rs_copy_address(const struct sockaddr *sa, struct sockaddr *addr, socklen_t *len)
{
	socklen_t whole = length_of(sa);

	if (*len)
		memcpy(addr, sa, *len < whole ? *len : whole);
	*len = whole;
}
