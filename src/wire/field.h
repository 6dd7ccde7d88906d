/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Message fields as rows. A header or message is one list macro of rows
 *
 *	#define LIST(F, B, P, O)
 *		F(P, O, name, byte, bit, width)		a number of 1..64 bits, big-endian; bit 0 is the most significant
 *		B(P, O, name, byte, bytes)		a run of bytes (GID, private data)
 *
 * P is the prefix, O the offset that `byte` counts from. VB_FIELD_ACCESSORS makes getters P_name(h), setters
 * P_set_name(h, ...) and sizes P_name_bytes from it, VB_FIELD_TABLE the same rows as data for tests and the
 * text form. Each header has its own one-member struct P, so that fields of different headers do not mix. A
 * setter keeps the low `width` bits of its value and touches no neighbour.
 */
#ifndef VB_WIRE_FIELD_H
#define VB_WIRE_FIELD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The bytes that hold the field are read as one number, so bit + width must not pass 64 (the unit test
 * checks).
 */
static inline uint64_t vb_field_get(const uint8_t *p, unsigned bit, unsigned width)
{
	unsigned span = (bit + width + 7) / 8;
	uint64_t v = 0;

	for (unsigned i = 0; i < span; i++)
		v = v << 8 | p[i];
	v >>= span * 8 - bit - width;
	return width == 64 ? v : v & ((UINT64_C(1) << width) - 1);
}

static inline void vb_field_set(uint8_t *p, unsigned bit, unsigned width, uint64_t value)
{
	unsigned span = (bit + width + 7) / 8, shift = span * 8 - bit - width;
	uint64_t mask = (width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1) << shift;

	value = value << shift & mask;
	for (unsigned i = span; i-- > 0; value >>= 8, mask >>= 8)
		p[i] = (uint8_t)((p[i] & ~mask) | (value & 0xff));
}

/* A shorter source is followed by zeros, a longer one is cut. */
static inline void vb_field_set_bytes(uint8_t *p, size_t bytes, const void *src, size_t len)
{
	if (len > bytes)
		len = bytes;
	if (len)
		memcpy(p, src, len);
	memset(p + len, 0, bytes - len);
}

#define VB_FIELD_NUMBER(width) __typeof__(__builtin_choose_expr((width) <= 32, (uint32_t)0, (uint64_t)0))

#define VB_FIELD_ACCESSORS_F(P, O, name, byte, bit, width)                                      \
	static inline VB_FIELD_NUMBER(width) P##_##name(const struct P *h)                      \
	{                                                                                       \
		return (VB_FIELD_NUMBER(width))vb_field_get(h->b + (O) + (byte), bit, width);   \
	}                                                                                       \
	static inline void P##_set_##name(struct P *h, uint64_t value)                          \
	{                                                                                       \
		vb_field_set(h->b + (O) + (byte), bit, width, value);                           \
	}

#define VB_FIELD_ACCESSORS_B(P, O, name, byte, bytes)                                                        \
	enum { P##_##name##_bytes = (bytes) };                                                               \
	static inline const uint8_t *P##_##name(const struct P *h) { return h->b + (O) + (byte); }           \
	static inline void P##_set_##name(struct P *h, const void *src, size_t len)                          \
	{                                                                                                    \
		vb_field_set_bytes(h->b + (O) + (byte), bytes, src, len);                                    \
	}

#define VB_FIELD_ACCESSORS(P, length, O, LIST)  \
	struct P {                              \
		uint8_t b[length];              \
	};                                      \
	LIST(VB_FIELD_ACCESSORS_F, VB_FIELD_ACCESSORS_B, P, O)

/* The rows as data. Byte runs have bit 0 and width 8 * bytes. */
struct vb_field_row {
	const char *name;
	uint16_t byte;		/* from the beginning of the header or MAD */
	uint8_t bit;
	uint8_t is_bytes;
	uint16_t width;
};

struct vb_field_table {
	const char *name;
	const struct vb_field_row *rows;
	uint16_t num_rows;
	uint16_t length;	/* bytes */
};

#define VB_FIELD_ROW_F(P, O, name, byte, bit, width) { #name, (O) + (byte), bit, 0, width },
#define VB_FIELD_ROW_B(P, O, name, byte, bytes)      { #name, (O) + (byte), 0, 1, (bytes) * 8 },

/* Defines `static const struct vb_field_table P_table`. */
#define VB_FIELD_TABLE(P, O, LIST)                                                                           \
	static const struct vb_field_row P##_rows[] = { LIST(VB_FIELD_ROW_F, VB_FIELD_ROW_B, P, O) };        \
	static const struct vb_field_table P##_table = {                                                     \
		#P, P##_rows, sizeof(P##_rows) / sizeof(P##_rows[0]), sizeof(struct P)                       \
	}

#endif
