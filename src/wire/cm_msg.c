/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/cm_msg.h"

#include <errno.h>

_Static_assert(sizeof(struct vb_mad) == 256, "a MAD is 256 bytes");
#define X(name, prefix, rows, id) _Static_assert(sizeof(struct prefix##_msg) == sizeof(struct vb_mad), #name);
VB_CM_MESSAGES(X)
#undef X

VB_FIELD_TABLE(vb_mad, 0, VB_MAD_ROWS);
#define X(name, prefix, rows, id) VB_FIELD_TABLE(prefix##_msg, VB_MAD_HEADER_BYTES, rows);
VB_CM_MESSAGES(X)
#undef X

unsigned vb_cm_field_tables(const struct vb_field_table *const **tables)
{
	static const struct vb_field_table *const all[] = {
		&vb_mad_table,
#define X(name, prefix, rows, id) &prefix##_msg_table,
		VB_CM_MESSAGES(X)
#undef X
	};

	*tables = all;
	return VB_ARRAY_LEN(all);
}

const char *vb_cm_attribute_name(unsigned attribute)
{
	switch (attribute) {
#define X(name, prefix, rows, id) case id: return #name;
	VB_CM_MESSAGES(X)
#undef X
	}
	return "?";
}

const char *vb_cm_rej_reason_name(unsigned reason)
{
	switch (reason) {
#define X(name, value, text) case value: return text;
	VB_CM_REJ_REASONS(X)
#undef X
	}
	return "?";
}

const char *vb_cm_sidr_status_name(unsigned status)
{
	switch (status) {
#define X(name, value, text) case value: return text;
	VB_CM_SIDR_STATUSES(X)
#undef X
	}
	return "?";
}

void vb_cm_msg_init(struct vb_mad *mad, enum vb_cm_attribute attribute, uint64_t transaction_id)
{
	memset(mad, 0, sizeof(*mad));
	vb_mad_set_base_version(mad, VB_MAD_BASE_VERSION);
	vb_mad_set_mgmt_class(mad, VB_CM_CLASS);
	vb_mad_set_class_version(mad, VB_CM_CLASS_VERSION);
	vb_mad_set_method(mad, VB_MAD_METHOD_SEND);
	vb_mad_set_transaction_id(mad, transaction_id);
	vb_mad_set_attribute_id(mad, attribute);
}

static bool is_cm_header(const struct vb_mad *mad)
{
	return vb_mad_base_version(mad) == VB_MAD_BASE_VERSION && vb_mad_mgmt_class(mad) == VB_CM_CLASS &&
	       vb_mad_class_version(mad) == VB_CM_CLASS_VERSION && vb_mad_method(mad) == VB_MAD_METHOD_SEND;
}

/*
 * Every comm id that a message must carry is not 0, and lengths inside stay in their fields. Only a REJ may
 * leave out ids: its sender may not know them.
 */
static bool is_content_sane(enum vb_cm_attribute attribute, const struct vb_mad *mad)
{
#define HAS_IDS(prefix) \
	(prefix##_msg_local_comm_id(prefix##_of(mad)) && prefix##_msg_remote_comm_id(prefix##_of(mad)))
	switch (attribute) {
	case VB_CM_ATTR_REQ: return vb_cm_req_msg_local_comm_id(vb_cm_req_of(mad)) != 0;
	case VB_CM_ATTR_MRA: return HAS_IDS(vb_cm_mra);
	case VB_CM_ATTR_REJ:
		return vb_cm_rej_msg_reject_info_length(vb_cm_rej_of(mad)) <= vb_cm_rej_msg_ari_bytes;
	case VB_CM_ATTR_REP: return HAS_IDS(vb_cm_rep);
	case VB_CM_ATTR_RTU: return HAS_IDS(vb_cm_rtu);
	case VB_CM_ATTR_DREQ: return HAS_IDS(vb_cm_dreq);
	case VB_CM_ATTR_DREP: return HAS_IDS(vb_cm_drep);
	case VB_CM_ATTR_SIDR_REQ: return vb_cm_sidr_req_msg_request_id(vb_cm_sidr_req_of(mad)) != 0;
	case VB_CM_ATTR_SIDR_REP:
		return vb_cm_sidr_rep_msg_request_id(vb_cm_sidr_rep_of(mad)) != 0 &&
		       vb_cm_sidr_rep_msg_additional_info_length(vb_cm_sidr_rep_of(mad)) <=
			       vb_cm_sidr_rep_msg_additional_info_bytes;
	case VB_CM_ATTR_LAP: return HAS_IDS(vb_cm_lap);
	case VB_CM_ATTR_APR: return HAS_IDS(vb_cm_apr);
	}
#undef HAS_IDS
	return false;
}

int vb_cm_msg_parse(const void *bytes, size_t len, struct vb_cm_msg *msg)
{
	struct vb_mad mad;
	enum vb_cm_attribute attribute;

	if (len != sizeof(mad))
		return -EBADMSG;
	memcpy(&mad, bytes, sizeof(mad));
	attribute = (enum vb_cm_attribute)vb_mad_attribute_id(&mad);
	if (!is_cm_header(&mad) || !is_content_sane(attribute, &mad))
		return -EBADMSG;
	msg->attribute = attribute;
	msg->mad = mad;
	return 0;
}
