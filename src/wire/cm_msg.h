/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Management datagrams and the messages of the communication management class (IB vol. 1, 13.4.3 and ch.
 * 12.6), each in its own struct of 256 bytes. Rows count from the end of the common header.
 */
#ifndef VB_WIRE_CM_MSG_H
#define VB_WIRE_CM_MSG_H

#include "base/base.h"
#include "wire/field.h"

#define VB_MAD_BYTES         256
#define VB_MAD_HEADER_BYTES  24
#define VB_MAD_BASE_VERSION  1
#define VB_MAD_METHOD_SEND   3
#define VB_CM_CLASS          0x07
#define VB_CM_CLASS_VERSION  2
#define VB_GSI_QPN           1
#define VB_GSI_QKEY          0x80010000u

#define VB_MAD_ROWS(F, B, P, O)                 \
	F(P, O, base_version, 0, 0, 8)          \
	F(P, O, mgmt_class, 1, 0, 8)            \
	F(P, O, class_version, 2, 0, 8)         \
	F(P, O, method, 3, 0, 8)                \
	F(P, O, status, 4, 0, 16)               \
	F(P, O, class_specific, 6, 0, 16)       \
	F(P, O, transaction_id, 8, 0, 64)       \
	F(P, O, attribute_id, 16, 0, 16)        \
	F(P, O, attribute_modifier, 20, 0, 32)
VB_FIELD_ACCESSORS(vb_mad, VB_MAD_BYTES, 0, VB_MAD_ROWS)

/* Table 106. The vendor id is the ECE extension (its other half is the attribute modifier). */
#define VB_CM_REQ_ROWS(F, B, P, O)                      \
	F(P, O, local_comm_id, 0, 0, 32)                \
	F(P, O, vendor_id, 5, 0, 24)                    \
	F(P, O, service_id, 8, 0, 64)                   \
	F(P, O, local_ca_guid, 16, 0, 64)               \
	F(P, O, local_qkey, 28, 0, 32)                  \
	F(P, O, local_qpn, 32, 0, 24)                   \
	F(P, O, responder_resources, 35, 0, 8)          \
	F(P, O, local_eecn, 36, 0, 24)                  \
	F(P, O, initiator_depth, 39, 0, 8)              \
	F(P, O, remote_eecn, 40, 0, 24)                 \
	F(P, O, remote_cm_response_timeout, 43, 0, 5)   \
	F(P, O, transport_service_type, 43, 5, 2)       \
	F(P, O, flow_control, 43, 7, 1)                 \
	F(P, O, starting_psn, 44, 0, 24)                \
	F(P, O, local_cm_response_timeout, 47, 0, 5)    \
	F(P, O, retry_count, 47, 5, 3)                  \
	F(P, O, pkey, 48, 0, 16)                        \
	F(P, O, path_mtu, 50, 0, 4)                     \
	F(P, O, rdc_exists, 50, 4, 1)                   \
	F(P, O, rnr_retry_count, 50, 5, 3)              \
	F(P, O, max_cm_retries, 51, 0, 4)               \
	F(P, O, srq, 51, 4, 1)                          \
	F(P, O, extended_transport_type, 51, 5, 3)      \
	F(P, O, primary_local_lid, 52, 0, 16)           \
	F(P, O, primary_remote_lid, 54, 0, 16)          \
	B(P, O, primary_local_gid, 56, 16)              \
	B(P, O, primary_remote_gid, 72, 16)             \
	F(P, O, primary_flow_label, 88, 0, 20)          \
	F(P, O, primary_packet_rate, 91, 2, 6)          \
	F(P, O, primary_traffic_class, 92, 0, 8)        \
	F(P, O, primary_hop_limit, 93, 0, 8)            \
	F(P, O, primary_sl, 94, 0, 4)                   \
	F(P, O, primary_subnet_local, 94, 4, 1)         \
	F(P, O, primary_local_ack_timeout, 95, 0, 5)    \
	F(P, O, alternate_local_lid, 96, 0, 16)         \
	F(P, O, alternate_remote_lid, 98, 0, 16)        \
	B(P, O, alternate_local_gid, 100, 16)           \
	B(P, O, alternate_remote_gid, 116, 16)          \
	F(P, O, alternate_flow_label, 132, 0, 20)       \
	F(P, O, alternate_packet_rate, 135, 2, 6)       \
	F(P, O, alternate_traffic_class, 136, 0, 8)     \
	F(P, O, alternate_hop_limit, 137, 0, 8)         \
	F(P, O, alternate_sl, 138, 0, 4)                \
	F(P, O, alternate_subnet_local, 138, 4, 1)      \
	F(P, O, alternate_local_ack_timeout, 139, 0, 5) \
	B(P, O, private_data, 140, 92)

