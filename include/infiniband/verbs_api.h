/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs names of those types and constants that the kernel's user interface also defines. Each is an
 * alias, so that a value can be handed on without translation. Included by <infiniband/verbs.h>; not meant
 * to be included alone.
 */
#ifndef VERBS_API_H
#define VERBS_API_H

#include <endian.h>
#include <stdint.h>

/*
 * Declares a pointer member that takes eight aligned bytes on every architecture, so that a 32-bit program
 * can share the structure with a 64-bit kernel. NAME is the pointer, NAME_data_u64 the same bytes as an
 * integer.
 */
#if UINTPTR_MAX == UINT64_MAX
#define RDMA_UAPI_PTR(_type, _name)							\
	__extension__ union {								\
		_type _name;								\
		__aligned_u64 _name##_data_u64;						\
	}
#elif UINTPTR_MAX == UINT32_MAX && __BYTE_ORDER == __LITTLE_ENDIAN
#define RDMA_UAPI_PTR(_type, _name)							\
	__extension__ union {								\
		__aligned_u64 _name##_data_u64;						\
		struct { _type _name; __u32 _name##_reserved; };			\
	}
#elif UINTPTR_MAX == UINT32_MAX
#define RDMA_UAPI_PTR(_type, _name)							\
	__extension__ union {								\
		__aligned_u64 _name##_data_u64;						\
		struct { __u32 _name##_reserved; _type _name; };			\
	}
#else
#error "verbs needs pointers of 32 or 64 bits"
#endif

#include <infiniband/ib_user_ioctl_verbs.h>

/*
 * Access flags from FIRST to the end of RANGE are optional: a library that cannot honour one ignores it.
 * ibv_reg_mr(3)
 */
#define IBV_ACCESS_OPTIONAL_FIRST	IB_UVERBS_ACCESS_OPTIONAL_FIRST
#define IBV_ACCESS_OPTIONAL_RANGE	IB_UVERBS_ACCESS_OPTIONAL_RANGE

/* Bit of ibv_port_attr.flags: every address handle and path of the port needs a GRH. ibv_query_port(3) */
#define IBV_QPF_GRH_REQUIRED		IB_UVERBS_QPF_GRH_REQUIRED

/* What ibv_advise_mr() can be told about memory ranges. ibv_advise_mr(3) */
#define ibv_advise_mr_advice			ib_uverbs_advise_mr_advice
#define IBV_ADVISE_MR_ADVICE_PREFETCH		IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH
#define IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE	IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT	IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
#define IBV_ADVISE_MR_FLAG_FLUSH		IB_UVERBS_ADVISE_MR_FLAG_FLUSH

/* IPsec ESP offload: the parts of struct ibv_flow_action_esp_attr. ibv_create_flow_action(3) */
#define ibv_flow_action_esp			ib_uverbs_flow_action_esp
#define ibv_flow_action_esp_encap		ib_uverbs_flow_action_esp_encap

#define ibv_flow_action_esp_keymat		ib_uverbs_flow_action_esp_keymat
#define IBV_FLOW_ACTION_ESP_KEYMAT_AES_GCM	IB_UVERBS_FLOW_ACTION_ESP_KEYMAT_AES_GCM
#define ibv_flow_action_esp_keymat_aes_gcm	ib_uverbs_flow_action_esp_keymat_aes_gcm
#define ibv_flow_action_esp_keymat_aes_gcm_iv_algo	ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo
#define IBV_FLOW_ACTION_IV_ALGO_SEQ		IB_UVERBS_FLOW_ACTION_IV_ALGO_SEQ

#define ibv_flow_action_esp_replay		ib_uverbs_flow_action_esp_replay
#define IBV_FLOW_ACTION_ESP_REPLAY_NONE		IB_UVERBS_FLOW_ACTION_ESP_REPLAY_NONE
#define IBV_FLOW_ACTION_ESP_REPLAY_BMP		IB_UVERBS_FLOW_ACTION_ESP_REPLAY_BMP
#define ibv_flow_action_esp_replay_bmp		ib_uverbs_flow_action_esp_replay_bmp

#define ibv_flow_action_esp_flags		ib_uverbs_flow_action_esp_flags
#define IBV_FLOW_ACTION_ESP_FLAGS_INLINE_CRYPTO	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_INLINE_CRYPTO
#define IBV_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD
#define IBV_FLOW_ACTION_ESP_FLAGS_TUNNEL	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TUNNEL
#define IBV_FLOW_ACTION_ESP_FLAGS_TRANSPORT	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TRANSPORT
#define IBV_FLOW_ACTION_ESP_FLAGS_DECRYPT	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_DECRYPT
#define IBV_FLOW_ACTION_ESP_FLAGS_ENCRYPT	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ENCRYPT
#define IBV_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW	IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW

#endif /* VERBS_API_H */
