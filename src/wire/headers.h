/* SPDX-License-Identifier: BSD-2-Clause */
/* The InfiniBand transport headers (IB vol. 1 ch. 9) and the GRH (ch. 8), each as rows. */
#ifndef VB_WIRE_HEADERS_H
#define VB_WIRE_HEADERS_H

#include "base/base.h"
#include "wire/field.h"

/* Base transport header. */
#define VB_BTH_ROWS(F, B, P, O)                 \
	F(P, O, opcode, 0, 0, 8)                \
	F(P, O, solicited, 1, 0, 1)             \
	F(P, O, mig_req, 1, 1, 1)               \
	F(P, O, pad_count, 1, 2, 2)             \
	F(P, O, transport_version, 1, 4, 4)     \
	F(P, O, pkey, 2, 0, 16)                 \
	F(P, O, fecn, 4, 0, 1)                  \
	F(P, O, becn, 4, 1, 1)                  \
	F(P, O, destination_qpn, 5, 0, 24)      \
	F(P, O, ack_request, 8, 0, 1)           \
	F(P, O, psn, 9, 0, 24)

/* Reliable datagram: only its place is known here. */
#define VB_RDETH_ROWS(F, B, P, O) F(P, O, eecn, 1, 0, 24)

/* Datagram. */
#define VB_DETH_ROWS(F, B, P, O)        \
	F(P, O, qkey, 0, 0, 32)         \
	F(P, O, source_qpn, 5, 0, 24)

/* Extended reliable connection. */
#define VB_XRCETH_ROWS(F, B, P, O) F(P, O, srqn, 1, 0, 24)

/* Flush (annex A19): selectivity 0 is a range, 1 the region; placement 1 is global, 2 persistent, 3 both. */
#define VB_FETH_ROWS(F, B, P, O)        \
	F(P, O, selectivity, 3, 2, 2)   \
	F(P, O, placement, 3, 4, 4)

/* RDMA. */
#define VB_RETH_ROWS(F, B, P, O)        \
	F(P, O, address, 0, 0, 64)      \
	F(P, O, rkey, 8, 0, 32)         \
	F(P, O, length, 12, 0, 32)

/* Atomic request. */
#define VB_ATOMICETH_ROWS(F, B, P, O)   \
	F(P, O, address, 0, 0, 64)      \
	F(P, O, rkey, 8, 0, 32)         \
	F(P, O, swap_or_add, 12, 0, 64) \
	F(P, O, compare, 20, 0, 64)

/* Acknowledge. */
#define VB_AETH_ROWS(F, B, P, O)        \
	F(P, O, syndrome, 0, 0, 8)      \
	F(P, O, msn, 1, 0, 24)

#define VB_ATOMICACKETH_ROWS(F, B, P, O) F(P, O, original, 0, 0, 64)

/* Immediate data, kept as the bytes that the program sees. */
#define VB_IMMDT_ROWS(F, B, P, O) B(P, O, data, 0, 4)

/* Invalidate. */
#define VB_IETH_ROWS(F, B, P, O) F(P, O, rkey, 0, 0, 32)

/* Global route header; also the first 40 bytes of a UD receive. */
#define VB_GRH_ROWS(F, B, P, O)                 \
	F(P, O, ip_version, 0, 0, 4)            \
	F(P, O, traffic_class, 0, 4, 8)         \
	F(P, O, flow_label, 1, 4, 20)           \
	F(P, O, payload_length, 4, 0, 16)       \
	F(P, O, next_header, 6, 0, 8)           \
	F(P, O, hop_limit, 7, 0, 8)             \
	B(P, O, source_gid, 8, 16)              \
	B(P, O, destination_gid, 24, 16)

/* In the order in which they follow the BTH. X(NAME, struct, ROWS, bytes) */
#define VB_EXTENSION_HEADERS(X)                                         \
	X(RDETH, vb_rdeth, VB_RDETH_ROWS, 4)                            \
	X(DETH, vb_deth, VB_DETH_ROWS, 8)                               \
	X(XRCETH, vb_xrceth, VB_XRCETH_ROWS, 4)                         \
	X(FETH, vb_feth, VB_FETH_ROWS, 4)                               \
	X(RETH, vb_reth, VB_RETH_ROWS, 16)                              \
	X(ATOMICETH, vb_atomiceth, VB_ATOMICETH_ROWS, 28)               \
	X(AETH, vb_aeth, VB_AETH_ROWS, 4)                               \
	X(ATOMICACKETH, vb_atomicacketh, VB_ATOMICACKETH_ROWS, 8)       \
	X(IMMDT, vb_immdt, VB_IMMDT_ROWS, 4)                            \
	X(IETH, vb_ieth, VB_IETH_ROWS, 4)

#define VB_HEADERS(X)                   \
	X(BTH, vb_bth, VB_BTH_ROWS, 12) \
	X(GRH, vb_grh, VB_GRH_ROWS, 40) \
	VB_EXTENSION_HEADERS(X)

#define X(name, prefix, rows, bytes) VB_FIELD_ACCESSORS(prefix, bytes, 0, rows)
VB_HEADERS(X)
#undef X

enum vb_extension {
#define X(name, prefix, rows, bytes) VB_EXT_##name,
	VB_EXTENSION_HEADERS(X)
#undef X
	VB_EXT_COUNT
};

#define VB_BTH_BYTES  12
#define VB_GRH_BYTES  40
#define VB_PSN_MASK   0xffffffu
#define VB_QPN_MASK   0xffffffu

/* Row tables, for tests and the text form: returns the number of them. */
unsigned vb_header_field_tables(const struct vb_field_table *const **tables);
const struct vb_field_table *vb_extension_fields(enum vb_extension ext);

#endif
