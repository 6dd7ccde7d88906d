/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/rsocket.h"

VB_FIELD_TABLE(vb_rs_offer, 0, VB_RS_OFFER_ROWS);
VB_FIELD_TABLE(vb_rs_ud_ipv4, 0, VB_RS_UD_ROWS);
VB_FIELD_TABLE(vb_rs_ud_ipv6, 0, VB_RS_UD6_ROWS);
VB_FIELD_TABLE(vb_rs_udp, 0, VB_RS_UDP_ROWS);

const struct vb_field_table *const vb_rs_field_tables[4] = {
	&vb_rs_offer_table, &vb_rs_ud_ipv4_table, &vb_rs_ud_ipv6_table, &vb_rs_udp_table,
};
