/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers and structures of the kernel's verbs interface, as far as programs see them through
 * <infiniband/verbs.h>. Portable programs use the IBV_ names. This library talks to no kernel driver; the
 * values are part of the ABI.
 */
#ifndef IB_USER_IOCTL_VERBS_H
#define IB_USER_IOCTL_VERBS_H

#include <linux/types.h>
#include <rdma/ib_user_verbs.h>

/* <infiniband/verbs_api.h> defines it with a typed pointer; alone, only the eight bytes are declared. */
#ifndef RDMA_UAPI_PTR
#define RDMA_UAPI_PTR(_type, _name)	__aligned_u64 _name
#endif

/* First and last bit of the access flags that may be ignored. See IBV_ACCESS_OPTIONAL_RANGE. */
#define IB_UVERBS_ACCESS_OPTIONAL_FIRST	(1 << 20)
#define IB_UVERBS_ACCESS_OPTIONAL_LAST	(1 << 29)

/* What the kernel's verbs core can do, as reported when a device is opened. */
enum ib_uverbs_core_support {
	IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS	= 1 << 0,
	IB_UVERBS_CORE_SUPPORT_ROBUST_UDATA		= 1 << 1,
};

/* Rights on a memory region. See enum ibv_access_flags. */
enum ib_uverbs_access_flags {
	IB_UVERBS_ACCESS_LOCAL_WRITE		= 1 << 0,
	IB_UVERBS_ACCESS_REMOTE_WRITE		= 1 << 1,
	IB_UVERBS_ACCESS_REMOTE_READ		= 1 << 2,
	IB_UVERBS_ACCESS_REMOTE_ATOMIC		= 1 << 3,
	IB_UVERBS_ACCESS_MW_BIND		= 1 << 4,
	IB_UVERBS_ACCESS_ZERO_BASED		= 1 << 5,
	IB_UVERBS_ACCESS_ON_DEMAND		= 1 << 6,
	IB_UVERBS_ACCESS_HUGETLB		= 1 << 7,
	IB_UVERBS_ACCESS_FLUSH_GLOBAL		= 1 << 8,
	IB_UVERBS_ACCESS_FLUSH_PERSISTENT	= 1 << 9,
	IB_UVERBS_ACCESS_RELAXED_ORDERING	= IB_UVERBS_ACCESS_OPTIONAL_FIRST,
	IB_UVERBS_ACCESS_OPTIONAL_RANGE		= 0x3ff << 20,	/* bits FIRST to LAST */
};

/* See enum ibv_srq_type. */
enum ib_uverbs_srq_type {
	IB_UVERBS_SRQT_BASIC,
	IB_UVERBS_SRQT_XRC,
	IB_UVERBS_SRQT_TM,
};

/* See enum ibv_wq_type. */
enum ib_uverbs_wq_type {
	IB_UVERBS_WQT_RQ,
};

/* See enum ibv_wq_flags. */
enum ib_uverbs_wq_flags {
	IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING		= 1 << 0,
	IB_UVERBS_WQ_FLAGS_SCATTER_FCS			= 1 << 1,
	IB_UVERBS_WQ_FLAGS_DELAY_DROP			= 1 << 2,
	IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING	= 1 << 3,
};

/* See enum ibv_qp_type. */
enum ib_uverbs_qp_type {
	IB_UVERBS_QPT_RC		= 2,
	IB_UVERBS_QPT_UC		= 3,
	IB_UVERBS_QPT_UD		= 4,
	IB_UVERBS_QPT_RAW_PACKET	= 8,
	IB_UVERBS_QPT_XRC_INI		= 9,
	IB_UVERBS_QPT_XRC_TGT		= 10,
	IB_UVERBS_QPT_DRIVER		= 0xff,
};

/* See enum ibv_qp_create_flags. */
enum ib_uverbs_qp_create_flags {
	IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK	= 1 << 1,
	IB_UVERBS_QP_CREATE_SCATTER_FCS			= 1 << 8,
	IB_UVERBS_QP_CREATE_CVLAN_STRIPPING		= 1 << 9,
	IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING	= 1 << 11,
	IB_UVERBS_QP_CREATE_SQ_SIG_ALL			= 1 << 12,
};

/*
 * Port capabilities: the PortInfo CapabilityMask of the InfiniBand specification (volume 1, 14.2.5.6). Bit 26
 * is used locally for "GIDs are IP addresses". See enum ibv_port_cap_flags.
 */
