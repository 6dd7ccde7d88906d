/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flow steering of raw packets: rules, what rules match and do, counters. Part of <infiniband/verbs.h>.
 *
 * A rule is a struct ibv_flow_attr with its specifications right behind it, each beginning with type and
 * size in bytes. A packet matches if it agrees with val wherever mask has ones. Members of filters are in
 * network order.
 *
 * Calls that give an int return 0 or an errno value, calls that give a pointer NULL with errno; both give
 * EOPNOTSUPP if the device lacks the verb.
 */
#ifndef INFINIBAND_VERBS_FLOW_H
#define INFINIBAND_VERBS_FLOW_H

#include <infiniband/verbs/qp.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bits of ibv_flow_attr.flags: let other rules see the packet too; match what is sent. ibv_create_flow(3) */
enum ibv_flow_flags {
	IBV_FLOW_ATTR_FLAGS_DONT_TRAP	= 1 << 1,
	IBV_FLOW_ATTR_FLAGS_EGRESS	= 1 << 2,
};

/*
 * What a rule takes: matching packets, those that no rule takes (all, or multicast only), or a copy of every
 * one.
 */
enum ibv_flow_attr_type {
	IBV_FLOW_ATTR_NORMAL		= 0,
	IBV_FLOW_ATTR_ALL_DEFAULT	= 1,
	IBV_FLOW_ATTR_MC_DEFAULT	= 2,
	IBV_FLOW_ATTR_SNIFFER		= 3,
};

/* Kinds of specifications. INNER is added to those of an encapsulated packet; ACTIONs match nothing. */
enum ibv_flow_spec_type {
	IBV_FLOW_SPEC_ETH		= 0x20,
	IBV_FLOW_SPEC_IPV4		= 0x30,
	IBV_FLOW_SPEC_IPV6		= 0x31,
	IBV_FLOW_SPEC_IPV4_EXT		= 0x32,
	IBV_FLOW_SPEC_ESP		= 0x34,
	IBV_FLOW_SPEC_TCP		= 0x40,
	IBV_FLOW_SPEC_UDP		= 0x41,
	IBV_FLOW_SPEC_VXLAN_TUNNEL	= 0x50,
	IBV_FLOW_SPEC_GRE		= 0x51,
	IBV_FLOW_SPEC_MPLS		= 0x60,
	IBV_FLOW_SPEC_INNER		= 0x100,
	IBV_FLOW_SPEC_ACTION_TAG	= 0x1000,
	IBV_FLOW_SPEC_ACTION_DROP	= 0x1001,
	IBV_FLOW_SPEC_ACTION_HANDLE	= 0x1002,
	IBV_FLOW_SPEC_ACTION_COUNT	= 0x1003,
};

/* Ethernet; vlan_tag is the 802.1Q tag: priority, CFI, VLAN. */
struct ibv_flow_eth_filter {
	uint8_t		dst_mac[6];
	uint8_t		src_mac[6];
	uint16_t	ether_type;
	uint16_t	vlan_tag;
};

struct ibv_flow_spec_eth {
	enum ibv_flow_spec_type		type;
	uint16_t			size;
	struct ibv_flow_eth_filter	val;
	struct ibv_flow_eth_filter	mask;
};

/* IPv4 addresses. */
struct ibv_flow_ipv4_filter {
	uint32_t	src_ip;
	uint32_t	dst_ip;
};

struct ibv_flow_spec_ipv4 {
	enum ibv_flow_spec_type		type;
	uint16_t			size;
	struct ibv_flow_ipv4_filter	val;
	struct ibv_flow_ipv4_filter	mask;
};

/* IPv4 addresses and other header fields. */
struct ibv_flow_ipv4_ext_filter {
	uint32_t	src_ip;
	uint32_t	dst_ip;
	uint8_t		proto;
	uint8_t		tos;
	uint8_t		ttl;
	uint8_t		flags;
};

struct ibv_flow_spec_ipv4_ext {
	enum ibv_flow_spec_type		type;
	uint16_t			size;
	struct ibv_flow_ipv4_ext_filter	val;
	struct ibv_flow_ipv4_ext_filter	mask;
};

/* IPv6. */
struct ibv_flow_ipv6_filter {
	uint8_t		src_ip[16];
	uint8_t		dst_ip[16];
	uint32_t	flow_label;
	uint8_t		next_hdr;
	uint8_t		traffic_class;
	uint8_t		hop_limit;
};

struct ibv_flow_spec_ipv6 {
	enum ibv_flow_spec_type		type;
	uint16_t			size;
	struct ibv_flow_ipv6_filter	val;
	struct ibv_flow_ipv6_filter	mask;
};

