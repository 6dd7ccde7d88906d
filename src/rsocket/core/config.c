/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The administrator's defaults: one number per file. A file that is missing or holds no number changes
 * nothing; a number out of range is replaced by the nearest.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rsocket/core/rs.h"

#define FOLDER "/etc/rdma/rsocket/"

enum { MAX_RING = 1 << 30, MAX_POLLING_US = 1000000, MAX_WAKE_UP_MS = 3600000 };

static struct vb_rs_config config = {
	.polling_us = VB_RS_ADAPTIVE,
	.wake_up_ms = 5000,
	.receive_bytes = 1 << 17,
	.send_bytes = 1 << 17,
	.send_queue = 384,
	.receive_queue = 384,
	.inline_bytes = 64,
};

static void read_number(const char *path, uint32_t min, uint32_t max, uint32_t *out)
{
	char text[32], *end;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return;
	text[n] = 0;
	unsigned long v = strtoul(text, &end, 10);
	if (end != text)
		*out = v < min ? min : v > max ? max : (uint32_t)v;
}

static void read_short(const char *path, uint16_t min, uint16_t max, uint16_t *out)
{
	uint32_t v = *out;

	read_number(path, min, max, &v);
	*out = (uint16_t)v;
}

static void read_all(void)
{
	VB_UNCANCELLED;
	uint32_t entries = 0;

	read_number(FOLDER "polling_time", 0, MAX_POLLING_US, &config.polling_us);
	read_number(FOLDER "wake_up_interval", 1, MAX_WAKE_UP_MS, &config.wake_up_ms);
	read_number(FOLDER "mem_default", 1, MAX_RING, &config.receive_bytes);
	read_number(FOLDER "wmem_default", 2 * VB_RS_LOW_WATER, MAX_RING, &config.send_bytes);
	read_short(FOLDER "sqsize_default", VB_RS_MIN_QUEUE, VB_RS_MAX_QUEUE, &config.send_queue);
	read_short(FOLDER "rqsize_default", VB_RS_MIN_QUEUE, VB_RS_MAX_QUEUE, &config.receive_queue);
	read_short(FOLDER "inline_default", 0, VB_RS_MAX_QUEUE, &config.inline_bytes);
	read_number(FOLDER "iomap_size", 0, VB_RS_IOMAP_MOST, &entries);
	config.iomap_entries = vb_rs_iomap_entries(vb_rs_iomap_code(entries));
}

const struct vb_rs_config *vb_rs_config(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_all);
	return &config;
}
