/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/headers.h"

#define X(name, prefix, rows, bytes)            \
	VB_FIELD_TABLE(prefix, 0, rows);        \
	_Static_assert(sizeof(struct prefix) == (bytes), #name);
VB_HEADERS(X)
#undef X

unsigned vb_header_field_tables(const struct vb_field_table *const **tables)
{
	static const struct vb_field_table *const all[] = {
#define X(name, prefix, rows, bytes) &prefix##_table,
		VB_HEADERS(X)
#undef X
	};

	*tables = all;
	return VB_ARRAY_LEN(all);
}

const struct vb_field_table *vb_extension_fields(enum vb_extension ext)
{
	static const struct vb_field_table *const all[VB_EXT_COUNT] = {
#define X(name, prefix, rows, bytes) [VB_EXT_##name] = &prefix##_table,
		VB_EXTENSION_HEADERS(X)
#undef X
	};

	return all[ext];
}
