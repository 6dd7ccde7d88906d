#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each mistake of mistakes.c is named by its check, with its place; not without the check, and not where it
is not made.

usage: checks.py MISTAKES PLACE BUILD_DIR [PATTERN]
"""
import os
import re
import subprocess
import sys

MISTAKES, PLACE, BUILD = sys.argv[1:4]
PATTERN = sys.argv[4] if len(sys.argv) > 4 else ""
LIMIT_S = 90

# Name: the check, what its sentence says, and the page. The place is the function of the same name, or ""
# where none is known.
EXPECTED = {
    "send_buffer": (
        "send-buffer",
        r"QP 0x\w+, send wr_id 0x7: its 64 bytes at 0x\w+ were changed",
        "ibv_post_send",
    ),
    "send_buffer_later": ("send-buffer", r"its 64 bytes at 0x\w+ were changed", "ibv_post_send"),
    "send_buffer_wr": (
        "send-buffer",
        r"send wr_id 0x7: its 256 bytes .* by a peer that may write there",
        "ibv_post_send",
    ),
    "send_buffer_beside_resized": ("send-buffer", r"its 64 bytes at 0x\w+ were changed", "ibv_post_send"),
    "read_then_send": None,
    "dead_lkey": ("lkey", r"registered in dead_lkey.* and deregistered in dead_lkey", "ibv_reg_mr"),
    "never_a_key": ("lkey", r"key 0x12345678 is no key of a region or window", "ibv_reg_mr"),
    "wrong_domain": (
        "lkey",
        r"is of protection domain \d+ \(registered in wrong_domain.*used in protection domain \d+",
        "ibv_reg_mr",
    ),
    "not_writable": (
        "lkey",
        r"receive wr_id 0x9.*lacks IBV_ACCESS_LOCAL_WRITE: it was registered with no rights in not_writable",
        "ibv_reg_mr",
    ),
    "out_of_bounds": ("lkey", r"4097 bytes at \w+ are not within the 4096 bytes at", "ibv_reg_mr"),
    "window_as_lkey": ("lkey", r"is a memory window's", "ibv_reg_mr"),
    "dead_rkey": (
        "rkey",
        r"QP 0x\w+, request of QP 0x\w+.*registered in dead_rkey.*deregistered in dead_rkey",
        "ibv_reg_mr",
        "",
    ),
    "rkey_rights": (
        "rkey",
        r"lacks IBV_ACCESS_REMOTE_WRITE: it was registered with IBV_ACCESS_LOCAL_WRITE \| REMOTE_READ",
        "ibv_reg_mr",
        "",
    ),
    "rkey_bounds": ("rkey", r"64 bytes at \w+ are not within the 4096 bytes", "ibv_reg_mr", ""),
    "queue_pair_rights": (
        "rkey",
        r"qp_access_flags \(IBV_ACCESS_REMOTE_READ\) do not allow it: IBV_ACCESS_REMOTE_WRITE is needed",
        "ibv_reg_mr",
        "",
    ),
    "flush_rights": (
        "rkey",
        r"qp_access_flags \(IBV_ACCESS_REMOTE_WRITE\) do not allow it: IBV_ACCESS_FLUSH_GLOBAL is needed",
        "ibv_reg_mr",
        "",
    ),
    "window_rights": (
        "rkey",
        r"lacks IBV_ACCESS_REMOTE_WRITE: it is a memory window's that was bound with IBV_ACCESS_REMOTE_READ",
        "ibv_reg_mr",
        "",
    ),
    "stale_window": ("rkey", r"is a memory window's, and the window is not bound with it", "ibv_reg_mr", ""),
    "unmapped_target": (
        "rkey",
        r"registered in unmapped_target.* is not there any more: it was unmapped.*ibv_dereg_mr",
        "ibv_reg_mr",
        "",
    ),
    "unmapped_receive": (
        "receive-buffer",
        r"registered in unmapped_receive.* is not there any more.*ibv_dereg_mr",
        "ibv_post_recv",
        "",
    ),
    "cut_target": (
        "rkey",
        r"registered in cut_target.* is not there any more: .*its file cut short.*ibv_dereg_mr",
        "ibv_reg_mr",
        "",
    ),
    "cut_receive": (
        "receive-buffer",
        r"registered in cut_receive.* is not there any more: .*its file cut short.*ibv_dereg_mr",
        "ibv_post_recv",
        "",
    ),
    "unmapped_send": (
        "lkey",
        r"QP 0x\w+, send wr_id 0x7: .*registered in unmapped_send.* is not there any more.*ibv_dereg_mr",
        "ibv_reg_mr",
    ),
    "deregistered_under_way": (
        "deregistered",
        r"is deregistered while QP 0x\w+, send wr_id 0x7, uses it",
        "ibv_dereg_mr",
    ),
    "reregistered_under_way": (
        "deregistered",
        r"is registered anew while QP 0x\w+, send wr_id 0x7, uses it",
        "ibv_rereg_mr",
    ),
    "datagram_header": ("receive-buffer", r"receive wr_id 0x9 has 32 bytes.*40 bytes", "ibv_post_recv"),
    "short_receive": (
        "receive-buffer",
        r"receive wr_id 0x9, 16 bytes: a message of QP 0x\w+, 64 bytes.*longer",
        "ibv_post_recv",
        "",
    ),
    "short_datagram": (
        "receive-buffer",
        r"receive wr_id 0x9, 64 bytes: a datagram .* needs 104, GRH included",
        "ibv_post_recv",
        "",
    ),
    "short_unreliable": (
        "receive-buffer",
        r"receive wr_id 0x9, 16 bytes: a message of QP 0x\w+: .*longer",
        "ibv_post_recv",
        "",
    ),
    "no_receive": (
        "no-receive",
        r"no receive is posted \(0 were, all are used\): it is tried again for [\d.]+ ms",
        "ibv_post_recv",
        "",
    ),
    "no_receive_for_long": ("no-receive", r"has waited for a second", "ibv_post_recv", ""),
    "receives_one_by_one": None,
    "queue_room": (
        "cq-room",
        r"5 completions are to come to a completion queue of 4 entries",
        "ibv_create_cq",
        "receive",
    ),
    "queue_overrun": (
        "cq-room",
        r"found a full completion queue \(4 entries\)",
        "ibv_create_cq",
        "make_world",
    ),
    "queue_resize": ("call", r"cannot have 2 entries: .* those that wait must fit", "ibv_resize_cq"),
    "never_signaled": (
        "unsignaled",
        r"the send queue is full, and none of its 8 requests has a completion",
        "ibv_post_send",
    ),
    "never_polled": (
        "unpolled",
        r"the send queue has been full for a second, and its completion queue has never been polled",
        "ibv_poll_cq",
    ),
    "polled_late": None,
    "flushed_posts": None,
    "flushed_before": None,
    "unseen_error": (
        "unpolled",
        r"has not seen that its send wr_id 0x7 failed with IBV_WC_RNR_RETRY_EXC_ERR",
        "ibv_poll_cq",
        "make_world",
    ),
    "lost_send": (
        "lost-send",
        r"is destroyed with 1 sends under way \(the oldest: wr_id 0x7\)",
        "ibv_destroy_qp",
    ),
    "lost_sends": (
        "lost-send",
        r"is destroyed with 1 sends under way \(the oldest: wr_id 0x7\)",
        "ibv_destroy_qp",
    ),
    "unacked_event": (
        "unacked-event",
        r"while 1 events that ibv_get_cq_event gave are not acknowledged",
        "ibv_ack_cq_events",
        "make_world",
    ),
    "unacked_qp_event": (
        "unacked-event",
        r"a queue pair is destroyed while 1 asynchronous events .* are not acknowledged",
        "ibv_ack_async_event",
    ),
    "unacked_cq_event": (
        "unacked-event",
        r"a completion queue is destroyed while 1 asynchronous events .* are not acknowledged",
        "ibv_ack_async_event",
    ),
    "unacked_srq_event": (
        "unacked-event",
        r"a shared receive queue is destroyed while 1 asynchronous events .* are not acknowledged",
        "ibv_ack_async_event",
    ),
    "unasked_event": (
        "unasked-event",
        r"waits for an event that nobody has asked for, while 1 completions wait",
        "ibv_req_notify_cq",
    ),
    "psn_mismatch": (
        "peer",
        r"the one's sq_psn is 0x001234, the other's rq_psn 0x000001",
        "ibv_modify_qp",
        "",
    ),
    "mtu_mismatch": ("peer", r"the one's path_mtu is 4096 bytes, the other's 1024", "ibv_modify_qp", ""),
    "mtu_of_port": (
        "peer",
        r"path_mtu is 4096 bytes, and the port's active_mtu 1024: over a wire ibv_modify_qp refuses it",
        "ibv_modify_qp",
        "",
    ),
    "read_depth": (
        "peer",
        r"the one's max_rd_atomic is 16, the other's max_dest_rd_atomic 4",
        "ibv_modify_qp",
        "",
    ),
    "no_read_depth": ("completion", r"IBV_WC_LOC_QP_OP_ERR: a READ or atomic needs", "ibv_poll_cq"),
    "silent_peer": ("completion", r"IBV_WC_RETRY_EXC_ERR: the remote queue pair", "ibv_poll_cq"),
    "wrong_number": (
        "completion",
        r"IBV_WC_RETRY_EXC_ERR: .*no process of this host .* has a queue pair 0x777777",
        "ibv_poll_cq",
    ),
    "two_pollers": (
        "threads",
        r"ibv_poll_cq: the completion queue .* is used by two threads at once",
        "ibv_create_cq_ex",
        "poll_much",
    ),
    "two_posters": (
        "threads",
        r"ibv_post_send: the queue pair .* is used by two threads at once",
        "ibv_alloc_td",
        "post_much",
    ),
    "missing_attributes": (
        "call",
        r"RESET to INIT needs IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT",
        "ibv_modify_qp",
    ),
    "surplus_attribute": ("call", r"RESET to INIT does not take IBV_QP_QKEY, IBV_QP_SQ_PSN", "ibv_modify_qp"),
    "no_grh": ("call", r"ah_attr.is_global: RoCE addresses its peers by GID", "ibv_create_ah"),
    "parents_finding": (
        "call",
        r"ah_attr.is_global: RoCE addresses its peers by GID",
        "ibv_create_ah",
        "(?:no_grh|parents_finding)",
    ),
    "no_grh_in_modify": (
        "call",
        r"ah_attr.is_global: RoCE addresses its peers by GID",
        "ibv_modify_qp",
        "try_rtr",
    ),
    "gid_index": ("call", r"sgid_index: the port's GID table has no such entry", "ibv_modify_qp", "try_rtr"),
    "gid_kind": (
        "call",
        r"ah_attr.grh: one of the GIDs of sgid_index and dgid is an IPv4 address",
        "ibv_modify_qp",
        "try_rtr",
    ),
    "inline_probe": None,
    "dmabuf_probe": None,
    "full_tag_list": None,
    "rendezvous_before": None,
    "lost_part": None,
    "failed_on_purpose": None,
    "inline_too_long": ("call", r"more inline data than the queue pair's max_inline_data", "ibv_post_send"),
    "too_many_entries": ("call", r"num_sge is beyond the queue pair's max_send_sge", "ibv_post_send"),
    "too_many_shared_entries": (
        "call",
        r"num_sge is beyond the queue's max_recv_sge \(of an SRQ: max_sge\), which is 1",
        "ibv_post_srq_recv",
    ),
    "no_send_room": ("call", r"the queue pair was made with max_send_wr 0", "ibv_post_send"),
    "no_receive_room": ("call", r"the queue was made with max_recv_wr 0", "ibv_post_recv"),
    "post_too_early": ("call", r"the queue pair is not connected", "ibv_post_send"),
    "two_at_one_place": ("call", r"the GID is no multicast address", "ibv_attach_mcast"),
    "too_many_to_remember": ("call", r"multicast is for UD queue pairs", "ibv_attach_mcast"),
}
# What VERBATIM_DEBUG alone tells, once: right programs may do it, too. Over UDP.
TOLD = {
    "other_qkey": r"receiver: QP 0x\w+: a datagram of QP 0x\w+ has the Q_Key 0x6, and this queue pair's is 0x5",
    "datagram_without_receive": r"receiver: QP 0x\w+: no receive is posted \(\d were, all are used\) for a datagram",
    "message_without_receive": r"receiver: QP 0x\w+: no receive is posted for a message of QP 0x\w+",
    "stranger": r"receiver: QP 0x\w+: a packet from ::ffff:127\.0\.0\.1 to \S+ is for it, "
    r"and it connects \S+ to ::ffff:127\.0\.0\.2 ",
}
# What the side that is refused knows of it: its completion's sentence, on each path.
REFUSED = {
    "queue_pair_rights": r"IBV_WC_REM_INV_REQ_ERR: [^\n]*qp_access_flags",
    "rkey_rights": r"IBV_WC_REM_ACCESS_ERR: [^\n]*the region's access flags",
    "no_read_depth": r"IBV_WC_LOC_QP_OP_ERR: a READ or atomic needs max_rd_atomic",
}
# What has to do with a connection's path is tried over UDP, too.
ON_THE_WIRE = (
    "send_buffer",
    "send_buffer_later",
    "send_buffer_wr",
    "read_then_send",
    "dead_lkey",
    "dead_rkey",
    "rkey_bounds",
    "unmapped_target",
    "unmapped_receive",
    "cut_target",
    "cut_receive",
    "unmapped_send",
    "deregistered_under_way",
    "never_polled",
    "unseen_error",
)
# There is an error, but it is seen: which check is silent then.
SEEN = {"unseen_error": "unpolled", "unacked_cq_event": "unacked-event", "flushed_before": "lkey"}
# What goes wrong on purpose.
FAULTS = {
    "lost_part": "drop #2 of send",
    "failed_on_purpose": "fail ibv_resize_cq EINVAL; fail ibv_advise_mr ENOMEM; fail ibv_detach_mcast EIO",
}
# One side makes these mistakes, and the other has nothing to say.
ALONE = ("unmapped_send",)
# What is said of all findings in the end.
SUMS = {
    "two_at_one_place": r"checks: 2 findings\n$",
    "too_many_to_remember": r"checks: that were 1024 findings, and there are others: [^\n]*\n"
    r"verbatim: checks: 1024 findings, and others 3 times\n$",
}
# However often they are met, they are one finding.
ONCE = ("lost_sends", "parents_finding")
count = failed = 0


def report(name, problem):
    global count, failed
    count += 1
    print(f"{'not ok' if problem else 'ok'} {count} - {name}", flush=True)
    if problem:
        failed += 1
        print("".join(f"# {line}\n" for line in problem.splitlines()), end="", flush=True)


def run(argv, setting=None, wire=False, debug=False, faults=""):
    """The exit status and what was said on standard error."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("VERBATIM_")}
    if setting is not None:
        env["VERBATIM_CHECK"] = setting
    if wire:
        env["VERBATIM_LOCAL"] = "off"
    if faults:
        env["VERBATIM_FAULTS"] = faults
    if debug:
        env["VERBATIM_DEBUG"] = "1"
    done = subprocess.run(
        argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False
    )
    return done.returncode, done.stderr.decode(errors="replace")