__extension__ enum ib_uverbs_query_port_cap_flags {
	IB_UVERBS_PCF_SM				= 1 << 1,
	IB_UVERBS_PCF_NOTICE_SUP			= 1 << 2,
	IB_UVERBS_PCF_TRAP_SUP				= 1 << 3,
	IB_UVERBS_PCF_OPT_IPD_SUP			= 1 << 4,
	IB_UVERBS_PCF_AUTO_MIGR_SUP			= 1 << 5,
	IB_UVERBS_PCF_SL_MAP_SUP			= 1 << 6,
	IB_UVERBS_PCF_MKEY_NVRAM			= 1 << 7,
	IB_UVERBS_PCF_PKEY_NVRAM			= 1 << 8,
	IB_UVERBS_PCF_LED_INFO_SUP			= 1 << 9,
	IB_UVERBS_PCF_SM_DISABLED			= 1 << 10,
	IB_UVERBS_PCF_SYS_IMAGE_GUID_SUP		= 1 << 11,
	IB_UVERBS_PCF_PKEY_SW_EXT_PORT_TRAP_SUP		= 1 << 12,
	IB_UVERBS_PCF_EXTENDED_SPEEDS_SUP		= 1 << 14,
	IB_UVERBS_PCF_CM_SUP				= 1 << 16,
	IB_UVERBS_PCF_SNMP_TUNNEL_SUP			= 1 << 17,
	IB_UVERBS_PCF_REINIT_SUP			= 1 << 18,
	IB_UVERBS_PCF_DEVICE_MGMT_SUP			= 1 << 19,
	IB_UVERBS_PCF_VENDOR_CLASS_SUP			= 1 << 20,
	IB_UVERBS_PCF_DR_NOTICE_SUP			= 1 << 21,
	IB_UVERBS_PCF_CAP_MASK_NOTICE_SUP		= 1 << 22,
	IB_UVERBS_PCF_BOOT_MGMT_SUP			= 1 << 23,
	IB_UVERBS_PCF_LINK_LATENCY_SUP			= 1 << 24,
	IB_UVERBS_PCF_CLIENT_REG_SUP			= 1 << 25,
	IB_UVERBS_PCF_IP_BASED_GIDS			= 1 << 26,
	IB_UVERBS_PCF_LINK_SPEED_WIDTH_TABLE_SUP	= 1 << 27,
	IB_UVERBS_PCF_VENDOR_SPECIFIC_MADS_TABLE_SUP	= 1 << 28,
	IB_UVERBS_PCF_MCAST_PKEY_TRAP_SUPPRESSION_SUP	= 1 << 29,
	IB_UVERBS_PCF_MCAST_FDB_TOP_SUP			= 1 << 30,
	IB_UVERBS_PCF_HIERARCHY_INFO_SUP		= 0x80000000,
};

/* See IBV_QPF_GRH_REQUIRED. */
enum ib_uverbs_query_port_flags {
	IB_UVERBS_QPF_GRH_REQUIRED	= 1 << 0,
};

/* Kinds of key material of an ESP action: which structure ibv_flow_action_esp_attr.keymat_ptr points to. */
enum ib_uverbs_flow_action_esp_keymat {
	IB_UVERBS_FLOW_ACTION_ESP_KEYMAT_AES_GCM,
};

/* How an AES-GCM initialization vector goes on from packet to packet. */
enum ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo {
	IB_UVERBS_FLOW_ACTION_IV_ALGO_SEQ,
};

/* AES-GCM key material. Lengths are in bytes; key_len says how much of aes_key counts. */
struct ib_uverbs_flow_action_esp_keymat_aes_gcm {
	__aligned_u64	iv;
	__u32		iv_algo;	/* enum ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo */
	__u32		salt;
	__u32		icv_len;
	__u32		key_len;
	__u32		aes_key[8];	/* up to 256 bits */
};

/*
 * Kinds of replay protection of an ESP action: which structure ibv_flow_action_esp_attr.replay_ptr points
 * to.
 */
enum ib_uverbs_flow_action_esp_replay {
	IB_UVERBS_FLOW_ACTION_ESP_REPLAY_NONE,
	IB_UVERBS_FLOW_ACTION_ESP_REPLAY_BMP,
};

/* Replay protection by a bitmap; size in packets. */
struct ib_uverbs_flow_action_esp_replay_bmp {
	__u32	size;
};

/*
 * ESP modes: three choices in one bit each, zero being the default, and a one-time order to move the ESN
 * window.
 */
enum ib_uverbs_flow_action_esp_flags {
	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_INLINE_CRYPTO	= 0,
	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD	= 1 << 0,
	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TUNNEL		= 0,
	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TRANSPORT	= 1 << 1,
	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_DECRYPT		= 0,
	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ENCRYPT		= 1 << 2,
	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW	= 1 << 3,
};

/* One header put around the payload in ESP tunnel mode; a list, outermost first, ended by a null next_ptr. */
struct ib_uverbs_flow_action_esp_encap {
	RDMA_UAPI_PTR(void *, val_ptr);		/* an ibv_flow_*_filter */
	RDMA_UAPI_PTR(struct ib_uverbs_flow_action_esp_encap *, next_ptr);
	__u16	len;				/* bytes at val_ptr */
	__u16	type;				/* enum ibv_flow_spec_type */
};

