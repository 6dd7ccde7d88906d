/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a device is and can do: GIDs, devices, their attributes, ports, events. Types only; the calls that
 * fill them are in query.h. Part of <infiniband/verbs.h>.
 */
#ifndef INFINIBAND_VERBS_DEVICE_H
#define INFINIBAND_VERBS_DEVICE_H

#include <linux/types.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_cq;
struct ibv_qp;
struct ibv_srq;
struct ibv_wq;

/*
 * A global identifier: 128 bits in network order, on RoCE v2 an IPv6 or IPv4-mapped IPv6 address.
 * ibv_query_gid(3)
 */
union ibv_gid {
	uint8_t	raw[16];
	struct {
		__be64	subnet_prefix;
		__be64	interface_id;
	} global;
};

/* The packet format that a GID stands for. ibv_query_gid_ex(3) */
enum ibv_gid_type {
	IBV_GID_TYPE_IB,
	IBV_GID_TYPE_ROCE_V1,
	IBV_GID_TYPE_ROCE_V2,
};

/*
 * One row of a port's GID table, with the network interface that it belongs to (0: none).
 * ibv_query_gid_ex(3)
 */
struct ibv_gid_entry {
	union ibv_gid	gid;
	uint32_t	gid_index;
	uint32_t	port_num;
	uint32_t	gid_type;	/* enum ibv_gid_type */
	uint32_t	ndev_ifindex;
};

/* What the device is in its fabric. ibv_get_device_list(3) */
enum ibv_node_type {
	IBV_NODE_UNKNOWN	= -1,
	IBV_NODE_CA		= 1,
	IBV_NODE_SWITCH		= 2,
	IBV_NODE_ROUTER		= 3,
	IBV_NODE_RNIC		= 4,
	IBV_NODE_USNIC		= 5,
	IBV_NODE_USNIC_UDP	= 6,
	IBV_NODE_UNSPECIFIED	= 7,
};

/* The transport that the device speaks; RoCE counts as IB. */
enum ibv_transport_type {
	IBV_TRANSPORT_UNKNOWN		= -1,
	IBV_TRANSPORT_IB		= 0,
	IBV_TRANSPORT_IWARP		= 1,
	IBV_TRANSPORT_USNIC		= 2,
	IBV_TRANSPORT_USNIC_UDP		= 3,
	IBV_TRANSPORT_UNSPECIFIED	= 4,
};

/* Sizes of the strings in struct ibv_device, with their terminating zero. */
enum {
	IBV_SYSFS_NAME_MAX	= 64,
	IBV_SYSFS_PATH_MAX	= 256,
};

struct ibv_context;
struct ibv_device;

/* Two pointers that keep their place at the head of struct ibv_device. Nobody calls them. */
struct _ibv_device_ops {
	struct ibv_context *(*_dummy1)(struct ibv_device *device, int cmd_fd);
	void (*_dummy2)(struct ibv_context *context);
};

/*
 * A device, owned by the list that it came from and by every context opened on it. Programs read the two
 * types and the name (or call ibv_get_device_name()); the paths are those of the kernel's verbs and
 * InfiniBand classes in sysfs.
 */
struct ibv_device {
	struct _ibv_device_ops	_ops;
	enum ibv_node_type	node_type;
	enum ibv_transport_type	transport_type;
	char			name[IBV_SYSFS_NAME_MAX];
	char			dev_name[IBV_SYSFS_NAME_MAX];
	char			dev_path[IBV_SYSFS_PATH_MAX];
	char			ibdev_path[IBV_SYSFS_PATH_MAX];
};