def silence(status, said):
    return "" if status == 0 and not said else f"exit status {status}, and was said:\n{said}"


def named(name, check, sentence, page, place=None):
    """A pattern of the finding as it is printed."""
    place = name if place is None else place
    at = rf"\n    [^\n]* in [^\n]*\b{place}\b[^\n]*" if place else ""
    return (
        rf"verbatim: check {check}: [^\n]*{sentence}[^\n]*{at}\n    see {page}\(3\), verbatim-checks\(7\)\n"
    )


def is_told_once(check, said):
    return said.count(f"verbatim: check {check}:") == 1 and len(re.findall(r"checks: \d+ finding", said)) == 1


def run_until_named(name, expected, wire=False):
    """What is wrong, or "". A program that loses its processor for a millisecond before it touches the buffer
    makes no mistake that shows: the next run does."""
    for _ in range(5 if expected[0] == "send-buffer" else 1):
        status, said = run([MISTAKES, name, "wrong"], "1", wire)
        alone = name not in ALONE or said.count("verbatim: check ") == 1
        once = name not in ONCE or is_told_once(expected[0], said)
        sums = re.search(SUMS.get(name, ""), said)
        if status == 0 and alone and once and sums and re.search(named(name, *expected), said):
            return ""
    return f"exit status {status}, and was said:\n{said}"


