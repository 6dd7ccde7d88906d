/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire's formats for the page's script:
 *
 *	{ "opcodes": { "4": ["RC", "SEND_ONLY", operation, flags, ["AETH", ...]], ... },
 *	  "headers": { "BTH": [bytes, ["opcode", byte, bit, width], ...], ... },
 *	  "messages": { "16": ["REQ", [bytes, ...]], ... },  MADs of the CM by attribute id
 *	  "nak": { "0": text }, "reject": { "1": text }, "rnr_ns": [...],
 *	  "work": [...], "statuses": [...],      names of verbs' constants by value
 *	  "events": { "POST_SEND": 1, ... } }   kinds of events
 */
#include <inttypes.h>

#include <infiniband/verbs.h>

#include "host/inspect.h"
#include "timeline/page.h"
#include "wire/cm_msg.h"
#include "wire/opcode.h"
#include "wire/syndrome.h"
#include "wire/timers.h"

enum { OPCODES = 256, FIRST = 1, LAST = 2, REQUEST = 4, PAYLOAD = 8, RECEIVE = 16, RNR_CODES = 32 };

static const char *const header_names[] = {
#define X(name, prefix, rows, bytes) #name,
	VB_EXTENSION_HEADERS(X)
#undef X
};

static unsigned flags_of(struct vb_opcode_flags f)
{
	return (f.first ? FIRST : 0) | (f.last ? LAST : 0) | (f.request ? REQUEST : 0) |
	       (f.payload ? PAYLOAD : 0) | (f.receive ? RECEIVE : 0);
}

static void write_opcode(FILE *out, unsigned opcode, const struct vb_opcode_row *row)
{
	const char *between = "";

	fprintf(out, "\"%u\":[\"%s\",\"%s\",%u,%u,[", opcode, vb_service_name((uint8_t)opcode), row->name,
		row->operation, flags_of(row->flags));
	for (unsigned ext = 0; ext < VB_EXT_COUNT; ext++) {
		if (!vb_opcode_has(row, ext))
			continue;
		fprintf(out, "%s\"%s\"", between, header_names[ext]);
		between = ",";
	}
	fputs("]]", out);
}

static void write_opcodes(FILE *out)
{
	const char *between = "";

	for (unsigned opcode = 0; opcode < OPCODES; opcode++) {
		const struct vb_opcode_row *row = vb_opcode_row((uint8_t)opcode);
		if (!row->name)
			continue;
		fputs(between, out);
		write_opcode(out, opcode, row);
		between = ",\n";
	}
}

/* Bytes have a negative width. */
static void write_table(FILE *out, const struct vb_field_table *table)
{
	fprintf(out, "[%u", table->length);
	for (unsigned i = 0; i < table->num_rows; i++) {
		const struct vb_field_row *row = &table->rows[i];
		fprintf(out, ",[\"%s\",%u,%u,%d]", row->name, row->byte, row->bit,
			row->is_bytes ? -(int)row->width : (int)row->width);
	}
	fputc(']', out);
}

static void write_headers(FILE *out)
{
	const struct vb_field_table *const *tables;

	vb_header_field_tables(&tables); /* the BTH's first */
	fputs("\"BTH\":", out);
	write_table(out, tables[0]);
	for (unsigned ext = 0; ext < VB_EXT_COUNT; ext++) {
		fprintf(out, ",\n\"%s\":", header_names[ext]);
		write_table(out, vb_extension_fields(ext));
	}
}

static void write_messages(FILE *out)
{
	static const unsigned attributes[] = {
#define X(name, prefix, rows, id) id,
		VB_CM_MESSAGES(X)
#undef X
	};
	const struct vb_field_table *const *tables;

	vb_cm_field_tables(&tables);
	fputs("\"0\":[\"MAD\",", out);
	write_table(out, tables[0]);
	for (unsigned i = 0; i < VB_ARRAY_LEN(attributes); i++) {
		fprintf(out, "],\n\"%u\":[\"%s\",", attributes[i], vb_cm_attribute_name(attributes[i]));
		write_table(out, tables[i + 1]);
	}
	fputc(']', out);
}

