/* SPDX-License-Identifier: BSD-2-Clause */
/* What an AETH says (IB vol. 1, 9.7.5.1.2): three bits of class, five of value. */
#ifndef VB_WIRE_SYNDROME_H
#define VB_WIRE_SYNDROME_H

#include <stdint.h>

enum vb_aeth_class { VB_AETH_ACK = 0, VB_AETH_RNR = 1, VB_AETH_NAK = 3 };

/* Values of a NAK. X(NAME, code, text) */
#define VB_NAK_CODES(X)                                 \
	X(SEQUENCE, 0, "PSN sequence error")            \
	X(INVALID_REQUEST, 1, "invalid request")        \
	X(REMOTE_ACCESS, 2, "remote access error")      \
	X(REMOTE_OPERATIONAL, 3, "remote operational error")

enum vb_nak_code {
#define X(name, code, text) VB_NAK_##name = code,
	VB_NAK_CODES(X)
#undef X
};

/* In an ACK: the credit count means nothing, send as you like. */
#define VB_AETH_NO_CREDITS 31

static inline uint8_t vb_syndrome(enum vb_aeth_class class, unsigned value)
{
	return (uint8_t)(class << 5 | (value & 31));
}

/*
 * What a credit count in an ACK stands for: how many receives the responder has (9.7.7.2.4). code: 0 to 30.
 */
static inline unsigned vb_credits(unsigned code)
{
	if (code < 4)
		return code;
	return (code % 2 ? 3u : 2u) << (code / 2 - 1);
}

/* The code for as many of them as there is one for. */
static inline unsigned vb_credits_code(unsigned receives)
{
	if (receives < 2)
		return receives;
	unsigned top = 31 - (unsigned)__builtin_clz(receives), code = 2 * top + (receives >> (top - 1) & 1);
	return code < VB_AETH_NO_CREDITS ? code : VB_AETH_NO_CREDITS - 1;
}

static inline unsigned vb_syndrome_class(uint8_t syndrome) { return syndrome >> 5; }
static inline unsigned vb_syndrome_value(uint8_t syndrome) { return syndrome & 31; }

#endif