def test_mistake(name, expected):
    report(f"{name}: is named", run_until_named(name, expected))
    status, said = run([MISTAKES, name, "wrong"], f"-{expected[0]}")
    report(
        f"{name}: not without its check",
        "" if status == 0 and f"check {expected[0]}" not in said else said or str(status),
    )
    report(f"{name}: nothing is said without checks", silence(*run([MISTAKES, name, "wrong"])))


def test_on_the_wire(name, expected, setting):
    if expected:
        report(f"{name}: is named over UDP", run_until_named(name, expected, wire=True))
    report(
        f"{name}: silent over UDP where it is not made",
        silence(*run([MISTAKES, name, "right"], setting, wire=True)),
    )


def test_refused(name, sentence):
    for path, wire in (("within the host", False), ("over UDP", True)):
        status, said = run([MISTAKES, name, "wrong"], "completion", wire)
        good = status == 0 and re.search(named(name, "completion", sentence, "ibv_poll_cq"), said)
        report(f"{name}: its completion is explained {path}", "" if good else f"{status}\n{said}")


def test_told(name, sentence):
    status, said = run([MISTAKES, name, "wrong"], wire=True, debug=True)
    good = status == 0 and len(re.findall(f"verbatim: {sentence}", said)) == 1
    report(f"{name}: is told once", "" if good else f"{status}\n{said}")
    report(f"{name}: is no finding", silence(*run([MISTAKES, name, "wrong"], "-completion", wire=True)))
    status, said = run([MISTAKES, name, "right"], wire=True, debug=True)
    good = status == 0 and not re.search(sentence, said)
    report(f"{name}: not told where it is not made", "" if good else f"{status}\n{said}")