/* IPsec ESP. */
struct ibv_flow_esp_filter {
	uint32_t	spi;
	uint32_t	seq;
};

struct ibv_flow_spec_esp {
	enum ibv_flow_spec_type		type;
	uint16_t			size;
	struct ibv_flow_esp_filter	val;
	struct ibv_flow_esp_filter	mask;
};

/* TCP or UDP ports; type says which. */
struct ibv_flow_tcp_udp_filter {
	uint16_t	dst_port;
	uint16_t	src_port;
};

struct ibv_flow_spec_tcp_udp {
	enum ibv_flow_spec_type		type;
	uint16_t			size;
	struct ibv_flow_tcp_udp_filter	val;
	struct ibv_flow_tcp_udp_filter	mask;
};

/* GRE (RFC 2890); c_ks_res0_ver is the first 16 bits of the header: flags, reserved bits, version. */
struct ibv_flow_gre_filter {
	uint16_t	c_ks_res0_ver;
	uint16_t	protocol;
	uint32_t	key;
};

struct ibv_flow_spec_gre {
	enum ibv_flow_spec_type		type;
	uint16_t			size;
	struct ibv_flow_gre_filter	val;
	struct ibv_flow_gre_filter	mask;
};

/* A whole MPLS label stack entry (RFC 3032): label, class, bottom-of-stack bit, TTL. */
struct ibv_flow_mpls_filter {
	uint32_t	label;
};

struct ibv_flow_spec_mpls {
	enum ibv_flow_spec_type		type;
	uint16_t			size;
	struct ibv_flow_mpls_filter	val;
	struct ibv_flow_mpls_filter	mask;
};

/* The VXLAN network identifier. */
struct ibv_flow_tunnel_filter {
	uint32_t	tunnel_id;
};

struct ibv_flow_spec_tunnel {
	enum ibv_flow_spec_type		type;
	uint16_t			size;
	struct ibv_flow_tunnel_filter	val;
	struct ibv_flow_tunnel_filter	mask;
};

/* Put tag_id into the completion: ibv_wc_read_flow_tag(). */
struct ibv_flow_spec_action_tag {
	enum ibv_flow_spec_type	type;
	uint16_t		size;
	uint32_t		tag_id;
};

/* Drop the packet. */
struct ibv_flow_spec_action_drop {
	enum ibv_flow_spec_type	type;
	uint16_t		size;
};

/* Do what an action object says. */
struct ibv_flow_spec_action_handle {
	enum ibv_flow_spec_type		type;
	uint16_t			size;
	const struct ibv_flow_action	*action;
};

/* Count the packet. */
struct ibv_flow_spec_counter_action {
	enum ibv_flow_spec_type	type;
	uint16_t		size;
	struct ibv_counters	*counters;
};

/* Any one specification; hdr.type tells which. */
__extension__ struct ibv_flow_spec {
	__extension__ union {
		struct {
			enum ibv_flow_spec_type	type;
			uint16_t		size;
		} hdr;
		struct ibv_flow_spec_eth		eth;
		struct ibv_flow_spec_ipv4		ipv4;
		struct ibv_flow_spec_tcp_udp		tcp_udp;
		struct ibv_flow_spec_ipv4_ext		ipv4_ext;
		struct ibv_flow_spec_ipv6		ipv6;
		struct ibv_flow_spec_esp		esp;
		struct ibv_flow_spec_tunnel		tunnel;
		struct ibv_flow_spec_gre		gre;
		struct ibv_flow_spec_mpls		mpls;
		struct ibv_flow_spec_action_tag		flow_tag;
		struct ibv_flow_spec_action_drop	drop;
		struct ibv_flow_spec_action_handle	handle;
		struct ibv_flow_spec_counter_action	flow_count;
	};
};

/* The head of a rule; num_of_specs specifications follow it, size covers all. Priority 0 is the highest. */
struct ibv_flow_attr {
	uint32_t		comp_mask;	/* 0 */
	enum ibv_flow_attr_type	type;
	uint16_t		size;
	uint16_t		priority;
	uint8_t			num_of_specs;
	uint8_t			port;
	uint32_t		flags;		/* enum ibv_flow_flags */
};

/* A rule in force. ibv_create_flow(3) */
struct ibv_flow {
	uint32_t		comp_mask;
	struct ibv_context	*context;
	uint32_t		handle;
};

/* Steer packets to a raw packet or UD QP; holds until ibv_destroy_flow(). ibv_create_flow(3) */
static inline struct ibv_flow *ibv_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *flow)
{
	return verbs_make_op_(qp->context, ibv_create_flow, qp, flow);
}