/* Table 107 */
#define VB_CM_MRA_ROWS(F, B, P, O)              \
	F(P, O, local_comm_id, 0, 0, 32)        \
	F(P, O, remote_comm_id, 4, 0, 32)       \
	F(P, O, message_mraed, 8, 0, 2)         \
	F(P, O, service_timeout, 9, 0, 5)       \
	B(P, O, private_data, 10, 222)

/* Table 108 */
#define VB_CM_REJ_ROWS(F, B, P, O)              \
	F(P, O, local_comm_id, 0, 0, 32)        \
	F(P, O, remote_comm_id, 4, 0, 32)       \
	F(P, O, message_rejected, 8, 0, 2)      \
	F(P, O, reject_info_length, 9, 0, 7)    \
	F(P, O, reason, 10, 0, 16)              \
	B(P, O, ari, 12, 72)                    \
	B(P, O, private_data, 84, 148)

/* Table 110; the vendor id in three pieces is ECE's. */
#define VB_CM_REP_ROWS(F, B, P, O)              \
	F(P, O, local_comm_id, 0, 0, 32)        \
	F(P, O, remote_comm_id, 4, 0, 32)       \
	F(P, O, local_qkey, 8, 0, 32)           \
	F(P, O, local_qpn, 12, 0, 24)           \
	F(P, O, vendor_id_high, 15, 0, 8)       \
	F(P, O, local_eecn, 16, 0, 24)          \
	F(P, O, vendor_id_middle, 19, 0, 8)     \
	F(P, O, starting_psn, 20, 0, 24)        \
	F(P, O, vendor_id_low, 23, 0, 8)        \
	F(P, O, responder_resources, 24, 0, 8)  \
	F(P, O, initiator_depth, 25, 0, 8)      \
	F(P, O, target_ack_delay, 26, 0, 5)     \
	F(P, O, failover_accepted, 26, 5, 2)    \
	F(P, O, flow_control, 26, 7, 1)         \
	F(P, O, rnr_retry_count, 27, 0, 3)      \
	F(P, O, srq, 27, 3, 1)                  \
	F(P, O, local_ca_guid, 28, 0, 64)       \
	B(P, O, private_data, 36, 196)

/* Table 111 */
#define VB_CM_RTU_ROWS(F, B, P, O)              \
	F(P, O, local_comm_id, 0, 0, 32)        \
	F(P, O, remote_comm_id, 4, 0, 32)       \
	B(P, O, private_data, 8, 224)

/* Table 112 */
#define VB_CM_DREQ_ROWS(F, B, P, O)             \
	F(P, O, local_comm_id, 0, 0, 32)        \
	F(P, O, remote_comm_id, 4, 0, 32)       \
	F(P, O, remote_qpn, 8, 0, 24)           \
	B(P, O, private_data, 12, 220)

/* Table 113 */
#define VB_CM_DREP_ROWS(F, B, P, O)             \
	F(P, O, local_comm_id, 0, 0, 32)        \
	F(P, O, remote_comm_id, 4, 0, 32)       \
	B(P, O, private_data, 8, 224)

/* Table 115 */
#define VB_CM_LAP_ROWS(F, B, P, O)                      \
	F(P, O, local_comm_id, 0, 0, 32)                \
	F(P, O, remote_comm_id, 4, 0, 32)               \
	F(P, O, remote_qpn, 12, 0, 24)                  \
	F(P, O, remote_cm_response_timeout, 15, 0, 5)   \
	F(P, O, alternate_local_lid, 20, 0, 16)         \
	F(P, O, alternate_remote_lid, 22, 0, 16)        \
	B(P, O, alternate_local_gid, 24, 16)            \
	B(P, O, alternate_remote_gid, 40, 16)           \
	F(P, O, alternate_flow_label, 56, 0, 20)        \
	F(P, O, alternate_traffic_class, 59, 0, 8)      \
	F(P, O, alternate_hop_limit, 60, 0, 8)          \
	F(P, O, alternate_packet_rate, 61, 2, 6)        \
	F(P, O, alternate_sl, 62, 0, 4)                 \
	F(P, O, alternate_subnet_local, 62, 4, 1)       \
	F(P, O, alternate_local_ack_timeout, 63, 0, 5)  \
	B(P, O, private_data, 64, 168)

