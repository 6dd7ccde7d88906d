/* SPDX-License-Identifier: BSD-2-Clause */
#include "pcapng.h"

#include <string.h>

/* What blocks may have behind their fixed parts. */
enum {
	OPT_END = 0, OPT_COMMENT = 1, SHB_APPLICATION = 4, IF_NAME = 2, IF_DESCRIPTION = 3, IF_TSRESOL = 9,
	EPB_FLAGS = 2, EPB_DROPCOUNT = 4, ISB_IFRECV = 4, ISB_IFDROP = 5,
};
enum {
	NANOSECONDS = 9,
	INBOUND = 1,
	OUTBOUND = 2,
	MAX_OPTION = 1024,
};

/* A block of these is put together before it is written, since its length comes first. */
struct block {
	uint8_t bytes[4 * MAX_OPTION];
	size_t used;
};

static uint32_t padded(size_t n) { return (uint32_t)((n + 3) & ~(size_t)3); }

static void put(struct block *b, const void *bytes, size_t n)
{
	memcpy(b->bytes + b->used, bytes, n);
	memset(b->bytes + b->used + n, 0, padded(n) - n);
	b->used += padded(n);
}

static void put16(struct block *b, uint16_t first, uint16_t second)
{
	uint16_t both[] = { first, second };
	put(b, both, sizeof(both));
}

static void put32(struct block *b, uint32_t value) { put(b, &value, sizeof(value)); }

static void put_option(struct block *b, uint16_t code, const void *value, size_t n)
{
	put16(b, code, (uint16_t)n);
	put(b, value, n);
}

static void put_text(struct block *b, uint16_t code, const char *text)
{
	put_option(b, code, text, strnlen(text, MAX_OPTION));
}

/* Times have their high half first, whatever the byte order. */
static void put_time(struct block *b, uint64_t time_ns)
{
	put32(b, (uint32_t)(time_ns >> 32));
	put32(b, (uint32_t)time_ns);
}

/* body, the packet's bytes if it has some, and options. */
static void write_block(FILE *out, uint32_t type, const struct block *body, const void *data, uint32_t n,
			const struct block *options)
{
	static const uint8_t zeros[4];
	uint32_t head[2] = { type, (uint32_t)(12 + body->used + padded(n) + options->used) };

	fwrite(head, sizeof(head), 1, out);
	fwrite(body->bytes, body->used, 1, out);
	if (n)
		fwrite(data, n, 1, out);
	fwrite(zeros, padded(n) - n, 1, out);
	fwrite(options->bytes, options->used, 1, out);
	fwrite(&head[1], sizeof(head[1]), 1, out);
}

void pcapng_begin(struct pcapng *p, FILE *out, const char *application)
{
	struct block body = { .used = 0 }, options = { .used = 0 };

	*p = (struct pcapng){ .out = out };
	put32(&body, PCAPNG_BYTE_ORDER);
	put16(&body, 1, 0); /* version */
	put32(&body, UINT32_MAX);
	put32(&body, UINT32_MAX); /* the section's length is not known */
	put_text(&options, SHB_APPLICATION, application);
	put16(&options, OPT_END, 0);
	write_block(out, PCAPNG_SECTION, &body, NULL, 0, &options);
}

uint32_t pcapng_interface(struct pcapng *p, const char *name, const char *description, uint32_t snap)
{
	struct block body = { .used = 0 }, options = { .used = 0 };
	uint8_t resolution = NANOSECONDS;

	put16(&body, PCAPNG_RAW_IP, 0);
	put32(&body, snap);
	put_text(&options, IF_NAME, name);
	put_text(&options, IF_DESCRIPTION, description);
	put_option(&options, IF_TSRESOL, &resolution, sizeof(resolution));
	put16(&options, OPT_END, 0);
	write_block(p->out, PCAPNG_INTERFACE, &body, NULL, 0, &options);
	return p->interfaces++;
}

void pcapng_packet(struct pcapng *p, const struct pcapng_packet *packet)
{
	struct block body = { .used = 0 }, options = { .used = 0 };
	uint32_t flags = packet->goes_out ? OUTBOUND : INBOUND;

	put32(&body, packet->interface);
	put_time(&body, packet->time_ns);
	put32(&body, packet->kept);
	put32(&body, packet->len);
	if (packet->comment)
		put_text(&options, OPT_COMMENT, packet->comment);
	put_option(&options, EPB_FLAGS, &flags, sizeof(flags));
	if (packet->dropped)
		put_option(&options, EPB_DROPCOUNT, &packet->dropped, sizeof(packet->dropped));
	put16(&options, OPT_END, 0);
	write_block(p->out, PCAPNG_PACKET, &body, packet->bytes, packet->kept, &options);
}

void pcapng_event(struct pcapng *p, uint32_t interface, uint64_t time_ns, const void *fixed, uint32_t n,
		  const void *text, uint32_t text_bytes)
{
	struct block body = { .used = 0 }, none = { .used = 0 };

	put32(&body, interface);
	put_time(&body, time_ns);
	put(&body, fixed, n);
	write_block(p->out, PCAPNG_EVENT, &body, text, text_bytes, &none);
}

void pcapng_statistics(struct pcapng *p, uint32_t interface, uint64_t time_ns, uint64_t received,
		       uint64_t dropped)
{
	struct block body = { .used = 0 }, options = { .used = 0 };

	put32(&body, interface);
	put_time(&body, time_ns);
	put_option(&options, ISB_IFRECV, &received, sizeof(received));
	put_option(&options, ISB_IFDROP, &dropped, sizeof(dropped));
	put16(&options, OPT_END, 0);
	write_block(p->out, PCAPNG_STATISTICS, &body, NULL, 0, &options);
}
