/* SPDX-License-Identifier: BSD-2-Clause */
/* A host: its namespaces, what is in them, and the process that they end with. */
#ifndef VB_TOOLS_LAB_HOST_H
#define VB_TOOLS_LAB_HOST_H

#include "channel.h"

/* Directories that hosts see although /tmp and the like are their own. */
enum { LAB_HERE, LAB_COMMAND, LAB_LIBRARIES, LAB_KEPT };

struct lab_kept {
	char path[LAB_KEPT][PATH_MAX]; /* "": none */
};

/* The working directory, that of the command and that of the libraries. */
void lab_keep_folders(struct lab_kept *kept);

/*
 * Makes a host. Its first process tells `status` in a message that it is LAB_READY, with the descriptors of
 * its interface and of the socket on which its programs call the lab, or that it has LAB_FAILED. Gives that
 * process; -1 with errno.
 */
pid_t lab_host_start(const struct lab_plan *plan, unsigned host, const struct lab_kept *kept, int status);

#endif
