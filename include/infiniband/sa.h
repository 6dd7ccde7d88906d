/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records of subnet administration (volume 1, 15.2.5): path, multicast member and service records unpacked
 * for programs, and path records as on the wire. rdma_resolve_route(3), rdma_set_option(3)
 */
#ifndef INFINIBAND_SA_H
#define INFINIBAND_SA_H

#include <infiniband/verbs.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A path, as rdma_cm_id.route.path_rec shows it. A selector says how its value is meant: 0 greater than, 1
 * less than, 2 exactly, 3 the best there is. mtu is an enum ibv_mtu, rate an enum ibv_rate, a life time n is
 * 4.096 µs * 2^n.
 */
struct ibv_sa_path_rec {
	union ibv_gid	dgid;
	union ibv_gid	sgid;
	__be16		dlid;
	__be16		slid;
	int		raw_traffic;
	__be32		flow_label;
	uint8_t		hop_limit;
	uint8_t		traffic_class;
	int		reversible;
	uint8_t		numb_path;
	__be16		pkey;
	uint8_t		sl;
	uint8_t		mtu_selector;
	uint8_t		mtu;
	uint8_t		rate_selector;
	uint8_t		rate;
	uint8_t		packet_life_time_selector;
	uint8_t		packet_life_time;
	uint8_t		preference;
};

/* Membership of a port in a multicast group; values as in a path. */
struct ibv_sa_mcmember_rec {
	union ibv_gid	mgid;
	union ibv_gid	port_gid;
	uint32_t	qkey;
	uint16_t	mlid;
	uint8_t		mtu_selector;
	uint8_t		mtu;
	uint8_t		traffic_class;
	uint16_t	pkey;
	uint8_t		rate_selector;
	uint8_t		rate;
	uint8_t		packet_life_time_selector;
	uint8_t		packet_life_time;
	uint8_t		sl;
	uint32_t	flow_label;
	uint8_t		hop_limit;
	uint8_t		scope;
	uint8_t		join_state;	/* one bit each: full, non, send-only non, send-only full member */
	int		proxy_join;
};

/* A service that a port offers; lease in seconds, the data is the service's own. */
struct ibv_sa_service_rec {
	uint64_t	id;
	union ibv_gid	gid;
	uint16_t	pkey;
	uint32_t	lease;
	uint8_t		key[16];
	uint8_t		name[64];
	uint8_t		data8[16];
	uint16_t	data16[8];
	uint32_t	data32[4];
	uint64_t	data64[2];
};

/* The top bit of ibv_path_record.reversible_numpath. */
#define IBV_PATH_RECORD_REVERSIBLE	0x80

/* A path record as on the wire. Members with two names hold both, the first in the upper bits. */
struct ibv_path_record {
	__be64		service_id;
	union ibv_gid	dgid;
	union ibv_gid	sgid;
	__be16		dlid;
	__be16		slid;
	__be32		flowlabel_hoplimit;	/* flow label << 8 | hop limit */
	uint8_t		tclass;
	uint8_t		reversible_numpath;	/* reversible << 7 | number of paths */
	__be16		pkey;
	__be16		qosclass_sl;		/* QoS class << 4 | service level */
	uint8_t		mtu;			/* this and the next two: selector << 6 | value */
	uint8_t		rate;
	uint8_t		packetlifetime;
	uint8_t		preference;
	uint8_t		reserved[6];
};

/* What a path is for: bits of ibv_path_data.flags. */
#define IBV_PATH_FLAG_GMP		(1 << 0)
#define IBV_PATH_FLAG_PRIMARY		(1 << 1)
#define IBV_PATH_FLAG_ALTERNATE		(1 << 2)
#define IBV_PATH_FLAG_OUTBOUND		(1 << 3)
#define IBV_PATH_FLAG_INBOUND		(1 << 4)
#define IBV_PATH_FLAG_INBOUND_REVERSE	(1 << 5)
#define IBV_PATH_FLAG_BIDIRECTIONAL	(IBV_PATH_FLAG_OUTBOUND | IBV_PATH_FLAG_INBOUND_REVERSE)

/* One element of the option RDMA_OPTION_IB_PATH and of rdma_addrinfo.ai_route. */
struct ibv_path_data {
	uint32_t		flags;
	uint32_t		reserved;	/* 0 */
	struct ibv_path_record	path;
};

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_SA_H */