/* Table 116 */
#define VB_CM_APR_ROWS(F, B, P, O)                      \
	F(P, O, local_comm_id, 0, 0, 32)                \
	F(P, O, remote_comm_id, 4, 0, 32)               \
	F(P, O, additional_info_length, 8, 0, 8)        \
	F(P, O, ap_status, 9, 0, 8)                     \
	B(P, O, additional_info, 12, 72)                \
	B(P, O, private_data, 84, 148)

/* Table 119 */
#define VB_CM_SIDR_REQ_ROWS(F, B, P, O) \
	F(P, O, request_id, 0, 0, 32)   \
	F(P, O, pkey, 4, 0, 16)         \
	F(P, O, service_id, 8, 0, 64)   \
	B(P, O, private_data, 16, 216)

/* Table 120; the vendor id in pieces is ECE's. */
#define VB_CM_SIDR_REP_ROWS(F, B, P, O)                 \
	F(P, O, request_id, 0, 0, 32)                   \
	F(P, O, status, 4, 0, 8)                        \
	F(P, O, additional_info_length, 5, 0, 8)        \
	F(P, O, vendor_id_high, 6, 0, 16)               \
	F(P, O, qpn, 8, 0, 24)                          \
	F(P, O, vendor_id_low, 11, 0, 8)                \
	F(P, O, service_id, 12, 0, 64)                  \
	F(P, O, qkey, 20, 0, 32)                        \
	B(P, O, additional_info, 24, 72)                \
	B(P, O, private_data, 96, 136)

/* X(NAME, prefix, ROWS, attribute id) */
#define VB_CM_MESSAGES(X)                                       \
	X(REQ, vb_cm_req, VB_CM_REQ_ROWS, 0x10)                 \
	X(MRA, vb_cm_mra, VB_CM_MRA_ROWS, 0x11)                 \
	X(REJ, vb_cm_rej, VB_CM_REJ_ROWS, 0x12)                 \
	X(REP, vb_cm_rep, VB_CM_REP_ROWS, 0x13)                 \
	X(RTU, vb_cm_rtu, VB_CM_RTU_ROWS, 0x14)                 \
	X(DREQ, vb_cm_dreq, VB_CM_DREQ_ROWS, 0x15)              \
	X(DREP, vb_cm_drep, VB_CM_DREP_ROWS, 0x16)              \
	X(SIDR_REQ, vb_cm_sidr_req, VB_CM_SIDR_REQ_ROWS, 0x17)  \
	X(SIDR_REP, vb_cm_sidr_rep, VB_CM_SIDR_REP_ROWS, 0x18)  \
	X(LAP, vb_cm_lap, VB_CM_LAP_ROWS, 0x19)                 \
	X(APR, vb_cm_apr, VB_CM_APR_ROWS, 0x1a)

enum vb_cm_attribute {
#define X(name, prefix, rows, id) VB_CM_ATTR_##name = id,
	VB_CM_MESSAGES(X)
#undef X
};

