/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses: routes, address handles, static rates, multicast groups, RoCE's mappings. Part of
 * <infiniband/verbs.h>.
 *
 * Calls that give an int return 0 or an errno value and calls that give a pointer NULL with errno, unless
 * said otherwise.
 */
#ifndef INFINIBAND_VERBS_AH_H
#define INFINIBAND_VERBS_AH_H

#include <infiniband/verbs/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The global part of an address: where to, from which row of the port's GID table, and header fields.
 * ibv_create_ah(3)
 */
struct ibv_global_route {
	union ibv_gid	dgid;
	uint32_t	flow_label;	/* 20 bits */
	uint8_t		sgid_index;
	uint8_t		hop_limit;
	uint8_t		traffic_class;
};

/*
 * A global route header as it arrives before a UD message (volume 1, 8.3). Over IPv4, the 20 bytes of the IP
 * header are the last ones of these 40.
 */
struct ibv_grh {
	__be32		version_tclass_flow;
	__be16		paylen;
	uint8_t		next_hdr;
	uint8_t		hop_limit;
	union ibv_gid	sgid;
	union ibv_gid	dgid;
};

/*
 * Static rates, as codes (volume 1, 9.11.1). The names tell Gbit/s; MAX is the port's own speed.
 * ibv_rate_to_mbps(3)
 */
enum ibv_rate {
	IBV_RATE_MAX		= 0,
	IBV_RATE_2_5_GBPS	= 2,
	IBV_RATE_10_GBPS	= 3,
	IBV_RATE_30_GBPS	= 4,
	IBV_RATE_5_GBPS		= 5,
	IBV_RATE_20_GBPS	= 6,
	IBV_RATE_40_GBPS	= 7,
	IBV_RATE_60_GBPS	= 8,
	IBV_RATE_80_GBPS	= 9,
	IBV_RATE_120_GBPS	= 10,
	IBV_RATE_14_GBPS	= 11,
	IBV_RATE_56_GBPS	= 12,
	IBV_RATE_112_GBPS	= 13,
	IBV_RATE_168_GBPS	= 14,
	IBV_RATE_25_GBPS	= 15,
	IBV_RATE_100_GBPS	= 16,
	IBV_RATE_200_GBPS	= 17,
	IBV_RATE_300_GBPS	= 18,
	IBV_RATE_28_GBPS	= 19,
	IBV_RATE_50_GBPS	= 20,
	IBV_RATE_400_GBPS	= 21,
	IBV_RATE_600_GBPS	= 22,
	IBV_RATE_800_GBPS	= 23,
	IBV_RATE_1200_GBPS	= 24,
};

/*
 * The rate as a multiple of 2.5 Gbit/s, and back; -1 and IBV_RATE_MAX if there is no such rate.
 * ibv_rate_to_mult(3)
 */
int ibv_rate_to_mult(enum ibv_rate rate) __attribute__((__const__));
enum ibv_rate mult_to_ibv_rate(int mult) __attribute__((__const__));

/* The rate in Mbit/s, and back; -1 and IBV_RATE_MAX if there is no such rate. ibv_rate_to_mbps(3) */
int ibv_rate_to_mbps(enum ibv_rate rate) __attribute__((__const__));
enum ibv_rate mbps_to_ibv_rate(int mbps) __attribute__((__const__));

/*
 * An address. On Ethernet is_global must be 1, and the LID members mean nothing. ibv_create_ah(3),
 * ibv_modify_qp(3)
 */
struct ibv_ah_attr {
	struct ibv_global_route	grh;
	uint16_t		dlid;
	uint8_t			sl;
	uint8_t			src_path_bits;
	uint8_t			static_rate;	/* enum ibv_rate */
	uint8_t			is_global;	/* 1: grh is valid */
	uint8_t			port_num;
};

/* An address handle: an address ready for UD sends. ibv_create_ah(3) */
struct ibv_ah {
	struct ibv_context	*context;
	struct ibv_pd		*pd;
	uint32_t		handle;
};

/*
 * Make a handle; it lives until ibv_destroy_ah(). EINVAL: no such port or GID index, no GRH.
 * ibv_create_ah(3)
 */
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);

/*
 * The address to answer a UD message at: from its completion and, with IBV_WC_GRH, its GRH.
 * ibv_create_ah_from_wc(3)
 */
int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc, struct ibv_grh *grh,
			struct ibv_ah_attr *ah_attr);

/* Both steps in one: the handle to answer a UD message with. ibv_create_ah_from_wc(3) */
struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port_num);

/* Release a handle; work requests that used it must be completed. ibv_create_ah(3) */
int ibv_destroy_ah(struct ibv_ah *ah);

/*
 * Let a UD QP receive what is sent to a multicast group (lid in host order, 0 on Ethernet), and end that.
 * Joining the group in the network is another matter. EINVAL: not a UD QP, or not attached.
 * ibv_attach_mcast(3)
 */
int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);

/* Bytes of an Ethernet address. */
#define ETHERNET_LL_SIZE	6

/* The Ethernet address and VLAN that packets to attr would go to. 0 or a negative errno value. */
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid);

/* The UDP source ports that RoCE v2 chooses from, and the bits of a GRH flow label. */
#define IB_ROCE_UDP_ENCAP_VALID_PORT_MIN	(0xC000)
#define IB_ROCE_UDP_ENCAP_VALID_PORT_MAX	(0xFFFF)
#define IB_GRH_FLOWLABEL_MASK			(0x000FFFFF)

/*
 * The UDP source port that stands for a flow label: its upper 6 bits folded into the lower 14, in the range
 * above.
 */
static inline uint16_t ibv_flow_label_to_udp_sport(uint32_t fl)
{
	const uint32_t folded = (fl ^ ((fl & IB_GRH_FLOWLABEL_MASK) >> 14)) & 0x3fff;

	return (uint16_t)(IB_ROCE_UDP_ENCAP_VALID_PORT_MIN + folded);
}

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_AH_H */