def test_place():
    """A line in a folder whose name is that of headers' folder, where lines are known at all."""
    if "(mistakes.c:" not in run([MISTAKES, "no_grh", "wrong"], "1")[1]:
        return
    status, said = run([PLACE], "1")
    report("a place in a folder of headers' name", "" if status == 0 and "main (place.c:" in said else said)


def test_settings():
    fatal, said = run([MISTAKES, "no_grh", "wrong"], "1,fatal")
    report(
        "fatal ends the program",
        "" if fatal == -6 and said.count("verbatim: check") == 1 else f"{fatal}\n{said}",
    )
    report("fatal ends none that is right", silence(*run([MISTAKES, "no_grh", "right"], "fatal")))
    status, said = run([MISTAKES, "no_grh", "wrong"], "lkey,rkey")
    report("those that are not named are silent", silence(status, said))
    status, said = run([MISTAKES, "no_grh", "wrong"], "call")
    report("the one that is named is not", "" if "check call" in said else said)
    for word in ("0", "off"):
        report(f"{word} is off", silence(*run([MISTAKES, "no_grh", "wrong"], word)))
    status, said = run([MISTAKES, "no_grh", "wrong"], "on")
    report("on is on", "" if "check call" in said and "no word" not in said else said)
    status, said = run([MISTAKES, "no_grh", "right"], "nonsense")
    report("an unknown word is told", "" if status == 0 and "no word 'nonsense'" in said else said)
    status, said = run([os.path.join(BUILD, "verbatim"), "run", "--check", MISTAKES, "no_grh", "wrong"])
    report(
        "verbatim run --check", "" if status == 0 and "check call" in said and "1 finding\n" in said else said
    )
    status, said = run([os.path.join(BUILD, "verbatim"), "run", "--check=-call", MISTAKES, "no_grh", "wrong"])
    report("verbatim run --check=-call", silence(status, said))
    status, said = run([os.path.join(BUILD, "verbatim"), "run", "--check=fatal", MISTAKES, "no_grh", "wrong"])
    report("verbatim run --check=fatal", "" if status == -6 else f"{status}\n{said}")


def main():
    names = subprocess.run([MISTAKES], stdout=subprocess.PIPE, check=True).stdout.decode().split()
    expected = set(EXPECTED) | set(TOLD)
    report("each mistake is expected", "" if set(names) == expected else str(set(names) ^ expected))
    for name in names:
        if not re.search(PATTERN, name):
            continue
        if name in TOLD:
            test_told(name, TOLD[name])
            continue
        if EXPECTED[name]:
            test_mistake(name, EXPECTED[name])
        setting = SEEN.get(name, "1")
        said = run([MISTAKES, name, "right"], setting, faults=FAULTS.get(name))
        report(f"{name}: silent where it is not made", silence(*said))
        if name in ON_THE_WIRE:
            test_on_the_wire(name, EXPECTED[name], setting)
        if name in REFUSED:
            test_refused(name, REFUSED[name])
    if not PATTERN:
        test_settings()
        test_place()
    print(f"1..{count}")
    return 1 if failed else 0


sys.exit(main())