/* Bits of ibv_device_attr.device_cap_flags. ibv_query_device(3) */
enum ibv_device_cap_flags {
	IBV_DEVICE_RESIZE_MAX_WR		= 1 << 0,
	IBV_DEVICE_BAD_PKEY_CNTR		= 1 << 1,
	IBV_DEVICE_BAD_QKEY_CNTR		= 1 << 2,
	IBV_DEVICE_RAW_MULTI			= 1 << 3,
	IBV_DEVICE_AUTO_PATH_MIG		= 1 << 4,
	IBV_DEVICE_CHANGE_PHY_PORT		= 1 << 5,
	IBV_DEVICE_UD_AV_PORT_ENFORCE		= 1 << 6,
	IBV_DEVICE_CURR_QP_STATE_MOD		= 1 << 7,
	IBV_DEVICE_SHUTDOWN_PORT		= 1 << 8,
	IBV_DEVICE_INIT_TYPE			= 1 << 9,
	IBV_DEVICE_PORT_ACTIVE_EVENT		= 1 << 10,
	IBV_DEVICE_SYS_IMAGE_GUID		= 1 << 11,
	IBV_DEVICE_RC_RNR_NAK_GEN		= 1 << 12,
	IBV_DEVICE_SRQ_RESIZE			= 1 << 13,
	IBV_DEVICE_N_NOTIFY_CQ			= 1 << 14,
	IBV_DEVICE_MEM_WINDOW			= 1 << 17,
	IBV_DEVICE_UD_IP_CSUM			= 1 << 18,
	IBV_DEVICE_XRC				= 1 << 20,
	IBV_DEVICE_MEM_MGT_EXTENSIONS		= 1 << 21,
	IBV_DEVICE_MEM_WINDOW_TYPE_2A		= 1 << 23,
	IBV_DEVICE_MEM_WINDOW_TYPE_2B		= 1 << 24,
	IBV_DEVICE_RC_IP_CSUM			= 1 << 25,
	IBV_DEVICE_RAW_IP_CSUM			= 1 << 26,
	IBV_DEVICE_MANAGED_FLOW_STEERING	= 1 << 29,
};

/*
 * Bits of ibv_device_attr_ex.device_cap_flags_ex that do not fit into an enumeration. ibv_query_device_ex(3)
 */
#define IBV_DEVICE_RAW_SCATTER_FCS		(1ULL << 34)
#define IBV_DEVICE_PCI_WRITE_END_PADDING	(1ULL << 36)
#define IBV_DEVICE_CC_DMA_BOUNCE		(1ULL << 41)

/* Against whom atomics are atomic: nobody, other work on this device, or the CPU's own instructions too. */
enum ibv_atomic_cap {
	IBV_ATOMIC_NONE,
	IBV_ATOMIC_HCA,
	IBV_ATOMIC_GLOB,
};

/* Limits and identity of a device. Sizes are in bytes unless they count objects. ibv_query_device(3) */
struct ibv_device_attr {
	char			fw_ver[64];
	__be64			node_guid;
	__be64			sys_image_guid;
	uint64_t		max_mr_size;
	uint64_t		page_size_cap;		/* one bit per page size: bit n is 2^n bytes */
	uint32_t		vendor_id;
	uint32_t		vendor_part_id;
	uint32_t		hw_ver;
	int			max_qp;
	int			max_qp_wr;		/* per queue */
	unsigned int		device_cap_flags;	/* enum ibv_device_cap_flags */
	int			max_sge;		/* per work request other than an RDMA read */
	int			max_sge_rd;		/* per RDMA read */
	int			max_cq;
	int			max_cqe;		/* per CQ */
	int			max_mr;
	int			max_pd;
	int			max_qp_rd_atom;		/* reads and atomics in flight per QP, as responder */
	int			max_ee_rd_atom;
	int			max_res_rd_atom;	/* the same, of the whole device */
	int			max_qp_init_rd_atom;	/* reads and atomics in flight per QP, as requester */
	int			max_ee_init_rd_atom;
	enum ibv_atomic_cap	atomic_cap;
	int			max_ee;
	int			max_rdd;
	int			max_mw;
	int			max_raw_ipv6_qp;
	int			max_raw_ethy_qp;
	int			max_mcast_grp;
	int			max_mcast_qp_attach;	/* QPs per group */
	int			max_total_mcast_qp_attach;
	int			max_ah;
	int			max_fmr;
	int			max_map_per_fmr;
	int			max_srq;
	int			max_srq_wr;		/* per SRQ */
	int			max_srq_sge;		/* per receive request of an SRQ */
	uint16_t		max_pkeys;
	uint8_t			local_ca_ack_delay;	/* n: the device acknowledges within 4.096 µs * 2^n */
	uint8_t			phys_port_cnt;		/* 255 if there are more, see phys_port_cnt_ex */
};

/* Input of ibv_query_device_ex(); comp_mask must be 0. */
struct ibv_query_device_ex_input {
	uint32_t	comp_mask;
};

/* Bits of ibv_odp_caps.general_caps: on-demand paging, of single regions and of the whole address space. */
enum ibv_odp_general_caps {
	IBV_ODP_SUPPORT			= 1 << 0,
	IBV_ODP_SUPPORT_IMPLICIT	= 1 << 1,
};