/* struct vb_cm_req, ... with their accessors, and vb_cm_req_in(mad), the view of a MAD as that message. */
#define X(name, prefix, rows, id)                                                      \
	VB_FIELD_ACCESSORS(prefix##_msg, VB_MAD_BYTES, VB_MAD_HEADER_BYTES, rows)      \
	static inline struct prefix##_msg *prefix##_in(struct vb_mad *mad)             \
	{                                                                              \
		return (struct prefix##_msg *)mad;                                     \
	}                                                                              \
	static inline const struct prefix##_msg *prefix##_of(const struct vb_mad *mad) \
	{                                                                              \
		return (const struct prefix##_msg *)mad;                               \
	}
VB_CM_MESSAGES(X)
#undef X

/* Private data sizes that the layers above check against. */
#define VB_CM_REQ_PRIVATE_DATA_BYTES  vb_cm_req_msg_private_data_bytes
#define VB_CM_REP_PRIVATE_DATA_BYTES  vb_cm_rep_msg_private_data_bytes
#define VB_CM_REJ_PRIVATE_DATA_BYTES  vb_cm_rej_msg_private_data_bytes
#define VB_CM_MAX_PRIVATE_DATA        224

/* REJ reasons (table 109). X(NAME, value, name) */
#define VB_CM_REJ_REASONS(X)                                                    \
	X(NO_QP, 1, "no QP available")                                          \
	X(NO_EEC, 2, "no EE context available")                                 \
	X(NO_RESOURCES, 3, "no resources available")                            \
	X(TIMEOUT, 4, "timeout")                                                \
	X(UNSUPPORTED, 5, "unsupported request")                                \
	X(INVALID_COMM_ID, 6, "invalid communication id")                       \
	X(INVALID_COMM_INSTANCE, 7, "invalid communication instance")           \
	X(INVALID_SERVICE_ID, 8, "invalid service id")                          \
	X(INVALID_TRANSPORT_TYPE, 9, "invalid transport service type")          \
	X(STALE_CONN, 10, "stale connection")                                   \
	X(RDC_NOT_EXIST, 11, "RDC does not exist")                              \
	X(INVALID_GID, 12, "primary remote port GID rejected")                  \
	X(INVALID_LID, 13, "primary remote port LID rejected")                  \
	X(INVALID_SL, 14, "invalid primary SL")                                 \
	X(INVALID_TRAFFIC_CLASS, 15, "invalid primary traffic class")           \
	X(INVALID_HOP_LIMIT, 16, "invalid primary hop limit")                   \
	X(INVALID_PACKET_RATE, 17, "invalid primary packet rate")               \
	X(INVALID_ALT_GID, 18, "alternate remote port GID rejected")            \
	X(INVALID_ALT_LID, 19, "alternate remote port LID rejected")            \
	X(INVALID_ALT_SL, 20, "invalid alternate SL")                           \
	X(INVALID_ALT_TRAFFIC_CLASS, 21, "invalid alternate traffic class")     \
	X(INVALID_ALT_HOP_LIMIT, 22, "invalid alternate hop limit")             \
	X(INVALID_ALT_PACKET_RATE, 23, "invalid alternate packet rate")         \
	X(PORT_CM_REDIRECT, 24, "port and CM redirection")                      \
	X(PORT_REDIRECT, 25, "port redirection")                                \
	X(INVALID_MTU, 26, "invalid path MTU")                                  \
	X(INSUFFICIENT_RESP_RESOURCES, 27, "insufficient responder resources")  \
	X(CONSUMER_DEFINED, 28, "consumer reject")                              \
	X(INVALID_RNR_RETRY, 29, "RNR retry count rejected")                    \
	X(DUPLICATE_LOCAL_COMM_ID, 30, "duplicate local communication id")      \
	X(INVALID_CLASS_VERSION, 31, "invalid class version")                   \
	X(INVALID_FLOW_LABEL, 32, "invalid primary flow label")                 \
	X(INVALID_ALT_FLOW_LABEL, 33, "invalid alternate flow label")           \
	X(VENDOR_OPTION, 35, "vendor option not supported")

enum vb_cm_rej_reason {
#define X(name, value, text) VB_CM_REJ_##name = value,
	VB_CM_REJ_REASONS(X)
#undef X
};

/* What a REJ rejects, what an MRA acknowledges. */
enum vb_cm_rejected { VB_CM_REJECTED_REQ = 0, VB_CM_REJECTED_REP = 1, VB_CM_REJECTED_OTHER = 2 };
enum vb_cm_mraed { VB_CM_MRAED_REQ = 0, VB_CM_MRAED_REP = 1, VB_CM_MRAED_LAP = 2 };

/* SIDR_REP status. X(NAME, value, name) */
#define VB_CM_SIDR_STATUSES(X)                          \
	X(SUCCESS, 0, "QPN returned")                   \
	X(UNSUPPORTED, 1, "service id not supported")   \
	X(REJECT, 2, "rejected by service provider")    \
	X(NO_QP, 3, "no QP available")                  \
	X(REDIRECT, 4, "redirected")                    \
	X(UNSUPPORTED_VERSION, 5, "class version not supported")

enum vb_cm_sidr_status {
#define X(name, value, text) VB_CM_SIDR_##name = value,
	VB_CM_SIDR_STATUSES(X)
#undef X
};

/* APR status: the two that are ever sent here. */
enum vb_cm_ap_status { VB_CM_AP_INVALID_COMM_ID = 1, VB_CM_AP_NOT_SUPPORTED = 2 };

/* A received message that passed vb_cm_msg_parse. */
struct vb_cm_msg {
	enum vb_cm_attribute attribute;
	struct vb_mad mad;
};

/*
 * Copies and checks a MAD: length, versions, class, method, known attribute, lengths inside. -EBADMSG
 * otherwise.
 */
int vb_cm_msg_parse(const void *bytes, size_t len, struct vb_cm_msg *msg) VB_MUST_USE;

/* A message of zeros with its common header. */
void vb_cm_msg_init(struct vb_mad *mad, enum vb_cm_attribute attribute, uint64_t transaction_id);

/* "?" outside the lists. */
const char *vb_cm_attribute_name(unsigned attribute);
const char *vb_cm_rej_reason_name(unsigned reason);
const char *vb_cm_sidr_status_name(unsigned status);

/* Row tables of all messages here, for tests: returns the number of them. */
unsigned vb_cm_field_tables(const struct vb_field_table *const **tables);

#endif
