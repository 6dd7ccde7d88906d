/* SPDX-License-Identifier: BSD-2-Clause */
/* The owner's side of shared domains (adapter/xrc/xrc_protocol.h). */
#ifndef VB_ADAPTER_XRC_SERVER_H
#define VB_ADAPTER_XRC_SERVER_H

#include "adapter/xrc/xrc_protocol.h"

/* Its name is filled in. *others: does another process of the host have it too? */
int vb_xrc_server_open(struct vb_xrc_server *share, uint32_t number, bool *others);
/* The domain has no queues and queue pairs of this process any more. */
void vb_xrc_server_close(struct vb_xrc_server *share);
/* Others can find the queue, or the queue pair, that has this number. */
int vb_xrc_server_number(struct vb_xrc_server *share, enum vb_xrc_what what, uint32_t number);
/* The verbs' part: handles on receiving queue pairs of a domain, by number. Set once. */
struct vb_xrc_handles {
	void *(*open)(uint32_t qpn, uint32_t xrcd); /* NULL: there is none */
	void (*close)(void *handle);
	struct vb_qp *(*qp)(void *handle);
};
void vb_xrc_set_handles(const struct vb_xrc_handles *handles);

#endif
