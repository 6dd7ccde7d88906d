/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The names of the checks of VERBATIM_CHECK, and the settings that the libraries read from the environment.
 * Also linked into the command.
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
	X(UNASKED_EVENT, "unasked-event", "ibv_req_notify_cq") \
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
 * Does one NAME=value of the environment look like a setting, and have no meaning? Then `why` gets a
 * sentence about the name, or about the first unknown word of the value. Expressions and files are checked
 * by those who read them.
 */
bool vb_setting_is_unknown(const char *entry, char why[VB_SETTING_TEXT]);

#endif
