/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checks of VERBATIM_CHECK by their names, and what the environment can say to the libraries. Also the
 * command's.
 */
#ifndef VB_CHECK_WORDS_H
#define VB_CHECK_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Constant, name, the page that most of its findings refer to. */
#define VB_CHECKS(X)                                   \
	X(CALL, "call", "")                            \
	X(SEND_BUFFER, "send-buffer", "ibv_post_send") \
	X(LKEY, "lkey", "ibv_reg_mr")                  \
	X(RKEY, "rkey", "ibv_reg_mr")                  \
	X(DEREGISTERED, "deregistered", "ibv_dereg_mr") \
	X(RECEIVE_BUFFER, "receive-buffer", "ibv_post_recv") \
	X(NO_RECEIVE, "no-receive", "ibv_post_recv")   \
	X(CQ_ROOM, "cq-room", "ibv_create_cq")         \
	X(UNSIGNALED, "unsignaled", "ibv_post_send")   \
	X(UNPOLLED, "unpolled", "ibv_poll_cq")         \
	X(LOST_SEND, "lost-send", "ibv_destroy_qp")    \
	X(UNACKED_EVENT, "unacked-event", "ibv_ack_cq_events") \
	X(PEER, "peer", "ibv_modify_qp")               \
	X(COMPLETION, "completion", "ibv_poll_cq")     \
	X(THREADS, "threads", "ibv_create_cq_ex")

enum vb_check {
#define X(name, word, page) VB_CHECK_##name,
	VB_CHECKS(X)
#undef X
	VB_CHECK_COUNT,
};

enum { VB_SETTING_TEXT = 256 };

/*
 * Does one NAME=value of the environment mean nothing to the libraries, though it looks as if it should? Then
 * why is a sentence about the name, or about the first word of the value that is unknown. What can be wrong
 * within an expression or a file is for those who read it.
 */
bool vb_setting_is_odd(const char *entry, char why[VB_SETTING_TEXT]);

#endif