/* An ESP security association: SPI, first sequence number, flags of enum ib_uverbs_flow_action_esp_flags. */
struct ib_uverbs_flow_action_esp {
	__u32		spi;
	__u32		seq;
	__u32		tfc_pad;		/* bytes of traffic flow confidentiality padding */
	__u32		flags;
	/* packets after which the association is dead; 0 is no limit */
	__aligned_u64	hard_limit_pkts;
};

/* See enum ibv_read_counters_flags. */
enum ib_uverbs_read_counters_flags {
	IB_UVERBS_READ_COUNTERS_PREFER_CACHED	= 1 << 0,
};

/* Kinds of prefetch: for reading, for writing too, and only what is present without a page fault. */
enum ib_uverbs_advise_mr_advice {
	IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH,
	IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
	IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
};

/* FLUSH: the call returns only when the advice has been followed. */
enum ib_uverbs_advise_mr_flag {
	IB_UVERBS_ADVISE_MR_FLAG_FLUSH	= 1 << 0,
};

/* The kernel's answer to a port query; programs see struct ibv_port_attr. */
struct ib_uverbs_query_port_resp_ex {
	struct ib_uverbs_query_port_resp	legacy_resp;
	__u16	port_cap_flags2;
	__u8	reserved[2];
	__u32	active_speed_ex;
};

/* See struct ibv_qp_cap. */
struct ib_uverbs_qp_cap {
	__u32	max_send_wr;
	__u32	max_recv_wr;
	__u32	max_send_sge;
	__u32	max_recv_sge;
	__u32	max_inline_data;
};

/* Numbers of the kernel's drivers. Devices of this library have none of them. */
enum rdma_driver_id {
	RDMA_DRIVER_UNKNOWN	= 0,
	RDMA_DRIVER_MLX5	= 1,
	RDMA_DRIVER_MLX4	= 2,
	RDMA_DRIVER_CXGB3	= 3,
	RDMA_DRIVER_CXGB4	= 4,
	RDMA_DRIVER_MTHCA	= 5,
	RDMA_DRIVER_BNXT_RE	= 6,
	RDMA_DRIVER_OCRDMA	= 7,
	RDMA_DRIVER_NES		= 8,
	RDMA_DRIVER_I40IW	= 9,
	RDMA_DRIVER_IRDMA	= 9,
	RDMA_DRIVER_VMW_PVRDMA	= 10,
	RDMA_DRIVER_QEDR	= 11,
	RDMA_DRIVER_HNS		= 12,
	RDMA_DRIVER_USNIC	= 13,
	RDMA_DRIVER_RXE		= 14,
	RDMA_DRIVER_HFI1	= 15,
	RDMA_DRIVER_QIB		= 16,
	RDMA_DRIVER_EFA		= 17,
	RDMA_DRIVER_SIW		= 18,
	RDMA_DRIVER_ERDMA	= 19,
	RDMA_DRIVER_MANA	= 20,
	RDMA_DRIVER_IONIC	= 21,
};

/* See enum ibv_gid_type. */
enum ib_uverbs_gid_type {
	IB_UVERBS_GID_TYPE_IB,
	IB_UVERBS_GID_TYPE_ROCE_V1,
	IB_UVERBS_GID_TYPE_ROCE_V2,
};

/* See struct ibv_gid_entry. netdev_ifindex is 0 without a network interface. */
struct ib_uverbs_gid_entry {
	__aligned_u64	gid[2];
	__u32		gid_index;
	__u32		port_num;
	__u32		gid_type;
	__u32		netdev_ifindex;
};

/* Memory that a call is told of: a dma-buf, or addresses of the program's. */
enum ib_uverbs_buffer_type {
	IB_UVERBS_BUFFER_TYPE_DMABUF,
	IB_UVERBS_BUFFER_TYPE_VA,
};

struct ib_uverbs_buffer_desc {
	__u32		type;		/* enum ib_uverbs_buffer_type */
	__s32		fd;
	__u32		flags;		/* 0; unknown ones are refused */
	__u32		optional_flags;	/* 0; unknown ones are ignored */
	__aligned_u64	addr;		/* the offset in a dma-buf */
	__aligned_u64	length;		/* bytes */
};

/* The two numbers of a completion counter. See struct ibv_comp_cntr. */
enum ib_uverbs_comp_cntr_entry {
	IB_UVERBS_COMP_CNTR_ENTRY_COMP,
	IB_UVERBS_COMP_CNTR_ENTRY_ERR,
};

enum ib_uverbs_comp_cntr_modify_op {
	IB_UVERBS_COMP_CNTR_MODIFY_OP_SET,
	IB_UVERBS_COMP_CNTR_MODIFY_OP_INC,
};

/* See enum ibv_qp_attach_comp_cntr_op. */
enum ib_uverbs_qp_attach_comp_cntr_op {
	IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_SEND			= 1 << 0,
	IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RECV			= 1 << 1,
	IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_READ		= 1 << 2,
	IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ	= 1 << 3,
	IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE		= 1 << 4,
	IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE	= 1 << 5,
};

#endif /* IB_USER_IOCTL_VERBS_H */