/* Operations that may touch an on-demand paged region, per transport. */
enum ibv_odp_transport_cap_bits {
	IBV_ODP_SUPPORT_SEND		= 1 << 0,
	IBV_ODP_SUPPORT_RECV		= 1 << 1,
	IBV_ODP_SUPPORT_WRITE		= 1 << 2,
	IBV_ODP_SUPPORT_READ		= 1 << 3,
	IBV_ODP_SUPPORT_ATOMIC		= 1 << 4,
	IBV_ODP_SUPPORT_SRQ_RECV	= 1 << 5,
	IBV_ODP_SUPPORT_FLUSH		= 1 << 6,
	IBV_ODP_SUPPORT_ATOMIC_WRITE	= 1 << 7,
};

/*
 * On-demand paging. The per-transport members hold enum ibv_odp_transport_cap_bits; XRC's is xrc_odp_caps
 * below.
 */
struct ibv_odp_caps {
	uint64_t	general_caps;	/* enum ibv_odp_general_caps */
	struct {
		uint32_t	rc_odp_caps;
		uint32_t	uc_odp_caps;
		uint32_t	ud_odp_caps;
	} per_transport_caps;
};

/*
 * TCP segmentation offload: the longest message in bytes, and one bit (1 << type) for each QP type that has
 * it.
 */
struct ibv_tso_caps {
	uint32_t	max_tso;
	uint32_t	supported_qpts;
};

/* Hash functions for receive-side scaling. ibv_create_qp_ex(3) */
enum ibv_rx_hash_function_flags {
	IBV_RX_HASH_FUNC_TOEPLITZ	= 1 << 0,
};

/*
 * Packet fields that enter the hash. One QP uses IPv4 or IPv6 fields and TCP or UDP ports, not both of a
 * kind.
 */
__extension__ enum ibv_rx_hash_fields {
	IBV_RX_HASH_SRC_IPV4		= 1 << 0,
	IBV_RX_HASH_DST_IPV4		= 1 << 1,
	IBV_RX_HASH_SRC_IPV6		= 1 << 2,
	IBV_RX_HASH_DST_IPV6		= 1 << 3,
	IBV_RX_HASH_SRC_PORT_TCP	= 1 << 4,
	IBV_RX_HASH_DST_PORT_TCP	= 1 << 5,
	IBV_RX_HASH_SRC_PORT_UDP	= 1 << 6,
	IBV_RX_HASH_DST_PORT_UDP	= 1 << 7,
	IBV_RX_HASH_IPSEC_SPI		= 1 << 8,
	IBV_RX_HASH_INNER		= 1UL << 31,	/* the fields are those of the inner packet */
};

/* Receive-side scaling: QP types (1 << type), table sizes, and the hash fields and functions on offer. */
struct ibv_rss_caps {
	uint32_t	supported_qpts;
	uint32_t	max_rwq_indirection_tables;
	uint32_t	max_rwq_indirection_table_size;
	uint64_t	rx_hash_fields_mask;	/* enum ibv_rx_hash_fields */
	uint8_t		rx_hash_function;	/* enum ibv_rx_hash_function_flags */
};

/* Rate limiting in kbit/s and the QP types (1 << type) that have it. ibv_modify_qp_rate_limit(3) */
struct ibv_packet_pacing_caps {
	uint32_t	qp_rate_limit_min;
	uint32_t	qp_rate_limit_max;
	uint32_t	supported_qpts;
};

/* Bits of ibv_device_attr_ex.raw_packet_caps. */
enum ibv_raw_packet_caps {
	IBV_RAW_PACKET_CAP_CVLAN_STRIPPING	= 1 << 0,
	IBV_RAW_PACKET_CAP_SCATTER_FCS		= 1 << 1,
	IBV_RAW_PACKET_CAP_IP_CSUM		= 1 << 2,
	IBV_RAW_PACKET_CAP_DELAY_DROP		= 1 << 3,
};

/* Bits of ibv_tm_caps.flags. */
enum ibv_tm_cap_flags {
	IBV_TM_CAP_RC	= 1 << 0,
};

/*
 * Tag matching: rendezvous header bytes, tags per list, outstanding list operations, SGEs per tagged buffer.
 */
struct ibv_tm_caps {
	uint32_t	max_rndv_hdr_size;
	uint32_t	max_num_tags;
	uint32_t	flags;			/* enum ibv_tm_cap_flags */
	uint32_t	max_ops;
	uint32_t	max_sge;
};

/* Event moderation: the largest count and period (in µs) that ibv_modify_cq() takes. */
struct ibv_cq_moderation_caps {
	uint16_t	max_cq_count;
	uint16_t	max_cq_period;
};

/* Sizes of PCI atomic operations. */
enum ibv_pci_atomic_op_size {
	IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP	= 1 << 0,
	IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP	= 1 << 1,
	IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP	= 1 << 2,
};

