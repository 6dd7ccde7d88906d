/* SPDX-License-Identifier: BSD-2-Clause */
/* What is to be captured, as options say it. */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "recorder.h"
#include "wire/opcode.h"

enum { DEFAULT_MIB = 16, MAX_MIB = 512, OPCODES = 256, MAX_SNAP = 65536 };

/* Words, and the operations that they mean; VB_OP_* as bits. */
static const struct {
	const char *word;
	unsigned operations;
} words[] = {
	{ "send", 1u << VB_OP_SEND },
	{ "write", 1u << VB_OP_WRITE },
	{ "read", 1u << VB_OP_READ | 1u << VB_OP_READ_RESPONSE },
	{ "atomic", 1u << VB_OP_ATOMIC | 1u << VB_OP_ATOMIC_ACK | 1u << VB_OP_ATOMIC_WRITE },
	{ "ack", 1u << VB_OP_ACK },
	{ "flush", 1u << VB_OP_FLUSH },
	{ "cnp", 1u << VB_OP_CNP },
};

void recorder_defaults(struct recorder_options *options)
{
	*options = (struct recorder_options){
		.in = true, .out = true, .ring_bytes = (uint64_t)DEFAULT_MIB << 20,
	};
	options->filter.snap = MAX_SNAP;
	memset(options->filter.opcodes, 0xff, sizeof(options->filter.opcodes));
}

static void add(struct vb_capture_filter *filter, unsigned opcode)
{
	filter->opcodes[opcode / 64] |= UINT64_C(1) << opcode % 64;
}

void recorder_keep_beginnings(struct recorder_options *options)
{
	memset(options->filter.opcodes, 0, sizeof(options->filter.opcodes));
	for (unsigned op = 0; op < OPCODES; op++) {
		const struct vb_opcode_row *row = vb_opcode_row((uint8_t)op);
		if (row->name && row->flags.request && row->flags.first)
			add(&options->filter, op);
	}
	options->filter.snap = VB_BTH_BYTES;
}

static void add_operations(struct vb_capture_filter *filter, unsigned operations)
{
	for (unsigned op = 0; op < OPCODES; op++) {
		const struct vb_opcode_row *row = vb_opcode_row((uint8_t)op);
		if (row->name && (operations >> row->operation & 1))
			add(filter, op);
	}
}

static bool take_opcodes(struct vb_capture_filter *filter, const char *value)
{
	memset(filter->opcodes, 0, sizeof(filter->opcodes));
	while (*value) {
		size_t len = strcspn(value, ","), i = 0;
		while (i < VB_ARRAY_LEN(words) &&
		       (strlen(words[i].word) != len || strncmp(words[i].word, value, len) != 0))
			i++;
		if (i == VB_ARRAY_LEN(words))
			return false;
		add_operations(filter, words[i].operations);
		value += len + (value[len] == ',');
	}
	return true;
}

/* false unless it is a number from low to high. */
static bool take_number(const char *value, unsigned long low, unsigned long high, unsigned long *number)
{
	char *end;

	*number = strtoul(value, &end, 0);
	return *value >= '0' && *value <= '9' && !*end && *number >= low && *number <= high;
}

static bool take_direction(struct recorder_options *o, const char *value)
{
	o->in = strcmp(value, "out") != 0;
	o->out = strcmp(value, "in") != 0;
	return !(o->in && o->out) || strcmp(value, "both") == 0;
}

static uint64_t power_of_two(unsigned long mib)
{
	uint64_t bytes = 1 << 20;

	while (bytes < (uint64_t)mib << 20)
		bytes *= 2;
	return bytes;
}

bool recorder_option(struct recorder_options *o, const char *name, const char *value)
{
	unsigned long n = 0;
	bool good;

	if (strcmp(name, "qp") == 0) {
		good = take_number(value, 1, 0xffffff, &n);
		o->filter.qpn = (uint32_t)n;
	} else if (strcmp(name, "opcode") == 0) {
		good = *value && take_opcodes(&o->filter, value);
	} else if (strcmp(name, "snap") == 0) {
		good = take_number(value, 12, MAX_SNAP, &n);
		o->filter.snap = (uint32_t)n;
	} else if (strcmp(name, "direction") == 0) {
		good = take_direction(o, value);
	} else if (strcmp(name, "buffer") == 0) {
		good = take_number(value, 1, MAX_MIB, &n);
		o->ring_bytes = power_of_two(n);
	} else {
		good = strcmp(name, "packets") == 0 && take_number(value, 1, ULONG_MAX, &n);
		o->max_packets = n;
	}
	return good || refuse_value(name, value);
}
