/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What two rsockets say to each other: the private data of a connection, 32-bit messages in immediate data,
 * the entries that either writes into the other's tables, and the headers of datagrams. rsocket(7); the guide
 * in librdmacm's docs.
 *
 * Private data, messages and datagram headers are big-endian. Table entries are in the byte order of the side
 * that *reads* them, as its private data says (VB_RS_FLAG_BIG_ENDIAN).
 */
#ifndef VB_WIRE_RSOCKET_H
#define VB_WIRE_RSOCKET_H

#include "base/base.h"
#include "wire/field.h"

/* ---- private data of REQ and REP ---- */

enum {
	VB_RS_OFFER_BYTES     = 40,
	VB_RS_VERSION         = 1,
	VB_RS_FLAG_BIG_ENDIAN = 1 << 0,
	VB_RS_FLAG_IOMAP      = 1 << 1,	/* iomap_size counts, and the I/O map follows the list of segments */
};

#define VB_RS_OFFER_ROWS(F, B, P, O)            \
	F(P, O, version, 0, 0, 8)               \
	F(P, O, flags, 1, 0, 8)                 \
	F(P, O, credits, 2, 0, 16)              \
	F(P, O, iomap_size, 7, 0, 8)            \
	F(P, O, segments_address, 8, 0, 64)     \
	F(P, O, segments_key, 16, 0, 32)        \
	F(P, O, num_segments, 20, 0, 32)        \
	F(P, O, buffer_address, 24, 0, 64)      \
	F(P, O, buffer_key, 32, 0, 32)          \
	F(P, O, buffer_bytes, 36, 0, 32)
VB_FIELD_ACCESSORS(vb_rs_offer, VB_RS_OFFER_BYTES, 0, VB_RS_OFFER_ROWS)

/* iomap_size is 8 bits: up to 128 as it is, above in steps of 256. */
enum { VB_RS_IOMAP_EXACT = 128, VB_RS_IOMAP_STEP = 256, VB_RS_IOMAP_MOST = 127 * VB_RS_IOMAP_STEP };

static inline uint8_t vb_rs_iomap_code(uint32_t entries)
{
	if (entries > VB_RS_IOMAP_MOST)
		entries = VB_RS_IOMAP_MOST;
	return (uint8_t)(entries <= VB_RS_IOMAP_EXACT ? entries :
							VB_RS_IOMAP_EXACT | entries / VB_RS_IOMAP_STEP);
}

static inline uint32_t vb_rs_iomap_entries(uint8_t code)
{
	return code <= VB_RS_IOMAP_EXACT ? code :
					   (uint32_t)(code & (VB_RS_IOMAP_EXACT - 1)) * VB_RS_IOMAP_STEP;
}

/* ---- messages ---- */

/* X(NAME, the upper three bits, what the lower 29 mean) */
#define VB_RS_MESSAGES(X)                                                        \
	X(DATA, 0, "bytes written into the receive buffer")                      \
	X(CREDIT, 4, "the number of the last message that may come, 16 bits")    \
	X(IOMAP, 6, "the entry of the I/O map that was written")                 \
	X(CONTROL, 7, "what the connection does")

enum vb_rs_message {
#define X(name, code, text) VB_RS_##name = code,
	VB_RS_MESSAGES(X)
#undef X
};

enum { VB_RS_VALUE_BITS = 29, VB_RS_MOST_BYTES = (1 << VB_RS_VALUE_BITS) - 1 };

enum vb_rs_control { VB_RS_DISCONNECT, VB_RS_KEEPALIVE, VB_RS_SHUTDOWN };

static inline uint32_t vb_rs_message_make(enum vb_rs_message type, uint32_t value)
{
	return (uint32_t)type << VB_RS_VALUE_BITS | (value & VB_RS_MOST_BYTES);
}

static inline unsigned vb_rs_message_type(uint32_t message) { return message >> VB_RS_VALUE_BITS; }
static inline uint32_t vb_rs_message_value(uint32_t message) { return message & VB_RS_MOST_BYTES; }

/* ---- tables that the peer writes ---- */

/* Where bytes may be written: an entry of the list of segments. */
struct vb_rs_segment {
	uint64_t address;
	uint32_t key;
	uint32_t bytes;
};

/* Memory that the peer's program offers for riowrite. */
struct vb_rs_iomap {
	uint64_t offset;
	struct vb_rs_segment segment;
};

_Static_assert(sizeof(struct vb_rs_segment) == 16, "segment");
_Static_assert(sizeof(struct vb_rs_iomap) == 24, "I/O map entry");

/* To or from the other byte order. */
static inline void vb_rs_segment_swap(struct vb_rs_segment *s)
{
	s->address = __builtin_bswap64(s->address);
	s->key = __builtin_bswap32(s->key);
	s->bytes = __builtin_bswap32(s->bytes);
}

static inline bool vb_rs_host_is_big_endian(void)
{
	return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
}

/* ---- datagrams ---- */

/*
 * In front of the data in each packet between UD QPs: who sent it. An IPv4 address takes the first 4 bytes of
 * `address`.
 */
enum { VB_RS_UD_IPV4_BYTES = 8, VB_RS_UD_IPV6_BYTES = 24 };

#define VB_RS_UD_ROWS(F, B, P, O)       \
	F(P, O, version, 0, 0, 8)       \
	F(P, O, length, 1, 0, 8)        \
	F(P, O, port, 2, 0, 16)         \
	B(P, O, ipv4, 4, 4)
VB_FIELD_ACCESSORS(vb_rs_ud_ipv4, VB_RS_UD_IPV4_BYTES, 0, VB_RS_UD_ROWS)

/* The flow label stands before the address. 4 + 4 + 16: the sender counts 24. */
#define VB_RS_UD6_ROWS(F, B, P, O)      \
	F(P, O, version, 0, 0, 8)       \
	F(P, O, length, 1, 0, 8)        \
	F(P, O, port, 2, 0, 16)         \
	F(P, O, flow_info, 4, 0, 32)    \
	B(P, O, ipv6, 8, 16)
VB_FIELD_ACCESSORS(vb_rs_ud_ipv6, VB_RS_UD_IPV6_BYTES, 0, VB_RS_UD6_ROWS)

/*
 * In front of what goes over UDP until the QPs know each other. `op`: the program's data follow, or nothing
 * does.
 */
enum { VB_RS_UDP_TAG = 0x55555555, VB_RS_UDP_IPV4_BYTES = 16, VB_RS_UDP_IPV6_BYTES = 28 };
enum vb_rs_udp_op { VB_RS_UDP_DATA = 0, VB_RS_UDP_CONTROL = 7 };

#define VB_RS_UDP_ROWS(F, B, P, O)      \
	F(P, O, tag, 0, 0, 32)          \
	F(P, O, version, 4, 0, 8)       \
	F(P, O, op, 5, 0, 8)            \
	F(P, O, length, 6, 0, 8)        \
	F(P, O, qpn, 9, 0, 24)          \
	B(P, O, address, 12, 16)
VB_FIELD_ACCESSORS(vb_rs_udp, VB_RS_UDP_IPV6_BYTES, 0, VB_RS_UDP_ROWS)

extern const struct vb_field_table *const vb_rs_field_tables[4];

#endif