static void write_reasons(FILE *out)
{
	fputs("\"nak\":{"
#define X(name, code, text) "\"" #code "\":\"" text "\","
	      VB_NAK_CODES(X)
#undef X
	      "\"31\":\"\"},\n\"reject\":{"
#define X(name, value, text) "\"" #value "\":\"" text "\","
	      VB_CM_REJ_REASONS(X)
#undef X
	      "\"0\":\"\"}", out);
}

/* text: ends at NULL. */
static void write_names(FILE *out, const char *key, const char *const *names, size_t count)
{
	fprintf(out, ",\n\"%s\":[", key);
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%s\"%s\"", i ? "," : "", names[i] ? names[i] : "");
	fputc(']', out);
}

static const char *const work[] = {
	[IBV_WR_RDMA_WRITE] = "WRITE", [IBV_WR_RDMA_WRITE_WITH_IMM] = "WRITE_WITH_IMM",
	[IBV_WR_SEND] = "SEND", [IBV_WR_SEND_WITH_IMM] = "SEND_WITH_IMM",
	[IBV_WR_RDMA_READ] = "READ", [IBV_WR_ATOMIC_CMP_AND_SWP] = "COMPARE_SWAP",
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = "FETCH_ADD", [IBV_WR_LOCAL_INV] = "LOCAL_INV",
	[IBV_WR_BIND_MW] = "BIND_MW", [IBV_WR_SEND_WITH_INV] = "SEND_WITH_INV",
	[IBV_WR_TSO] = "TSO", [IBV_WR_FLUSH] = "FLUSH", [IBV_WR_ATOMIC_WRITE] = "ATOMIC_WRITE",
};

const char *timeline_work_name(unsigned opcode)
{
	return opcode < VB_ARRAY_LEN(work) && work[opcode] ? work[opcode] : "?";
}

static void write_events(FILE *out)
{
	fputs(",\n\"events\":{"
#define X(name, value, text) "\"" #name "\":" #value ","
	      VB_CAPTURE_EVENTS(X)
#undef X
	      "\"NONE\":0}", out);
}

static void write_constants(FILE *out)
{
	static const char *const statuses[] = {
		[IBV_WC_SUCCESS] = "SUCCESS", [IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
		[IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR", [IBV_WC_LOC_EEC_OP_ERR] = "LOC_EEC_OP_ERR",
		[IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR", [IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
		[IBV_WC_MW_BIND_ERR] = "MW_BIND_ERR", [IBV_WC_BAD_RESP_ERR] = "BAD_RESP_ERR",
		[IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR", [IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
		[IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR", [IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
		[IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR", [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
		[IBV_WC_REM_ABORT_ERR] = "REM_ABORT_ERR", [IBV_WC_FATAL_ERR] = "FATAL_ERR",
		[IBV_WC_RESP_TIMEOUT_ERR] = "RESP_TIMEOUT_ERR", [IBV_WC_GENERAL_ERR] = "GENERAL_ERR",
	};

	write_names(out, "work", work, VB_ARRAY_LEN(work));
	write_names(out, "statuses", statuses, VB_ARRAY_LEN(statuses));
	fputs(",\n\"rnr_ns\":[", out);
	for (unsigned code = 0; code < RNR_CODES; code++)
		fprintf(out, "%s%" PRIu64, code ? "," : "", (uint64_t)vb_rnr_timer_ns(code));
	fputs("]", out);
}

void timeline_write_formats(FILE *out)
{
	fputs("{\"opcodes\":{", out);
	write_opcodes(out);
	fputs("},\n\"headers\":{", out);
	write_headers(out);
	fputs("},\n\"messages\":{", out);
	write_messages(out);
	fputs("},\n", out);
	write_reasons(out);
	write_constants(out);
	write_events(out);
	fputs("}", out);
}
