/* SPDX-License-Identifier: BSD-2-Clause */
#include "packet_line.h"

#include "wire/cm_msg.h"
#include "wire/opcode.h"

/* Appends to a caller's buffer; len < size always, so that the ending zero has a place. */
struct text {
	char *at;
	size_t size, len;
};

static void put_char(struct text *t, char c)
{
	if (t->len + 1 < t->size)
		t->at[t->len++] = c;
}

static void put(struct text *t, const char *s)
{
	while (*s)
		put_char(t, *s++);
}

static void put_digits(struct text *t, uint64_t v, unsigned base)
{
	char digits[20];
	unsigned n = 0;

	do
		digits[n++] = "0123456789abcdef"[v % base];
	while (v /= base);
	while (n)
		put_char(t, digits[--n]);
}

static void put_hex(struct text *t, uint64_t v)
{
	put(t, "0x");
	put_digits(t, v, 16);
}

static void put_gid(struct text *t, const uint8_t *gid)
{
	for (unsigned i = 0; i < 16; i += 2) {
		if (i)
			put_char(t, ':');
		put_digits(t, (uint64_t)gid[i] << 8 | gid[i + 1], 16);
	}
}

static size_t finish(struct text *t)
{
	if (t->size)
		t->at[t->len] = 0;
	return t->len;
}

static bool is_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static void put_field(struct text *t, const struct vb_field_row *r, const uint8_t *p)
{
	put_char(t, ' ');
	put(t, r->name);
	put_char(t, '=');
	if (r->is_bytes)
		put_gid(t, p + r->byte);
	else
		put_hex(t, vb_field_get(p + r->byte, r->bit, r->width));
}

/* Whether a field is worth showing: not zero, and of byte runs only GIDs. */
static bool is_telling(const struct vb_field_row *r, const uint8_t *p)
{
	if (r->is_bytes)
		return r->width == 128 && !is_zero(p + r->byte, 16);
	return vb_field_get(p + r->byte, r->bit, r->width) != 0;
}

/* The fields from byte `from` on, by their rows. */
static void put_fields(struct text *t, const struct vb_field_table *table, const uint8_t *p, size_t from)
{
	for (unsigned i = 0; i < table->num_rows; i++)
		if (table->rows[i].byte >= from && is_telling(&table->rows[i], p))
			put_field(t, &table->rows[i], p);
}

static const struct vb_field_table *cm_table(unsigned attribute)
{
	const struct vb_field_table *const *tables;

	vb_cm_field_tables(&tables);
	switch (attribute) {
#define X(name, prefix, rows, id) case id: return tables[1 + id - VB_CM_ATTR_REQ];
	VB_CM_MESSAGES(X)
#undef X
	}
	return NULL;
}

static void put_mad(struct text *t, const uint8_t *bytes, size_t len)
{
	struct vb_mad mad;
	const struct vb_field_table *table;

	if (len != sizeof(mad)) {
		put(t, "MAD of ");
		put_digits(t, len, 10);
		put(t, " bytes");
		return;
	}
	memcpy(&mad, bytes, sizeof(mad));
	table = vb_mad_mgmt_class(&mad) == VB_CM_CLASS ? cm_table(vb_mad_attribute_id(&mad)) : NULL;
	if (!table) {
		put(t, "MAD class=");
		put_hex(t, vb_mad_mgmt_class(&mad));
		put(t, " attribute=");
		put_hex(t, vb_mad_attribute_id(&mad));
		return;
	}
	put(t, "CM ");
	put(t, vb_cm_attribute_name(vb_mad_attribute_id(&mad)));
	put(t, " tid=");
	put_hex(t, vb_mad_transaction_id(&mad));
	put_fields(t, table, mad.b, VB_MAD_HEADER_BYTES);
	if (vb_mad_attribute_id(&mad) == VB_CM_ATTR_REJ) {
		put(t, " (");
		put(t, vb_cm_rej_reason_name(vb_cm_rej_msg_reason(vb_cm_rej_of(&mad))));
		put_char(t, ')');
	}
}

static void put_extensions(struct text *t, const struct vb_opcode_row *row, const uint8_t *packet)
{
	static const char *const names[VB_EXT_COUNT] = {
#define X(name, prefix, rows, bytes) [VB_EXT_##name] = #name,
		VB_EXTENSION_HEADERS(X)
#undef X
	};

	for (unsigned e = 0; e < VB_EXT_COUNT; e++) {
		if (!vb_opcode_has(row, (enum vb_extension)e))
			continue;
		put_char(t, ' ');
		put(t, names[e]);
		put_char(t, '{');
		put_fields(t, vb_extension_fields((enum vb_extension)e),
			   packet + vb_opcode_offset(row, (enum vb_extension)e), 0);
		put(t, " }");
	}
}

static void put_payload(struct text *t, const struct vb_bth *bth, const uint8_t *payload, size_t len)
{
	if (vb_bth_destination_qpn(bth) == VB_GSI_QPN && vb_bth_opcode(bth) == VB_OPCODE(UD, SEND_ONLY)) {
		put_char(t, ' ');
		put_mad(t, payload, len);
	} else if (len) {
		put(t, " payload=");
		put_digits(t, len, 10);
	}
}

size_t vb_wire_packet_line(const void *packet, size_t len, char *line, size_t size)
{
	struct text t = { line, size, 0 };
	const struct vb_field_table *const *tables;
	const struct vb_opcode_row *row;
	struct vb_bth bth;

	if (len < sizeof(bth)) {
		put(&t, "packet too short for a BTH");
		return finish(&t);
	}
	memcpy(&bth, packet, sizeof(bth));
	row = vb_opcode_row((uint8_t)vb_bth_opcode(&bth));
	put(&t, vb_service_name((uint8_t)vb_bth_opcode(&bth)));
	put_char(&t, ' ');
	put(&t, row->name ? row->name : "unknown opcode");
	vb_header_field_tables(&tables);
	put_fields(&t, tables[0], bth.b, 1);
	if (row->name && len < row->header_bytes) {
		put(&t, " cut short");
	} else if (row->name) {
		put_extensions(&t, row, packet);
		put_payload(&t, &bth, (const uint8_t *)packet + row->header_bytes, len - row->header_bytes);
	}
	return finish(&t);
}

size_t vb_wire_mad_line(const void *mad, size_t len, char *line, size_t size)
{
	struct text t = { line, size, 0 };

	put_mad(&t, mad, len);
	return finish(&t);
}