/* PCI atomics that the device can start: enum ibv_pci_atomic_op_size bits for each operation. */
struct ibv_pci_atomic_caps {
	uint16_t	fetch_add;
	uint16_t	swap;
	uint16_t	compare_swap;
};

/*
 * Everything that can be asked about a device. A library that is older than a member leaves it 0.
 * ibv_query_device_ex(3)
 */
struct ibv_device_attr_ex {
	struct ibv_device_attr		orig_attr;
	uint32_t			comp_mask;
	struct ibv_odp_caps		odp_caps;
	uint64_t			completion_timestamp_mask;	/* valid bits; 0: no timestamps */
	uint64_t			hca_core_clock;			/* kHz; 0: none */
	/* the flags of orig_attr and the 64-bit ones */
	uint64_t			device_cap_flags_ex;
	struct ibv_tso_caps		tso_caps;
	struct ibv_rss_caps		rss_caps;
	uint32_t			max_wq_type_rq;
	struct ibv_packet_pacing_caps	packet_pacing_caps;
	uint32_t			raw_packet_caps;	/* enum ibv_raw_packet_caps */
	struct ibv_tm_caps		tm_caps;
	struct ibv_cq_moderation_caps	cq_mod_caps;
	uint64_t			max_dm_size;		/* bytes of device memory in all */
	struct ibv_pci_atomic_caps	pci_atomic_caps;
	uint32_t			xrc_odp_caps;		/* enum ibv_odp_transport_cap_bits */
	uint32_t			phys_port_cnt_ex;
};

/* Path MTU as a code: 2^(7+n) bytes of payload. ibv_query_port(3), ibv_modify_qp(3) */
enum ibv_mtu {
	IBV_MTU_256	= 1,
	IBV_MTU_512	= 2,
	IBV_MTU_1024	= 3,
	IBV_MTU_2048	= 4,
	IBV_MTU_4096	= 5,
};

/* Logical state of a port. Traffic flows in ACTIVE and ACTIVE_DEFER. ibv_query_port(3) */
enum ibv_port_state {
	IBV_PORT_NOP,
	IBV_PORT_DOWN,
	IBV_PORT_INIT,
	IBV_PORT_ARMED,
	IBV_PORT_ACTIVE,
	IBV_PORT_ACTIVE_DEFER,
};

/* Values of ibv_port_attr.link_layer; UNSPECIFIED is to be read as InfiniBand. */
enum {
	IBV_LINK_LAYER_UNSPECIFIED,
	IBV_LINK_LAYER_INFINIBAND,
	IBV_LINK_LAYER_ETHERNET,
};

/* Bits of ibv_port_attr.port_cap_flags: PortInfo's CapabilityMask (volume 1, 14.2.5.6). ibv_query_port(3) */
enum ibv_port_cap_flags {
	IBV_PORT_SM				= 1 << 1,
	IBV_PORT_NOTICE_SUP			= 1 << 2,
	IBV_PORT_TRAP_SUP			= 1 << 3,
	IBV_PORT_OPT_IPD_SUP			= 1 << 4,
	IBV_PORT_AUTO_MIGR_SUP			= 1 << 5,
	IBV_PORT_SL_MAP_SUP			= 1 << 6,
	IBV_PORT_MKEY_NVRAM			= 1 << 7,
	IBV_PORT_PKEY_NVRAM			= 1 << 8,
	IBV_PORT_LED_INFO_SUP			= 1 << 9,
	IBV_PORT_SYS_IMAGE_GUID_SUP		= 1 << 11,
	IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP	= 1 << 12,
	IBV_PORT_EXTENDED_SPEEDS_SUP		= 1 << 14,
	IBV_PORT_CAP_MASK2_SUP			= 1 << 15,
	IBV_PORT_CM_SUP				= 1 << 16,
	IBV_PORT_SNMP_TUNNEL_SUP		= 1 << 17,
	IBV_PORT_REINIT_SUP			= 1 << 18,
	IBV_PORT_DEVICE_MGMT_SUP		= 1 << 19,
	IBV_PORT_VENDOR_CLASS_SUP		= 1 << 20,
	IBV_PORT_DR_NOTICE_SUP			= 1 << 21,
	IBV_PORT_CAP_MASK_NOTICE_SUP		= 1 << 22,
	IBV_PORT_BOOT_MGMT_SUP			= 1 << 23,
	IBV_PORT_LINK_LATENCY_SUP		= 1 << 24,
	IBV_PORT_CLIENT_REG_SUP			= 1 << 25,
	IBV_PORT_IP_BASED_GIDS			= 1 << 26,
};