/* End a rule. ibv_create_flow(3) */
static inline int ibv_destroy_flow(struct ibv_flow *flow_id)
{
	return verbs_call_op_(flow_id->context, ibv_destroy_flow, flow_id);
}

/* An action that rules can name. ibv_create_flow_action(3) */
struct ibv_flow_action {
	struct ibv_context	*context;
};

/* Which members of ibv_flow_action_esp_attr from esn on are valid. */
enum ibv_flow_action_esp_mask {
	IBV_FLOW_ACTION_ESP_MASK_ESN	= 1 << 0,
};

/*
 * ESP encryption or decryption; lengths in bytes of the structures that the pointers show.
 * ibv_create_flow_action(3)
 */
struct ibv_flow_action_esp_attr {
	struct ibv_flow_action_esp		*esp_attr;
	enum ibv_flow_action_esp_keymat		keymat_proto;
	uint16_t				keymat_len;
	void					*keymat_ptr;
	enum ibv_flow_action_esp_replay		replay_proto;
	uint16_t				replay_len;
	void					*replay_ptr;
	struct ibv_flow_action_esp_encap	*esp_encap;
	uint32_t				comp_mask;	/* enum ibv_flow_action_esp_mask */
	uint32_t				esn;
};

/* Make an ESP action; it lives until ibv_destroy_flow_action(). ibv_create_flow_action(3) */
static inline struct ibv_flow_action *ibv_create_flow_action_esp(struct ibv_context *ctx,
								 struct ibv_flow_action_esp_attr *esp)
{
	return verbs_make_op_(ctx, create_flow_action_esp, ctx, esp);
}

/*
 * Change an ESP action: null pointers and cleared mask bits leave things as they are.
 * ibv_create_flow_action(3)
 */
static inline int ibv_modify_flow_action_esp(struct ibv_flow_action *action,
					     struct ibv_flow_action_esp_attr *esp)
{
	return verbs_call_op_(action->context, modify_flow_action_esp, action, esp);
}

/* Release an action. EBUSY: a rule still uses it. ibv_create_flow_action(3) */
static inline int ibv_destroy_flow_action(struct ibv_flow_action *action)
{
	return verbs_call_op_(action->context, destroy_flow_action, action);
}

/* comp_mask must be 0. ibv_create_counters(3) */
struct ibv_counters_init_attr {
	uint32_t	comp_mask;
};

/* A set of counters. ibv_create_counters(3) */
struct ibv_counters {
	struct ibv_context	*context;
};

/* What a counter counts. ibv_attach_counters_point_flow(3) */
enum ibv_counter_description {
	IBV_COUNTER_PACKETS,
	IBV_COUNTER_BYTES,
};

/* A counter and its place in the array that ibv_read_counters() fills; comp_mask must be 0. */
struct ibv_counter_attach_attr {
	enum ibv_counter_description	counter_desc;
	uint32_t			index;
	uint32_t			comp_mask;
};

/* Bits of ibv_read_counters()'s flags: values may be a little old. ibv_read_counters(3) */
enum ibv_read_counters_flags {
	IBV_READ_COUNTERS_ATTR_PREFER_CACHED	= 1 << 0,
};

/* Make an empty set; it lives until ibv_destroy_counters(). ibv_create_counters(3) */
static inline struct ibv_counters *ibv_create_counters(struct ibv_context *context,
						       struct ibv_counters_init_attr *init_attr)
{
	return verbs_make_op_(context, create_counters, context, init_attr);
}

/* Release it. EBUSY: a rule still counts in it. ibv_create_counters(3) */
static inline int ibv_destroy_counters(struct ibv_counters *counters)
{
	return verbs_call_op_(counters->context, destroy_counters, counters);
}

/*
 * Add a counter, for the rule flow or, with NULL, for rules that name the set.
 * ibv_attach_counters_point_flow(3)
 */
static inline int ibv_attach_counters_point_flow(struct ibv_counters *counters,
						 struct ibv_counter_attach_attr *attr, struct ibv_flow *flow)
{
	return verbs_call_op_(counters->context, attach_counters_point_flow, counters, attr, flow);
}

/* Read the first ncounters values. ibv_read_counters(3) */
static inline int ibv_read_counters(struct ibv_counters *counters, uint64_t *counters_value,
	uint32_t ncounters,
				    uint32_t flags)
{
	return verbs_call_op_(counters->context, read_counters, counters, counters_value, ncounters, flags);
}

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_FLOW_H */
