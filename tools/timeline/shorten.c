/* SPDX-License-Identifier: BSD-2-Clause */
#include "timeline/shorten.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "host/inspect.h"
#include "pcapng.h"
#include "wire/cm_msg.h"
#include "wire/opcode.h"

enum {
	MIN_BLOCK = 12,
	MAX_BLOCK = 1 << 20,
	PACKET_HEAD = 20,       /* of its body, before the bytes */
	EVENT_HEAD = 12 + sizeof(struct vb_capture_event) - offsetof(struct vb_capture_event, event),
	UDP_BYTES = 8,
	PAYLOAD_KEPT = 16,
};
enum { MAX_BYTES = 256 << 20 }; /* more than that a browser does not like */

struct block {
	uint32_t type, body_bytes;
	uint8_t *body;          /* MAX_BLOCK bytes */
};

enum found { FOUND_BLOCK, FOUND_END, FOUND_PIECE, FOUND_NONSENSE };

static uint32_t get32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static uint32_t padded(uint32_t n) { return (n + 3) & ~3u; }

/* ---- reading ---- */

static enum found next_block(FILE *in, struct block *b)
{
	uint32_t head[2], last;
	size_t got = fread(head, 1, sizeof(head), in);

	if (got != sizeof(head))
		return got ? FOUND_PIECE : FOUND_END;
	if (head[1] % 4 || head[1] < MIN_BLOCK || head[1] > MAX_BLOCK)
		return FOUND_NONSENSE;
	b->type = head[0];
	b->body_bytes = head[1] - MIN_BLOCK;
	if (fread(b->body, 1, b->body_bytes, in) != b->body_bytes || fread(&last, 1, 4, in) != 4)
		return FOUND_PIECE;
	return last == head[1] ? FOUND_BLOCK : FOUND_NONSENSE;
}

/* ---- writing ---- */

static void append(struct shortened *to, const void *bytes, size_t n)
{
	if (to->used + n > to->room) {
		to->room = 2 * (to->used + n);
		to->bytes = realloc(to->bytes, to->room);
		if (!to->bytes)
			exit(complain("out of memory"));
	}
	memcpy(to->bytes + to->used, bytes, n);
	to->used += n;
}

/* The body, of which `left_out` bytes at `at` are left out. */
static void append_block(struct shortened *to, const struct block *b, uint32_t at, uint32_t left_out)
{
	uint32_t head[2] = { b->type, MIN_BLOCK + b->body_bytes - left_out };

	append(to, head, sizeof(head));
	append(to, b->body, at);
	append(to, b->body + at + left_out, b->body_bytes - at - left_out);
	append(to, &head[1], sizeof(head[1]));
}

/* Bytes of an IP packet that are worth keeping. */
static uint32_t worth(const uint8_t *ip, uint32_t bytes)
{
	uint32_t bth = (bytes && ip[0] >> 4 == 6 ? 40 : 20) + UDP_BYTES;

	if (bytes < bth + VB_BTH_BYTES)
		return bytes;
	const struct vb_opcode_row *row = vb_opcode_row(ip[bth]);
	if (!row->name || vb_bth_destination_qpn((const struct vb_bth *)(ip + bth)) == VB_GSI_QPN)
		return bytes;
	return bth + row->header_bytes + PAYLOAD_KEPT;
}

static bool take_packet(struct shortened *to, struct block *b)
{
	uint32_t kept, fewer;

	if (b->body_bytes < PACKET_HEAD || (kept = get32(b->body + 12)) > b->body_bytes - PACKET_HEAD ||
	    padded(kept) > b->body_bytes - PACKET_HEAD)
		return false;
	fewer = worth(b->body + PACKET_HEAD, kept);
	if (fewer > kept)
		fewer = kept;
	memcpy(b->body + 12, &fewer, sizeof(fewer));
	append_block(to, b, PACKET_HEAD + padded(fewer), padded(kept) - padded(fewer));
	return true;
}

/* Is it of an interface that the section has? */
static bool has_interface(const struct shortened *to, const struct block *b)
{
	return b->body_bytes >= 4 && get32(b->body) < to->interfaces;
}

/* False: it makes no sense. The page relies on what is checked here. */
static bool is_good(struct shortened *to, const struct block *b)
{
	switch (b->type) {
	case PCAPNG_SECTION:
		to->interfaces = 0;
		return b->body_bytes >= 4 && get32(b->body) == PCAPNG_BYTE_ORDER;
	case PCAPNG_INTERFACE:
		to->interfaces++;
		return b->body_bytes >= 8 && (uint16_t)get32(b->body) == PCAPNG_RAW_IP;
	case PCAPNG_PACKET:
	case PCAPNG_STATISTICS:
		return has_interface(to, b);
	case PCAPNG_EVENT:
		return has_interface(to, b) && b->body_bytes >= EVENT_HEAD;
	}
	return true;
}

static bool take_block(struct shortened *to, struct block *b)
{
	if (!is_good(to, b))
		return false;
	if (b->type == PCAPNG_PACKET)
		return take_packet(to, b);
	append_block(to, b, 0, 0);
	return true;
}

/* ---- a file ---- */

static bool is_full(const struct shortened *to) { return to->used > MAX_BYTES; }

static bool take_blocks(struct shortened *to, FILE *in, const char *name)
{
	static uint8_t body[MAX_BLOCK];
	struct block b = { .body = body };
	enum found found;
	bool is_first = true;

	while ((found = next_block(in, &b)) == FOUND_BLOCK) {
		if ((is_first && b.type != PCAPNG_SECTION) || !take_block(to, &b)) {
			found = FOUND_NONSENSE;
			break;
		}
		is_first = false;
		if (is_full(to)) {
			complain("%s: the page ends where its %d MiB do, before the capture's end: "
				 "capture less (--packets, --qp, --seconds)", name, MAX_BYTES >> 20);
			return true;
		}
	}
	if (ferror(in))
		complain("%s: %s", name, strerror(errno));
	else if (found == FOUND_NONSENSE || is_first)
		complain("%s is not a capture of verbatim's", name);
	else if (found == FOUND_PIECE)
		complain("%s: its end is missing", name);
	return !ferror(in) && found != FOUND_NONSENSE && !is_first;
}

bool shorten_file(struct shortened *to, const char *path, const char *name)
{
	if (is_full(to)) {
		complain("%s: the page is full before it", name);
		return true;
	}
	FILE *in = fopen(path, "rbe");
	bool good;

	if (!in) {
		complain("%s: %s", name, strerror(errno));
		return false;
	}
	good = take_blocks(to, in, name);
	fclose(in);
	return good;
}