/* Bits of ibv_port_attr.port_cap_flags2, valid with IBV_PORT_CAP_MASK2_SUP: PortInfo's CapabilityMask2. */
enum ibv_port_cap_flags2 {
	IBV_PORT_SET_NODE_DESC_SUP		= 1 << 0,
	IBV_PORT_INFO_EXT_SUP			= 1 << 1,
	IBV_PORT_VIRT_SUP			= 1 << 2,
	IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP	= 1 << 3,
	IBV_PORT_LINK_WIDTH_2X_SUP		= 1 << 4,
	IBV_PORT_LINK_SPEED_HDR_SUP		= 1 << 5,
	IBV_PORT_LINK_SPEED_NDR_SUP		= 1 << 10,
	IBV_PORT_LINK_SPEED_XDR_SUP		= 1 << 12,
};

/* A port as it is now. ibv_query_port(3) */
struct ibv_port_attr {
	enum ibv_port_state	state;
	enum ibv_mtu		max_mtu;
	enum ibv_mtu		active_mtu;
	int			gid_tbl_len;
	uint32_t		port_cap_flags;		/* enum ibv_port_cap_flags */
	uint32_t		max_msg_sz;		/* bytes */
	uint32_t		bad_pkey_cntr;
	uint32_t		qkey_viol_cntr;
	uint16_t		pkey_tbl_len;
	uint16_t		lid;			/* 0 on Ethernet */
	uint16_t		sm_lid;
	uint8_t			lmc;
	uint8_t			max_vl_num;
	uint8_t			sm_sl;
	uint8_t			subnet_timeout;
	uint8_t			init_type_reply;
	uint8_t			active_width;		/* lanes: 1, 2, 4, 8 for 1x, 4x, 8x, 12x; 16 for 2x */
	uint8_t			active_speed;		/* per lane: 1, 2, 4, … 128 are SDR to NDR */
	uint8_t			phys_state;		/* 2 polling, 3 disabled, 5 link up */
	uint8_t			link_layer;		/* IBV_LINK_LAYER_* */
	uint8_t			flags;			/* IBV_QPF_* */
	uint16_t		port_cap_flags2;	/* enum ibv_port_cap_flags2 */
	/* active_speed with the bits that it has no room for; 0: older libraries */
	uint32_t		active_speed_ex;
};

/*
 * Kinds of asynchronous events; the member of ibv_async_event.element that is set follows from it.
 * ibv_get_async_event(3)
 */
enum ibv_event_type {
	IBV_EVENT_CQ_ERR,
	IBV_EVENT_QP_FATAL,
	IBV_EVENT_QP_REQ_ERR,
	IBV_EVENT_QP_ACCESS_ERR,
	IBV_EVENT_COMM_EST,
	IBV_EVENT_SQ_DRAINED,
	IBV_EVENT_PATH_MIG,
	IBV_EVENT_PATH_MIG_ERR,
	IBV_EVENT_DEVICE_FATAL,
	IBV_EVENT_PORT_ACTIVE,
	IBV_EVENT_PORT_ERR,
	IBV_EVENT_LID_CHANGE,
	IBV_EVENT_PKEY_CHANGE,
	IBV_EVENT_SM_CHANGE,
	IBV_EVENT_SRQ_ERR,
	IBV_EVENT_SRQ_LIMIT_REACHED,
	IBV_EVENT_QP_LAST_WQE_REACHED,
	IBV_EVENT_CLIENT_REREGISTER,
	IBV_EVENT_GID_CHANGE,
	IBV_EVENT_WQ_FATAL,
	IBV_EVENT_DEVICE_SPEED_CHANGE,
};

/*
 * One asynchronous event and the object that it is about (a port number for port events). Must be
 * acknowledged.
 */
struct ibv_async_event {
	union {
		struct ibv_cq	*cq;
		struct ibv_qp	*qp;
		struct ibv_srq	*srq;
		struct ibv_wq	*wq;
		int		port_num;
	} element;
	enum ibv_event_type	event_type;
};

/* What ibv_query_rt_values_ex() is asked for and has delivered. */
enum ibv_values_mask {
	IBV_VALUES_MASK_RAW_CLOCK	= 1 << 0,
	IBV_VALUES_MASK_RESERVED	= 1 << 1,
};

/*
 * Values that change all the time. raw_clock: tv_nsec counts ticks of hca_core_clock.
 * ibv_query_rt_values_ex(3)
 */
struct ibv_values_ex {
	uint32_t	comp_mask;	/* enum ibv_values_mask */
	struct timespec	raw_clock;
};

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_DEVICE_H */
