/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that two kernels with rdma_rxe (Debian's 6.1) sent each other: each must pass every check here and
 * be read field by field as it was meant. In a MAD the rest of the 256 bytes behind those given is zero.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "wire/cm_msg.h"
#include "wire/icrc.h"
#include "wire/ip_cm.h"
#include "wire/packet.h"
#include "../packet_line.h"

enum {
	CLIENT = 3, SERVER = 2,		/* the last bytes of their addresses */
	ROCE_PORT = 4791,
	MAX_BYTES = 280,
};

struct captured {
	bool ipv6, from_client;
	uint16_t source_port, ip_id;
	uint16_t bytes;			/* BTH to ICRC */
	uint8_t head[224];		/* from the BTH on; zeros follow up to the ICRC */
	uint8_t icrc[VB_ICRC_BYTES];
	const char *line;
};

static const struct captured packets[] = {
	/* the end of an ibv_rc_pingpong message of 4,097 bytes: one byte and three of padding */
	{
		.from_client = true,
		.source_port = 49441,
		.ip_id = 0xb560,
		.bytes = 20,
		.icrc = { 0x68, 0x0f, 0x7d, 0xae },
		.head = { 2, 0x30, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0x65, 0xd7, 0x6e, 0x7b },
		.line = "RC SEND_LAST pad_count=0x3 pkey=0xffff destination_qpn=0x11 ack_request=0x1 psn=0x65d76e "
			"payload=4",
	},
	/* its ACK: no credits */
	{
		.from_client = false,
		.source_port = 49441,
		.ip_id = 0x8ac8,
		.bytes = 20,
		.icrc = { 0x5a, 0xbf, 0xa5, 0x85 },
		.head = { 0x11, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0x65, 0xd7, 0x6e, 0x1f, 0, 0, 1 },
		.line = "RC ACKNOWLEDGE pkey=0xffff destination_qpn=0x11 psn=0x65d76e AETH{ syndrome=0x1f msn=0x1 }",
	},
	/* rping fetches what the client offers */
	{
		.from_client = false,
		.source_port = 53647,
		.ip_id = 0x8e8d,
		.bytes = 32,
		.icrc = { 0xf4, 0xc9, 0xb1, 0xc9 },
		.head = { 0x0c, 0,    0xff, 0xff, 0,	0,    0, 0x15, 0x80, 0x8e, 0x1b, 0xbe, 0, 0,
			  0x55, 0xfa, 0x92, 6,	  0x45, 0xf0, 0, 0,    9,    2,	   0,	 0,    0, 0x64 },
		.line = "RC READ_REQUEST pkey=0xffff destination_qpn=0x15 ack_request=0x1 psn=0x8e1bbe RETH{ "
			"address=0x55fa920645f0 rkey=0x902 length=0x64 }",
	},
	/* the same over IPv6 */
	{
		.ipv6 = true,
		.from_client = false,
		.source_port = 61858,
		.bytes = 32,
		.icrc = { 0x8d, 0xe0, 0xba, 0x92 },
		.head = { 0x0c, 0,    0xff, 0xff, 0,	0,    0, 0x16, 0x80, 0x91, 0x67, 0xbb, 0,    0,
			  0x56, 0x15, 0xdc, 0x65, 0xd2, 0x90, 0, 0,    0x0d, 0xfa, 0,	 0,    0x0b, 0xb9 },
		.line = "RC READ_REQUEST pkey=0xffff destination_qpn=0x16 ack_request=0x1 psn=0x9167bb RETH{ "
			"address=0x5615dc65d290 rkey=0xdfa length=0xbb9 }",
	},
	/* the answer to the first */
	{
		.from_client = true,
		.source_port = 53647,
		.ip_id = 0xbef7,
		.bytes = 120,
		.icrc = { 0x5a, 0x60, 0xe6, 0x47 },
		.head = { 0x10, 0,    0xff, 0xff, 0,	0,    0,    0x15, 0,	0x8e, 0x1b, 0xbe, 0x1f,
			  0,	0,    1,    0x72, 0x64, 0x6d, 0x61, 0x2d, 0x70, 0x69, 0x6e, 0x67, 0x2d,
			  0x30, 0x3a, 0x20, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a,
			  0x4b, 0x4c, 0x4d, 0x4e, 0x4f, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57,
			  0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f, 0x60, 0x61, 0x62, 0x63, 0x64,
			  0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f, 0x70, 0x71,
			  0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x41, 0x42, 0x43, 0x44,
			  0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f, 0x50, 0x51,
			  0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c },
		.line = "RC READ_RESPONSE_ONLY pkey=0xffff destination_qpn=0x15 psn=0x8e1bbe AETH{ syndrome=0x1f msn=0x1 "
			"} payload=100",
	},
	/* ib_write_lat over UC: two bytes, padded */
	{
		.from_client = false,
		.source_port = 49908,
		.ip_id = 0x9627,
		.bytes = 36,
		.icrc = { 0x8b, 0x21, 0x8c, 0x87 },
		.head = { 0x2a, 0x20, 0xff, 0xff, 0, 0, 0, 0x1c, 0,    0x95, 0x5e, 0x2b, 0, 0, 0x55,
			  0x89, 0xc9, 0xe0, 0xb0, 0, 0, 0, 0x16, 0xf9, 0,    0,	   0,	 2, 0, 1 },
		.line = "UC WRITE_ONLY pad_count=0x2 pkey=0xffff destination_qpn=0x1c psn=0x955e2b RETH{ "
			"address=0x5589c9e0b000 rkey=0x16f9 length=0x2 } payload=4",
	},
	/* ib_atomic_lat */
	{
		.from_client = true,
		.source_port = 49854,
		.ip_id = 0xc908,
		.bytes = 44,
		.icrc = { 0xa8, 0xf7, 0xed, 0x16 },
		.head = { 0x14, 0,    0xff, 0xff, 0, 0, 0,    0x1a, 0x80, 0x19, 0xe2, 0x19, 0, 0, 0x55, 0x87,
			  0xdc, 0xa1, 0xe0, 0,	  0, 0, 0x0f, 0xe8, 0,	  0,	0,    0,    0, 0, 0,	1 },
		.line = "RC FETCH_ADD pkey=0xffff destination_qpn=0x1a ack_request=0x1 psn=0x19e219 ATOMICETH{ "
			"address=0x5587dca1e000 rkey=0xfe8 swap_or_add=0x1 }",
	},
	/* its answer */
	{
		.from_client = false,
		.source_port = 49854,
		.ip_id = 0x9517,
		.bytes = 28,
		.icrc = { 0xd3, 0xa4, 0xfb, 0x68 },
		.head = { 0x12, 0, 0xff, 0xff, 0,    0,	   0,	 0x1b, 0,    0x19, 0xe2, 0x19,
			  0x1f, 0, 0,	 1,    0xd6, 0x7a, 0x3b, 0x11, 0x6e, 0x9e, 0x7b, 0xd5 },
		.line = "RC ATOMIC_ACKNOWLEDGE pkey=0xffff destination_qpn=0x1b psn=0x19e219 AETH{ syndrome=0x1f msn=0x1 "
			"} ATOMICACKETH{ original=0xd67a3b116e9e7bd5 }",
	},
	/* ib_atomic_lat -A CMP_AND_SWAP */
	{
		.from_client = true,
		.source_port = 49964,
		.ip_id = 0xcf5d,
		.bytes = 44,
		.icrc = { 0x87, 0x22, 0xe3, 0x93 },
		.head = { 0x13, 0, 0xff, 0xff, 0,    0,	   0,	 0x1c, 0x80, 0xa3, 0xea, 0x0f,
			  0,	0, 0x55, 0x62, 0x3d, 0xae, 0xe0, 0,    0,    0,	   0x11, 0x42 },
		.line = "RC COMPARE_SWAP pkey=0xffff destination_qpn=0x1c ack_request=0x1 psn=0xa3ea0f ATOMICETH{ "
			"address=0x55623daee000 rkey=0x1142 }",
	},
	/* udaddy */
	{
		.from_client = true,
		.source_port = 51891,
		.ip_id = 0xc20f,
		.bytes = 128,
		.icrc = { 0x66, 0x70, 0x06, 0x5a },
		.head = { 0x65, 0,    0xff, 0xff, 0, 0, 0, 0x18, 0, 0, 0, 0,
			  1,	0x23, 0x45, 0x67, 0, 0, 0, 0x18, 0, 0, 0, 0x18 },
		.line = "UD SEND_ONLY_IMM pkey=0xffff destination_qpn=0x18 DETH{ qkey=0x1234567 source_qpn=0x18 } IMMDT{ "
			"} payload=100",
	},
	/* rping's connection, from REQ to DREP; the messages to QP 1 ask for an ACK, in vain */
	{
		.from_client = true,
		.source_port = 55410,
		.ip_id = 0xbeef,
		.bytes = 280,
		.icrc = { 0xbf, 0x45, 0x04, 0x7d },
		.head = { 0x64, 0,    0xff, 0xff, 0,	0,    0,    1,	  0x80, 0,    0, 0, 0x80, 1,	0,
			  0,	0,    0,    0,	  1,	1,    7,    2,	  3,	0,    0, 0, 0,	  0,	0,
			  0,	2,    0xfa, 6,	  0x15, 0xbc, 0,    0x10, 0,	0,    0, 0, 0,	  0,	0xbc,
			  0x15, 6,    0xfa, 0,	  0,	0,    0,    0,	  0,	0,    0, 1, 6,	  0x6a, 0xa9,
			  0x50, 0x54, 0,    0xff, 0xfe, 0x77, 0,    3,	  0,	0,    0, 0, 0,	  0,	0,
			  0,	0,    0,    0x15, 1,	0,    0,    0,	  1,	0,    0, 0, 0xa0, 0x8e, 0x1b,
			  0xbe, 0xa7, 0xff, 0xff, 0x37, 0xf0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0,	  0,	0,
			  0,	0,    0,    0,	  0,	0xff, 0xff, 0x0a, 0x4d, 1,    3, 0, 0,	  0,	0,
			  0,	0,    0,    0,	  0,	0,    0xff, 0xff, 0x0a, 0x4d, 1, 2, 0xcd, 0x1b, 0xc0,
			  0,	0,    0x40, 0,	  0x98, 0,    0,    0,	  0,	0,    0, 0, 0,	  0,	0,
			  0,	0,    0,    0,	  0,	0,    0,    0,	  0,	0,    0, 0, 0,	  0,	0,
			  0,	0,    0,    0,	  0,	0,    0,    0,	  0,	0,    0, 0, 0,	  0,	0,
			  0,	0,    0,    0,	  0,	0x40, 0xea, 0x8d, 0,	0,    0, 0, 0,	  0,	0,
			  0,	0,    0,    0,	  0,	0x0a, 0x4d, 1,	  3,	0,    0, 0, 0,	  0,	0,
			  0,	0,    0,    0,	  0,	0,    0x0a, 0x4d, 1,	2 },
		.line = "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 ack_request=0x1 DETH{ qkey=0x80010000 "
			"source_qpn=0x1 } CM REQ tid=0x2fa0615bc local_comm_id=0xbc1506fa service_id=0x1066aa9 "
			"local_ca_guid=0x505400fffe770003 local_qpn=0x15 responder_resources=0x1 initiator_depth=0x1 "
			"remote_cm_response_timeout=0x14 starting_psn=0x8e1bbe local_cm_response_timeout=0x14 "
			"retry_count=0x7 pkey=0xffff path_mtu=0x3 rnr_retry_count=0x7 max_cm_retries=0xf "
			"primary_local_lid=0xffff primary_remote_lid=0xffff primary_local_gid=0:0:0:0:0:ffff:a4d:103 "
			"primary_remote_gid=0:0:0:0:0:ffff:a4d:102 primary_flow_label=0xcd1bc primary_hop_limit=0x40 "
			"primary_local_ack_timeout=0x13",
	},
	{
		.from_client = false,
		.source_port = 55410,
		.ip_id = 0x8e86,
		.bytes = 280,
		.icrc = { 0x84, 0xe7, 0x1e, 0xcd },
		.head = { 0x64, 0,    0xff, 0xff, 0,	0,    0,    1,	  0x80, 0,    0,    0, 0x80, 1,
			  0,	0,    0,    0,	  0,	1,    1,    7,	  2,	3,    0,    0, 0,    0,
			  0,	0,    0,    2,	  0xfa, 6,    0x15, 0xbc, 0,	0x13, 0,    0, 0,    0,
			  0,	0,    0xc5, 0xfa, 0xe0, 0xef, 0xbc, 0x15, 6,	0xfa, 0,    0, 0,    0,
			  0,	0,    0x15, 0,	  0,	0,    0,    0,	  0x68, 0x0c, 0x74, 0, 1,    1,
			  0x78, 0xe0, 0x50, 0x54, 0,	0xff, 0xfe, 0x77, 0,	2 },
		.line = "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 ack_request=0x1 DETH{ qkey=0x80010000 "
			"source_qpn=0x1 } CM REP tid=0x2fa0615bc local_comm_id=0xc5fae0ef remote_comm_id=0xbc1506fa "
			"local_qpn=0x15 starting_psn=0x680c74 responder_resources=0x1 initiator_depth=0x1 "
			"target_ack_delay=0xf rnr_retry_count=0x7 local_ca_guid=0x505400fffe770002",
	},
	{
		.from_client = true,
		.source_port = 55410,
		.ip_id = 0xbef3,
		.bytes = 280,
		.icrc = { 0xe1, 0x0f, 0xc1, 0x7f },
		.head = { 0x64, 0, 0xff, 0xff, 0, 0,	0,    1, 0x80, 0,    0,	   1,	 0x80,
			  1,	0, 0,	 0,    0, 0,	1,    1, 7,    2,    3,	   0,	 0,
			  0,	0, 0,	 0,    0, 2,	0xfa, 6, 0x15, 0xbc, 0,	   0x14, 0,
			  0,	0, 0,	 0,    0, 0xbc, 0x15, 6, 0xfa, 0xc5, 0xfa, 0xe0, 0xef },
		.line = "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 ack_request=0x1 psn=0x1 DETH{ qkey=0x80010000 "
			"source_qpn=0x1 } CM RTU tid=0x2fa0615bc local_comm_id=0xbc1506fa remote_comm_id=0xc5fae0ef",
	},
	{
		.from_client = true,
		.source_port = 55410,
		.ip_id = 0xbf37,
		.bytes = 280,
		.icrc = { 0xd2, 0xcd, 0x3f, 0x34 },
		.head = { 0x64, 0, 0xff, 0xff, 0,    0,	   0,	 1,    0x80, 0,	   0, 2, 0x80, 1,
			  0,	0, 0,	 0,    0,    1,	   1,	 7,    2,    3,	   0, 0, 0,    0,
			  0,	0, 0,	 2,    0xfa, 6,	   0x15, 0xbc, 0,    0x15, 0, 0, 0,    0,
			  0,	0, 0xbc, 0x15, 6,    0xfa, 0xc5, 0xfa, 0xe0, 0xef, 0, 0, 0x15 },
		.line = "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 ack_request=0x1 psn=0x2 DETH{ qkey=0x80010000 "
			"source_qpn=0x1 } CM DREQ tid=0x2fa0615bc local_comm_id=0xbc1506fa remote_comm_id=0xc5fae0ef "
			"remote_qpn=0x15",
	},
	{
		.from_client = false,
		.source_port = 55410,
		.ip_id = 0x8eee,
		.bytes = 280,
		.icrc = { 0xc0, 0xac, 0xeb, 0x61 },
		.head = { 0x64, 0, 0xff, 0xff, 0, 0,	0,    1,    0x80, 0,	0,    1,    0x80,
			  1,	0, 0,	 0,    0, 0,	1,    1,    7,	  2,	3,    0,    0,
			  0,	0, 0,	 0,    0, 2,	0xfa, 6,    0x15, 0xbc, 0,    0x16, 0,
			  0,	0, 0,	 0,    0, 0xc5, 0xfa, 0xe0, 0xef, 0xbc, 0x15, 6,    0xfa },
		.line = "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 ack_request=0x1 psn=0x1 DETH{ qkey=0x80010000 "
			"source_qpn=0x1 } CM DREP tid=0x2fa0615bc local_comm_id=0xc5fae0ef remote_comm_id=0xbc1506fa",
	},
	/* rping over IPv6 */
	{
		.ipv6 = true,
		.from_client = true,
		.source_port = 55410,
		.bytes = 280,
		.icrc = { 0x63, 0x32, 0xf9, 0x33 },
		.head = { 0x64, 0,    0xff, 0xff, 0,	0,    0,    1,	  0x80, 0,    0,    3,	  0x80, 1,
			  0,	0,    0,    0,	  0,	1,    1,    7,	  2,	3,    0,    0,	  0,	0,
			  0,	0,    0,    2,	  0xfa, 6,    0x15, 0xbd, 0,	0x10, 0,    0,	  0,	0,
			  0,	0,    0xbd, 0x15, 6,	0xfa, 0,    0,	  0,	0,    0,    0,	  0,	0,
			  1,	6,    0x6a, 0xaa, 0x50, 0x54, 0,    0xff, 0xfe, 0x77, 0,    3,	  0,	0,
			  0,	0,    0,    0,	  0,	0,    0,    0,	  0x16, 1,    0,    0,	  0,	1,
			  0,	0,    0,    0xa0, 0x91, 0x67, 0xbb, 0xa7, 0xff, 0xff, 0x37, 0xf0, 0xff, 0xff,
			  0xff, 0xff, 0xfd, 0x77, 0,	1,    0,    0,	  0,	0,    0,    0,	  0,	0,
			  0,	0,    0,    3,	  0xfd, 0x77, 0,    1,	  0,	0,    0,    0,	  0,	0,
			  0,	0,    0,    0,	  0,	2,    0x5b, 0x1b, 0x40, 0,    0,    0x40, 0,	0x98,
			  0,	0,    0,    0,	  0,	0,    0,    0,	  0,	0,    0,    0,	  0,	0,
			  0,	0,    0,    0,	  0,	0,    0,    0,	  0,	0,    0,    0,	  0,	0,
			  0,	0,    0,    0,	  0,	0,    0,    0,	  0,	0,    0,    0,	  0,	0,
			  0,	0,    0,    0x60, 0xaf, 0xb6, 0xfd, 0x77, 0,	1,    0,    0,	  0,	0,
			  0,	0,    0,    0,	  0,	0,    0,    3,	  0xfd, 0x77, 0,    1,	  0,	0,
			  0,	0,    0,    0,	  0,	0,    0,    0,	  0,	2 },
		.line = "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 ack_request=0x1 psn=0x3 DETH{ qkey=0x80010000 "
			"source_qpn=0x1 } CM REQ tid=0x2fa0615bd local_comm_id=0xbd1506fa service_id=0x1066aaa "
			"local_ca_guid=0x505400fffe770003 local_qpn=0x16 responder_resources=0x1 initiator_depth=0x1 "
			"remote_cm_response_timeout=0x14 starting_psn=0x9167bb local_cm_response_timeout=0x14 "
			"retry_count=0x7 pkey=0xffff path_mtu=0x3 rnr_retry_count=0x7 max_cm_retries=0xf "
			"primary_local_lid=0xffff primary_remote_lid=0xffff primary_local_gid=fd77:1:0:0:0:0:0:3 "
			"primary_remote_gid=fd77:1:0:0:0:0:0:2 primary_flow_label=0x5b1b4 primary_hop_limit=0x40 "
			"primary_local_ack_timeout=0x13",
	},
	/* udaddy looks for its peer */
	{
		.from_client = true,
		.source_port = 55410,
		.ip_id = 0xc20b,
		.bytes = 280,
		.icrc = { 0x19, 0xcb, 0xd1, 0xf0 },
		.head = { 0x64, 0,    0xff, 0xff, 0, 0,	   0, 1, 0x80, 0,    0,	   9, 0x80, 1,	  0,	0,
			  0,	0,    0,    1,	  1, 7,	   2, 3, 0,    0,    0,	   0, 0,    0,	  0,	2,
			  0xfa, 6,    0x15, 0xbf, 0, 0x17, 0, 0, 0,    0,    0,	   0, 0xbf, 0x15, 6,	0xfa,
			  0xff, 0xff, 0,    0,	  0, 0,	   0, 0, 1,    0x11, 0x1c, 6, 0,    0x40, 0x8b, 0xa2,
			  0,	0,    0,    0,	  0, 0,	   0, 0, 0,    0,    0,	   0, 0x0a, 0x4d, 1,	3,
			  0,	0,    0,    0,	  0, 0,	   0, 0, 0,    0,    0,	   0, 0x0a, 0x4d, 1,	2 },
		.line = "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 ack_request=0x1 psn=0x9 DETH{ qkey=0x80010000 "
			"source_qpn=0x1 } CM SIDR_REQ tid=0x2fa0615bf request_id=0xbf1506fa pkey=0xffff "
			"service_id=0x1111c06",
	},
	{
		.from_client = false,
		.source_port = 55410,
		.ip_id = 0x9062,
		.bytes = 280,
		.icrc = { 0x1f, 0xa4, 0x4e, 0x4a },
		.head = { 0x64, 0, 0xff, 0xff, 0,    0,	   0,	 1,    0x80, 0,	   0,	 6,   0x80, 1,
			  0,	0, 0,	 0,    0,    1,	   1,	 7,    2,    3,	   0,	 0,   0,    0,
			  0,	0, 0,	 2,    0xfa, 6,	   0x15, 0xbf, 0,    0x18, 0,	 0,   0,    0,
			  0,	0, 0xbf, 0x15, 6,    0xfa, 0,	 0,    0,    0,	   0,	 0,   0x18, 0,
			  0,	0, 0,	 0,    1,    0x11, 0x1c, 6,    1,    0x23, 0x45, 0x67 },
		.line = "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 ack_request=0x1 psn=0x6 DETH{ qkey=0x80010000 "
			"source_qpn=0x1 } CM SIDR_REP tid=0x2fa0615bf request_id=0xbf1506fa qpn=0x18 service_id=0x1111c06"
			" qkey=0x1234567",
	},
	/* nobody listens */
	{
		.from_client = false,
		.source_port = 55410,
		.ip_id = 0x92c2,
		.bytes = 280,
		.icrc = { 0x0b, 0x19, 0xfa, 0xdb },
		.head = { 0x64, 0, 0xff, 0xff, 0,    0, 0,    1,    0x80, 0,	0, 8, 0x80, 1,
			  0,	0, 0,	 0,    0,    1, 1,    7,    2,	  3,	0, 0, 0,    0,
			  0,	0, 0,	 2,    0xfa, 6, 0x15, 0xb9, 0,	  0x12, 0, 0, 0,    0,
			  0,	0, 0,	 0,    0,    0, 0xb9, 0x15, 6,	  0xfa, 0, 0, 0,    8 },
		.line = "UD SEND_ONLY pkey=0xffff destination_qpn=0x1 ack_request=0x1 psn=0x8 DETH{ qkey=0x80010000 "
			"source_qpn=0x1 } CM REJ tid=0x2fa0615b9 remote_comm_id=0xb91506fa reason=0x8 (invalid service "
			"id)",
	},
};

static void bytes_of(const struct captured *c, uint8_t bytes[MAX_BYTES])
{
	size_t without_icrc = c->bytes - VB_ICRC_BYTES;

	memset(bytes, 0, MAX_BYTES);
	memcpy(bytes, c->head, without_icrc < sizeof(c->head) ? without_icrc : sizeof(c->head));
	memcpy(bytes + without_icrc, c->icrc, VB_ICRC_BYTES);
}

static void address(bool ipv6, uint8_t last, uint8_t to[16])
{
	static const uint8_t v4[] = { 10, 77, 1, 0 }, v6[16] = { 0xfd, 0x77, 0, 1 };
	size_t bytes = ipv6 ? sizeof(v6) : sizeof(v4);

	memcpy(to, ipv6 ? v6 : v4, bytes);
	to[bytes - 1] = last;
}

static struct vb_icrc_route route_of(const struct captured *c)
{
	struct vb_icrc_route route = { .ip_version = c->ipv6 ? 6 : 4, .source_port = c->source_port,
		.destination_port = ROCE_PORT };

	address(c->ipv6, c->from_client ? CLIENT : SERVER, route.source);
	address(c->ipv6, c->from_client ? SERVER : CLIENT, route.destination);
	return route;
}

/* Each captured packet, with its bytes filled in. */
#define FOR_EACH(c, bytes)                              \
	for (const struct captured *c = packets;        \
	     c < packets + VB_ARRAY_LEN(packets) && (bytes_of(c, bytes), true); c++)

static void icrc__is_right_and_damage_is_seen(void **state)
{
	uint8_t bytes[MAX_BYTES];

	(void)state;
	FOR_EACH(c, bytes) {
		struct vb_icrc_route route = route_of(c);

		assert_true(vb_icrc_check(&route, bytes, c->bytes, c->ip_id));
		bytes[c->bytes / 2] ^= 1;
		assert_false(vb_icrc_check(&route, bytes, c->bytes, c->ip_id));
	}
}

/* The kernel counts its identifications; a socket does not show them. */
static void icrc__identification_is_solved_for(void **state)
{
	struct vb_icrc_solver solver = { 0 };
	uint8_t bytes[MAX_BYTES];
	uint16_t id = 0;

	(void)state;
	FOR_EACH(c, bytes) {
		struct vb_icrc_route route = route_of(c);

		assert_true(vb_icrc_check_any_ip_id(&solver, &route, NULL, bytes, c->bytes, &id));
		if (!c->ipv6)
			assert_int_equal(id, c->ip_id);
	}
}

static void fields__are_read_as_they_were_meant(void **state)
{
	char line[VB_WIRE_LINE_BYTES];
	uint8_t bytes[MAX_BYTES];

	(void)state;
	FOR_EACH(c, bytes) {
		struct vb_packet packet;

		assert_int_equal(vb_packet_parse(bytes, c->bytes - VB_ICRC_BYTES, &packet), 0);
		vb_wire_packet_line(bytes, c->bytes - VB_ICRC_BYTES, line, sizeof(line));
		assert_string_equal(line, c->line);
	}
}

static void check_addresses(const struct captured *c, const uint8_t *private_data)
{
	size_t address_bytes = c->ipv6 ? 16 : 4;
	uint8_t client[16], server[16];
	struct vb_ip_cm ip;

	address(c->ipv6, CLIENT, client);
	address(c->ipv6, SERVER, server);
	assert_int_equal(vb_ip_cm_decode(private_data, VB_IP_CM_BYTES, &ip), 0);
	assert_int_equal(ip.ip_version, c->ipv6 ? 6 : 4);
	assert_memory_equal(ip.source, client, address_bytes);
	assert_memory_equal(ip.destination, server, address_bytes);
	assert_int_not_equal(ip.source_port, 0);
}

static void cm_messages__are_accepted_with_their_addresses(void **state)
{
	unsigned messages = 0, addressed = 0;
	uint8_t bytes[MAX_BYTES];

	(void)state;
	FOR_EACH(c, bytes) {
		struct vb_packet packet;
		struct vb_cm_msg msg;

		assert_int_equal(vb_packet_parse(bytes, c->bytes - VB_ICRC_BYTES, &packet), 0);
		if (packet.destination_qpn != VB_GSI_QPN)
			continue;
		messages++;
		assert_int_equal(vb_cm_msg_parse(packet.payload, packet.payload_bytes, &msg), 0);
		if (msg.attribute == VB_CM_ATTR_REQ)
			check_addresses(c, vb_cm_req_msg_private_data(vb_cm_req_of(&msg.mad)));
		else if (msg.attribute == VB_CM_ATTR_SIDR_REQ)
			check_addresses(c, vb_cm_sidr_req_msg_private_data(vb_cm_sidr_req_of(&msg.mad)));
		else
			continue;
		addressed++;
	}
	assert_int_equal(messages, 9);
	assert_int_equal(addressed, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(icrc__is_right_and_damage_is_seen),
		cmocka_unit_test(icrc__identification_is_solved_for),
		cmocka_unit_test(fields__are_read_as_they_were_meant),
		cmocka_unit_test(cm_messages__are_accepted_with_their_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
