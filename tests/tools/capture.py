#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""verbatim capture, and run --capture, --timeline and --latency: what real programs do, over shared memory and
over a wire that loses packets, is read back from the file: by the judge of packets that the network tests
have, which knows nothing of the library, and by tshark.

usage: capture.py BUILD_DIR [PATTERN]
"""
import base64
import collections
import contextlib
import dataclasses
import errno
import functools
import os
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import xml.etree.ElementTree

import paths  # noqa: F401
import harness
import packets as wire
from look import AS_OTHER, DISGUISES, disguised, lacks_another_user
from look import Failure, expect, looked, processes, run_cases, running, wait_for

BUILD = sys.argv[1]
VERBATIM = os.path.join(BUILD, "verbatim")
LIMIT_S = 60.0
OUT, IN = 2, 1
POST_SEND, POST_RECEIVE, COMPLETION, POLL, SENTENCE, CM, FAULT = range(1, 8)
FAULT_IN, FAULT_CHANGED = 1, 4  # flags of faults
RECEIVE, SHARED, SIGNALED = 1, 2, 2  # flags of completions, of those and receives, of posts
ETHERNET = b"\0" * 12
WARNING = 0x600000  # of tshark's severities; what is below it, such as a hop limit of 1, is no mistake
CASES = []


def case(function):
    CASES.append(function)
    return function


@dataclasses.dataclass
class Captured:
    interface: str
    direction: int
    time: int
    whole: bool
    comment: str
    dropped: int
    packet: wire.Packet
    ip: bytes
    is_changed: bool = False  # by a fault, on its way out

    def header(self, version_bytes):
        return self.ip[version_bytes:]


@dataclasses.dataclass
class Event:
    interface: str
    time: int
    kind: int
    qpn: int
    wr_id: int
    opcode: int
    flags: int
    status: int
    bytes: int
    address: int
    rkey: int
    queue: int
    text: str


class Capture:
    """A pcapng file, read by the rules of its format; anything else is a failure."""

    def __init__(self, path):
        self.path = path
        self.interfaces, self.packets, self.statistics, self.events = [], [], {}, []
        with open(path, "rb") as file:
            data = file.read()
        at = 0
        while at < len(data):
            kind, length = struct.unpack_from("<II", data, at)
            expect(
                length % 4 == 0 and struct.unpack_from("<I", data, at + length - 4)[0] == length,
                True,
                f"lengths of the block at {at}",
            )
            self._block(kind, data[at + 8 : at + length - 4])
            at += length

    @staticmethod
    def _options(data):
        found, at = {}, 0
        while at < len(data):
            code, length = struct.unpack_from("<HH", data, at)
            found[code] = data[at + 4 : at + 4 + length]
            at += 4 + (length + 3 & ~3)
        return found

    def _block(self, kind, body):
        if kind == 1:
            expect(struct.unpack_from("<H", body)[0], 101, "link type")
            self.interfaces.append(self._options(body[8:])[2].decode())
        elif kind == 5:
            options = self._options(body[12:])
            self.statistics[self.interfaces[struct.unpack_from("<I", body)[0]]] = [
                int.from_bytes(options[c], "little") for c in (4, 5)
            ]
        elif kind == 6:
            interface, high, low, kept, length = struct.unpack_from("<IIIII", body)
            ip = body[20 : 20 + kept]
            options = self._options(body[20 + (kept + 3 & ~3) :])
            number = len(self.packets) + 1
            frame = ETHERNET + struct.pack(">H", wire.ETHERTYPES[ip[0] >> 4]) + ip
            packet = wire.Packet(number, high << 32 | low, frame) if kept == length else None
            self.packets.append(
                Captured(
                    self.interfaces[interface],
                    int.from_bytes(options[2], "little"),
                    high << 32 | low,
                    kept == length,
                    options[1].decode(),
                    int.from_bytes(options.get(4, b""), "little"),
                    packet,
                    ip,
                )
            )
        elif kind == 0x80007662:
            interface, high, low = struct.unpack_from("<III", body)
            fixed = struct.unpack_from("<IIQIIIIQII", body, 12)
            text = body[60:].rstrip(b"\0").decode()
            self.events.append(Event(self.interfaces[interface], high << 32 | low, *fixed, text))
            if self.events[-1].kind == FAULT:
                self._find_changed(self.events[-1])
        else:
            expect(kind, 0x0A0D0D0A, "block")

    def _find_changed(self, event):
        """A fault is of the last packet before it that is like that."""
        direction = IN if event.flags & FAULT_IN else OUT
        for captured in reversed(self.packets):
            p = captured.packet
            if p and (captured.interface, captured.direction, p.destination_qpn, p.bth_opcode, p.psn) == (
                event.interface,
                direction,
                event.queue,
                event.opcode,
                event.bytes,
            ):
                captured.is_changed = direction == OUT and bool(event.flags & FAULT_CHANGED)
                return
        raise Failure(f"a fault of no packet: {event}")

    def judge(self):
        """Each packet is right, but for what a fault has changed, and they are in the order of time."""
        for captured in self.packets:
            p = captured.packet
            expect(p is not None, True, "whole packets")
            # A flow whose port is taken on this host has another: it is but entropy.
            problems = [problem.split()[0] for problem in p.problems if "source port" not in problem]
            is_bad = captured.is_changed or "its ICRC is wrong" in captured.comment
            expect(problems, ["ICRC"] if is_bad else [], f"packet {p.number}: {p.problems}")
        late = sum(one.time > other.time for one, other in zip(self.packets, self.packets[1:]))
        expect(late, 0, f"packets out of the order of time, of {len(self.packets)}")
        return self

    def of_kind(self, *kinds, is_receive=None):
        return [
            e
            for e in self.events
            if e.kind in kinds and (is_receive is None or bool(e.flags & RECEIVE) == is_receive)
        ]

    def names(self, direction=OUT | IN):
        return collections.Counter(c.packet.name for c in self.packets if c.direction & direction)


def dissected(path):
    """tshark's opinion: (frames, complaints)."""
    if not shutil.which("tshark"):
        return None

    def rows(condition):
        out = subprocess.run(
            [
                "tshark",
                "-r",
                path,
                "-Y",
                condition,
                "-T",
                "fields",
                "-e",
                "frame.number",
                "-e",
                "_ws.expert.message",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return out.splitlines()

    return len(rows("infiniband.bth.opcode")), rows(f"_ws.malformed or _ws.expert.severity >= {WARNING}")


def check_dissection(capture):
    seen = dissected(capture.path)
    if seen:
        expect(seen, (len(capture.packets), []), "what tshark says")


def check_sequences(capture, direction=OUT):
    """Requests of each flow have consecutive PSNs from the first on, and each that asks is answered once with
    its PSN."""
    expected, asked, answered = {}, collections.Counter(), collections.Counter()
    for c in capture.packets:
        p = c.packet
        is_answer = p.name in ("ACKNOWLEDGE", "ATOMIC_ACKNOWLEDGE") or p.name.startswith("READ_RESPONSE")
        if p.service != wire.RC:
            continue
        if is_answer:
            if (
                c.direction != direction
                and p.name != "READ_RESPONSE_FIRST"
                and p.name != "READ_RESPONSE_MIDDLE"
            ):
                answered[c.interface, p.psn] += 1
            continue
        if c.direction != direction:
            continue
        flow = c.interface, p.destination_qpn
        expect(p.psn, expected.get(flow, p.psn), f"PSN of packet {p.number} ({p.name})")
        taken = read_packets(c) if p.name == "READ_REQUEST" else 1
        expected[flow] = p.psn + taken & 0xFFFFFF
        if p.name.endswith(("ONLY", "LAST", "IMM", "INV", "REQUEST", "SWAP", "ADD", "FLUSH", "ATOMIC_WRITE")):
            asked[c.interface, p.psn + taken - 1 & 0xFFFFFF] += 1
    expect(answered, asked, "each message is answered once")
    expect(bool(asked), True, "messages")


OVER_UDP = "over UDP"
# A packet of the wire that another process of this host has received; the kernel learns whose is whose, which
# may be late, or lost.
HANDED_OVER = "handed over within this host"


def check_comments(capture, way):
    """Each names its process, which way the packet went, and by what."""
    for c in capture.packets:
        expect(
            c.comment.split(", ", 1)[0], f"{'from' if c.direction == OUT else 'to'} {c.interface}", "comment"
        )
    ways = {c.comment.split(", ")[1] for c in capture.packets if c.packet.service == wire.RC}
    expect(ways - {HANDED_OVER} if way == OVER_UDP else ways, {way}, "ways in comments")


def read_packets(c):
    """PSNs that a READ of a path MTU of 4096 takes."""
    length = int.from_bytes(c.ip[-8:-4], "big")
    return max(1, -(-length // 4096))


def log(name):
    return os.path.join(LOGS, name)


def run_both(name, server, client, *options, status=0):
    """A pair of programs, each captured from its beginning on."""
    found = []
    with contextlib.ExitStack() as stack:
        programs = []
        for side, command in (("server", server), ("client", client)):
            path = log(f"{name}.{side}.pcapng")
            found.append(path)
            program = Captor(command, log(f"{name}.{side}.log"), path, options)
            stack.callback(program.end)
            programs.append(program)
            if side == "server":
                program.wait_ready()
        limit = harness.Limit(LIMIT_S)
        for program in reversed(programs):
            ended = program.wait(limit)
            if not harness.ended_as_wanted(program, ended, status):
                raise Failure(
                    f"{program.command} {harness.describe_exit(ended)}", *(each.output() for each in programs)
                )
    return [Capture(path).judge() for path in found]


class Captor(harness.Program):
    """A program under verbatim run --capture. Its process is a child of the one that is waited for."""

    def __init__(self, command, log_path, path, options):
        self.capture_options = [f"--capture={path}", *options]
        super().__init__(BUILD, command, log_path)

    def argv(self, build, prefix):
        by_lines = (
            ["stdbuf", "-oL"] if shutil.which("stdbuf") else []
        )  # of one that hangs, too, it is seen how far it has come
        return [
            *prefix,
            "env",
            "VERBATIM_DEBUG=1",
            VERBATIM,
            "run",
            *self.capture_options,
            *by_lines,
            *self.command.split(),
        ]


def ping(options, addr="127.0.0.1"):
    return f"rping -s -a {addr} -p 7476 {options}", f"rping -c -a {addr} -p 7476 {options}"


# ---- what is shown ----


@case
def local_rping():
    server, client = run_both("local_rping", *ping("-C 10 -S 100"))
    for capture in server, client:
        check_dissection(capture)
        check_sequences(capture)
        expect(len(capture.interfaces), 1, "interfaces")
        expect(re.fullmatch(r"rping\[\d+\]", capture.interfaces[0]) is not None, True, capture.interfaces[0])
        expect(
            {c.packet.cm.name for c in capture.packets if c.packet.cm} >= {"REQ", "REP", "RTU", "DREQ"},
            True,
            "connection management",
        )
    # A ping is a READ and a WRITE of the server, and two SENDs of each side.
    expect(server.names(OUT)["READ_REQUEST"], 10, "READs")
    expect(server.names(IN)["READ_RESPONSE_ONLY"], 10, "answers to READs")
    expect(server.names(OUT)["WRITE_ONLY"], 10, "WRITEs")
    expect(
        client.names(OUT)["SEND_ONLY"] - sum(1 for c in client.packets if c.packet.cm and c.direction == OUT),
        20,
        "SENDs of the client",
    )
    expect(
        sum(
            1
            for c in server.packets
            if c.packet.service == wire.RC and c.packet.name == "SEND_ONLY" and c.direction == IN
        ),
        20,
        "arrivals",
    )
    for capture in server, client:
        check_comments(capture, "through shared memory")


@case
def local_messages_of_many_packets():
    server, client = run_both("local_long", *ping("-C 3 -S 60000 -v"))
    check_sequences(server)
    check_sequences(client)
    check_dissection(server)
    expect(
        server.names(OUT)["WRITE_MIDDLE"] > 10 and server.names(IN)["READ_RESPONSE_MIDDLE"] > 10,
        True,
        "middle packets",
    )
    data = b"".join(
        c.ip[28 + 12 + (4 if c.packet.name[-5:] in ("FIRST", "_LAST") else 0) : -4]
        for c in server.packets
        if c.packet.name.startswith("READ_RESPONSE")
    )
    expect(
        b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ" in data.replace(b"\0", b""),
        True,
        "the bytes that were read",
    )


@case
def local_by_each_way():
    for way in "mapped", "process_vm", "link":
        server, client = run_both(f"local_{way}", *ping("-C 5 -S 9000"), f"--copy={way}")
        for capture in server, client:
            check_sequences(capture)
        expect(server.names(OUT)["READ_REQUEST"], 5, f"{way}: READs")


def sent(capture, *names):
    return [
        c.packet.psn
        for c in capture.packets
        if c.direction == OUT and c.packet.service == wire.RC and c.packet.name in names
    ]


def arrived(capture, *names):
    return [
        c.packet.psn
        for c in capture.packets
        if c.direction == IN and c.packet.service == wire.RC and c.packet.name in names
    ]


@case
def local_both_ends_agree():
    """What a requester says it sent through the ring has the same PSNs at the responder, whatever it executed
    itself in between."""
    server, client = run_both("local_agree", *ping("-C 20 -S 5000"))
    expect(arrived(client, "SEND_ONLY"), sent(server, "SEND_ONLY"), "server to client")
    expect(arrived(server, "SEND_ONLY"), sent(client, "SEND_ONLY"), "client to server")
    expect(len(sent(client, "SEND_ONLY")), 40, "messages")


@case
def local_atomics():
    if harness.missing_programs("ib_atomic_lat"):
        return "ib_atomic_lat is not installed"
    for kind, name in (("FETCH_AND_ADD", "FETCH_ADD"), ("CMP_AND_SWAP", "COMPARE_SWAP")):
        command = f"ib_atomic_lat -F -d vb_lo -x 0 -p 18597 -n 50 -A {kind}"
        server, client = run_both(f"atomic_{kind}", command, command + " 127.0.0.1")
        check_sequences(client)
        check_dissection(client)
        expect(client.names(OUT)[name], 50, name)
        expect(client.names(IN)["ATOMIC_ACKNOWLEDGE"], 50, "answers")
        del server
    return None


@case
def flushes_and_atomic_writes():
    """No program posts these: two cases of our own do. Both are answered like a READ of nothing."""
    for test, case_name, name, count, opcode, key_at in (
        ("builders", "flushes", "FLUSH", 2, 14, 12 + 4 + 8),
        ("regions", "atomic_write__a_word", "ATOMIC_WRITE", 100, 15, 12 + 8),
    ):
        path = log(f"{name}.pcapng")
        program = os.path.join(BUILD, "tests", "conformance", "rc", f"test_rc_{test}")
        done = harness.run(
            [VERBATIM, "run", f"--capture={path}", "--", program, f"{case_name} (two processes)"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        expect(done.returncode, 0, f"exit status of {case_name} ({done.stdout[-200:]})")
        capture = Capture(path).judge()
        for direction, packet in ((OUT, name), (IN, "READ_RESPONSE_ONLY")):
            expect(
                capture.names(direction)[packet] >= count, True, f"{packet} among {capture.names(direction)}"
            )
        roce = [c.header(48 if c.ip[0] >> 4 == 6 else 28) for c in capture.packets if c.packet.name == name]
        sent_keys = {header[key_at : key_at + 4] for header in roce}
        posted = {e.rkey.to_bytes(4, "big") for e in capture.of_kind(POST_SEND) if e.opcode == opcode}
        expect((bool(sent_keys), sent_keys - posted), (True, set()), f"keys of {name} that no post has")


@case
def local_xrc_for_a_queue_of_another_process():
    """What its process passes on is shown there with its bytes, as whoever sent it shows it."""
    program = os.path.join(BUILD, "tests", "conformance", "rc", "test_rc_xrc_shared")
    cases = {"send__to_a_queue_of_another_process": 0, "one_sided__in_another_process": 1}
    answers = "ACK", "ATOMIC_ACK", "READ_RESPONSE"
    for case_name, refused in cases.items():
        path = log(f"{case_name}.pcapng")
        words = [f"--capture={path}", "--", program, f"{case_name} (two processes)"]
        done = run(*words)
        expect(done.returncode, 0, f"exit status of {case_name} ({done.stdout[-200:]})")
        requests = {IN: collections.Counter(), OUT: collections.Counter()}
        for c in Capture(path).judge().packets:
            if c.packet.service == wire.XRC and not c.packet.name.startswith(answers):
                requests[c.direction][c.header(48 if c.ip[0] >> 4 == 6 else 28)[:-4]] += 1
        expect(sum(requests[OUT].values()) > 10, True, f"{case_name}: packets of requests")
        expect(sum((requests[IN] - requests[OUT]).values()), 0, f"{case_name}: packets that nobody sent")
        missing = sum((requests[OUT] - requests[IN]).values())
        expect(missing, refused, f"{case_name}: packets that did not arrive")


@case
def local_refusal():
    """A message that is longer than the receive: both sides show the same NAK."""
    command = "ibv_rc_pingpong -g 0 -d vb_lo -p 18592 -n 5 -s"
    server, client = run_both("refusal", f"{command} 100", f"{command} 4000 127.0.0.1", status=1)
    for capture, direction in ((server, OUT), (client, IN)):
        naks = [c for c in capture.packets if c.packet.name == "ACKNOWLEDGE" and c.ip[28 + 12] >> 5 == 3]
        expect(
            [(c.direction, c.ip[28 + 12] & 31) for c in naks], [(direction, 1)], "one NAK: invalid request"
        )
        expect(naks[0].packet.psn, sent(client, "SEND_FIRST", "SEND_ONLY")[0], "its PSN is the request's")
    check_dissection(client)


@case
def local_fault_of_the_requester():
    """Its own memory has gone, which the responder finds out: there is no NAK, as no wire would have one."""
    path = log("own_memory.pcapng")
    program = os.path.join(BUILD, "tests", "conformance", "rc", "test_rc_errors")
    done = run(f"--capture={path}", "--", program, "local__unmapped_memory (two processes, process_vm)")
    expect(done.returncode, 0, f"exit status ({done.stdout[-200:]})")
    if "skipped" in done.stderr:
        return "it was skipped: " + done.stderr[-100:].strip()
    capture = Capture(path).judge()
    failed = [e for e in capture.of_kind(COMPLETION, is_receive=False) if e.status == 4]
    expect(len(failed), 3, "completions with LOC_PROT_ERR")
    answers = [c for c in capture.packets if c.packet.name == "ACKNOWLEDGE"]
    naks = [c for c in answers if c.header(48 if c.ip[0] >> 4 == 6 else 28)[12] >> 5 == 3]
    expect([c.comment for c in naks], [], "NAKs")
    return None


@case
def local_other_services():
    command = "ibv_ud_pingpong -g 0 -d vb_lo -p 18596 -n 30 -s 1000"
    server, client = run_both("ud", command, command + " 127.0.0.1")
    expect(client.names(OUT)["SEND_ONLY"], 30, "datagrams out")
    expect(client.names(IN)["SEND_ONLY"], 30, "datagrams in")
    check_dissection(client)
    command = "ibv_xsrq_pingpong -g 0 -d vb_lo -p 18595 -n 20"
    server, client = run_both("xrc", command, command + " 127.0.0.1")
    expect(
        sum(1 for c in client.packets if c.packet.service == wire.XRC and c.direction == OUT) > 20,
        True,
        "XRC requests",
    )
    command = "ib_write_bw -F -d vb_lo -x 0 -p 18594 -n 50 -s 65536 -q 2"
    if not harness.missing_programs(command):
        server, client = run_both("bandwidth", command, command + " 127.0.0.1", "--buffer=64")
        check_sequences(client)
        expect(client.names(OUT)["WRITE_FIRST"] >= 100, True, "WRITEs")


def check_peer(capture, peer):
    """Each packet through shared memory names the process at its other end, which may have ended since."""
    pid = re.search(r"\[\d+\]$", peer)[0]
    peers = {c.comment.split(", peer ")[-1] for c in capture.packets if c.packet.service == wire.RC}
    expect(peers <= {peer, "?" + pid}, True, f"{peer} in {peers}")


@case
def first_message_to_a_listener():
    """A program that listens everywhere opens no device before it."""
    server, client = run_both("listener", "rdma_server -p 7477", "rdma_client -s 127.0.0.1 -p 7477")
    for name in "REQ", "REP", "RTU":
        sender, receiver = (server, client) if name == "REP" else (client, server)
        for capture, direction in (sender, OUT), (receiver, IN):
            found = [c for c in capture.packets if c.packet.cm and c.packet.cm.name == name]
            expect([c.direction for c in found], [direction], f"{name} in {capture.interfaces[0]}")


@case
def what_a_peer_does_in_ones_memory():
    """The peer could do it all by itself. While it is captured, a process has its own part in it."""
    server, client = run_both("peers_work", *ping("-C 10 -S 100"))
    expect(client.names(IN)["READ_REQUEST"], 10, "READs of the client's memory")
    expect(client.names(OUT)["READ_RESPONSE_ONLY"], 10, "answers to them")
    expect(client.names(IN)["WRITE_ONLY"], 10, "WRITEs to it")
    check_peer(client, server.interfaces[0])
    check_peer(server, client.interfaces[0])


@case
def what_a_peer_does_once_one_is_captured():
    """A peer that has done it by itself stops to, and goes on when the capture has ended."""
    if harness.missing_programs("ib_write_bw"):
        return "ib_write_bw is not installed"
    with writing(18595) as (server, client):
        capture, _ = captured("target", "--packets=200", f"--pid={server}", "--quiet")
        came = set(capture.judge().names(IN))
        expect(came & {"WRITE_FIRST", "WRITE_ONLY"} != set(), True, "WRITEs that came")
        check_peer(capture, f"ib_write_bw[{client}]")
        before = looked("stats", str(client))[0]["requests"]
        wait_for(lambda: looked("stats", str(client))[0]["requests"] > before, "traffic goes on")
    return None


@case
def wire_without_loss():
    server, client = run_both("wire", *ping("-C 20 -S 9000"), "--wire")
    for capture in server, client:
        check_dissection(capture)
        check_comments(capture, OVER_UDP)
    expect(
        sorted(arrived(client, "SEND_ONLY")),
        sorted(sent(server, "SEND_ONLY")),
        "what the server sent the client got",
    )


@case
def wire_that_loses():
    if not shutil.which("nft"):
        return "nft is not installed"
    rules = "table inet t {\nchain c { type filter hook input priority 0; udp dport 4791 numgen random mod 10 == 0 drop; }\n}\n"
    made = subprocess.run(["nft", "-f", "-"], input=rules, text=True, capture_output=True, check=False)
    if made.returncode:
        return f"nft: {made.stderr.strip()[:100]}"
    try:
        server, client = run_both("lossy", *ping("-C 200 -S 9000"), "--wire", "--no-gso")
    finally:
        subprocess.run(["nft", "flush", "ruleset"], check=True)
    for capture in server, client:
        check_dissection(capture)
        check_comments(capture, OVER_UDP)
    gone = collections.Counter(sent(server, "SEND_ONLY", "WRITE_FIRST", "WRITE_LAST", "READ_REQUEST"))
    came = collections.Counter(arrived(client, "SEND_ONLY", "WRITE_FIRST", "WRITE_LAST", "READ_REQUEST"))
    # A READ that is asked for again goes on where its answer stopped. If the rest comes after all, that
    # request may be lost for good.
    reads = set(sent(server, "READ_REQUEST"))
    resumed = {psn for psn in reads if reads & {psn - 1, psn - 2}}
    expect(set(came) - set(gone), set(), "what came had been sent")
    expect(set(gone) - set(came) - resumed, set(), "all came in the end")
    expect(sum(gone.values()) > len(gone), True, "some were sent more than once")
    expect(sum(came.values()) < sum(gone.values()), True, "some were lost")
    return None


@case
def wire_over_ipv6():
    if "::1" not in subprocess.run(["ip", "-6", "addr"], capture_output=True, text=True, check=False).stdout:
        return "there is no IPv6"
    for options in ((), ("--wire",)):
        server, client = run_both("ipv6", *ping("-C 5 -S 5000", "::1"), *options)
        check_dissection(server)
        expect({c.ip[0] >> 4 for c in client.packets}, {6}, "IP version")
    return None


# ---- from outside ----

PING_SERVER, PING_CLIENT = ping("")


@contextlib.contextmanager
def writing(port):
    """ib_write_bw, once it has traffic."""
    traffic = f"ib_write_bw -F -d vb_lo -x 0 -p {port} -D 600"
    with running(traffic, traffic + " 127.0.0.1") as (server, client):
        wait_for(
            lambda: client in processes() and looked("stats", str(client))[0]["requests"] > 0, "traffic"
        )
        yield server, client


@contextlib.contextmanager
def pinging(client=PING_CLIENT + " -C 100000000"):
    with running(PING_SERVER, client) as pids:
        wait_for(
            lambda: all(pid in processes() and processes()[pid]["qps"] for pid in pids), "both are connected"
        )
        yield pids


def captured(name, *options):
    path = log(f"{name}.pcapng")
    done = harness.run(
        [VERBATIM, "capture", *options, path], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    expect(done.returncode, 0, f"exit status ({done.stderr})")
    return Capture(path), done.stderr


@case
def attached_to_what_runs():
    with pinging() as (server, client):
        capture, said = captured("attached", "--packets=500")
        capture.judge()
        check_dissection(capture)
        expect(sorted(capture.interfaces), sorted(f"rping[{pid}]" for pid in (server, client)), "interfaces")
        expect(len(capture.packets), 500, "packets")
        expect("500 packets of 2 processes" in said, True, said)
        check_agreement(capture, server, client)
        again, _ = captured("attached_again", "--packets=100", f"--pid={server}", "--quiet")
        expect(
            (again.judge().interfaces, len(again.packets)),
            ([f"rping[{server}]"], 100),
            "a second time, one process",
        )


def check_agreement(capture, server, client):
    """SENDs of one are arrivals of the other with the same PSN, but for those at the ends of the capture."""
    for one, other in ((server, client), (client, server)):
        out = [
            c.packet.psn
            for c in capture.packets
            if c.interface == f"rping[{one}]" and c.direction == OUT and c.packet.name == "SEND_ONLY"
        ]
        into = [
            c.packet.psn
            for c in capture.packets
            if c.interface == f"rping[{other}]" and c.direction == IN and c.packet.name == "SEND_ONLY"
        ]
        common = set(out) & set(into)
        expect(
            len(common) >= min(len(out), len(into)) - 3,
            True,
            f"{len(common)} of {len(out)} and {len(into)} SENDs have the same PSN",
        )


@case
def filters():
    with pinging() as (server, client):
        reads, _ = captured("reads", "--packets=50", "--opcode=read", f"--pid={server}")
        expect(set(reads.judge().names()), {"READ_REQUEST", "READ_RESPONSE_ONLY"}, "opcodes")
        outward, _ = captured("out", "--packets=50", "--direction=out")
        expect({c.direction for c in outward.judge().packets}, {OUT}, "direction")
        cut, _ = captured("cut", "--packets=50", "--snap=16")
        expect({len(c.ip) for c in cut.packets if not c.whole}, {20 + 8 + 16}, "snap")
        expect(dissected(cut.path)[0] if shutil.which("tshark") else 50, 50, "tshark reads it")
        qpn = reads.packets[0].packet.destination_qpn
        one, _ = captured("qp", "--packets=50", f"--qp={qpn}")
        expect(len(one.judge().packets), 50, "packets of the queue pair")
        nothing, _ = captured("other_qp", "--seconds=0.5", "--qp=0xffff00")
        expect(nothing.packets, [], "packets of another")


@case
def capture_ends_with_its_end():
    with pinging() as (server, client):
        words = [VERBATIM, "capture", log("killed.pcapng")]
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as tool:
            try:
                wait_for(lambda: capturing(client), "the capture runs")
                second = harness.run(
                    [VERBATIM, "capture", f"--pid={client}", log("second.pcapng")],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=LIMIT_S,
                )
            finally:
                tool.kill()
        expect("captured by another already" in second.stderr, True, second.stderr)
        wait_for(lambda: not capturing(client) and not capturing(server), "the processes have stopped noting")
        before = processes()
        capture, _ = captured("after", "--packets=20")
        expect(len(capture.judge().packets), 20, "the next capture")
        expect(set(processes()), set(before), "the programs go on")


@case
def time_begins_when_the_process_has_answered():
    """However short it is, and however long a processor was lacking before."""
    with pinging() as (server, _):
        captured("moment", "--seconds=0.000001", f"--pid={server}")


def capturing(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
        return "verbatim-capture" in maps.read()


def has_packets(path):
    """Many, with events between them: some of the file is written."""
    return os.path.exists(path) and os.path.getsize(path) > 1 << 16


def taken_by_another(path):
    """The processes of which a capture of all says so, each as often as it does in the second after the
    second one."""
    with open(log("second.said"), "a+", encoding="utf-8") as said:

        def found():
            said.seek(0)
            return sorted(map(int, re.findall(r"\[(\d+)\]: it is captured by another already", said.read())))

        with subprocess.Popen([VERBATIM, "capture", path], stderr=said) as tool:
            try:
                wait_for(lambda: len(found()) >= 2, "two processes that are taken")
                time.sleep(1)
            finally:
                tool.send_signal(signal.SIGINT)
        expect(tool.returncode, 0, "exit status")
        return found()


@case
def two_at_once():
    """The second one says of each process, once, that it is taken."""
    with pinging() as (server, client):
        words = [VERBATIM, "capture", "--quiet", log("first.pcapng")]
        with subprocess.Popen(words) as first:
            try:
                wait_for(lambda: has_packets(log("first.pcapng")), "packets of the first capture")
                second = log("second.pcapng")
                expect(taken_by_another(second), sorted((server, client)), "processes that are taken")
                expect(len(Capture(second).interfaces), 2, "interfaces")
                words = [VERBATIM, "capture", f"--pid={server}", second]
                done = harness.run(words, capture_output=True, check=False, timeout=LIMIT_S)
                expect(done.returncode, 1, "exit status, where none of those that were named is captured")
            finally:
                first.terminate()


@case
def processes_of_another_pid_namespace():
    """They have no pid there: each is captured all the same."""
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*inside, "true"], check=False).returncode:
        return "no namespace of pids can be made here"
    with pinging():
        path = log("namespace.pcapng")
        words = [*inside, VERBATIM, "capture", "--packets=100", path]
        done = harness.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        expect((done.returncode, Capture(path).interfaces), (0, ["?[0]"] * 2), done.stderr)
    return None


@case
def run__with_the_pid_of_another():
    """In two namespaces of pids, and one network."""
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*inside, "true"], check=False).returncode:
        return "no namespace of pids can be made here"
    first, second = ([*inside, VERBATIM, "run", f"--capture={log(name)}"] for name in ("first", "second"))
    with subprocess.Popen([*first, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waits:
        waits.stdin.write(b"x\n")
        waits.stdin.flush()
        expect(waits.stdout.readline(), b"x\n", "it runs")
        done = harness.run([*second, "ibv_devinfo"], capture_output=True, check=False, timeout=LIMIT_S)
        expect((done.returncode, done.stderr), (0, b""), "the second one")
    expect(len(Capture(log("second")).interfaces), 1, "processes")
    return None


@case
def captured_process_dies():
    with pinging() as (server, client):
        path = log("died.pcapng")
        tool = subprocess.Popen(
            [VERBATIM, "capture", f"--pid={client}", path], stderr=subprocess.PIPE, text=True
        )
        wait_for(lambda: has_packets(path), "packets of it")
        os.kill(client, signal.SIGKILL)
        said = harness.communicate(tool, LIMIT_S)[1]
        expect(tool.returncode, 0, said)
        expect(len(Capture(path).judge().packets) > 10, True, "what it had noted")


@case
def interrupt_writes_the_rest():
    with pinging():
        path = log("interrupted.pcapng")
        tool = subprocess.Popen([VERBATIM, "capture", path], stderr=subprocess.PIPE, text=True)
        wait_for(lambda: has_packets(path), "packets of both")
        tool.send_signal(signal.SIGINT)
        said = harness.communicate(tool, LIMIT_S)[1]
        capture = Capture(path).judge()
        expect((tool.returncode, f"{len(capture.packets)} packets" in said), (0, True), said)
        expect(set(capture.statistics), set(capture.interfaces), "statistics of each interface")


def is_writing(pid):
    """And waits for whoever reads."""
    with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as wait:
        return "pipe_write" in wait.read()


@case
def interrupt_meets_a_slow_reader():
    """What was being written comes as a whole."""
    if not os.access("/proc/self/wchan", os.R_OK) or harness.missing_programs("ib_write_bw"):
        return "no ib_write_bw, or nothing tells what a process waits for"
    path = log("slow.pcapng")
    with writing(18595):
        words = [VERBATIM, "capture", "--buffer=1", "-"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
            wait_for(lambda: is_writing(tool.pid), "a pipe that is full")
            tool.send_signal(signal.SIGINT)
            time.sleep(0.3)  # the signal comes before there is room
            with open(path, "wb") as file:
                shutil.copyfileobj(tool.stdout, file)
            said = tool.stderr.read().decode()
        expect(tool.returncode, 0, said)
        expect(f"{len(Capture(path).packets)} packets" in said, True, said)
    return None


@case
def run__signals_while_the_capture_is_read_slowly():
    """The program gets them, and the capture is whole."""
    if not os.access("/proc/self/wchan", os.R_OK) or harness.missing_programs("ib_write_bw"):
        return "no ib_write_bw, or nothing tells what a process waits for"
    path, pipe = log("slow_run.pcapng"), log("slow_run.pipe")
    traffic = "ib_write_bw -F -d vb_lo -x 0 -p 18596 -D 600"
    script = f"trap 'echo one' USR1; trap 'kill $!; exit 7' TERM; {traffic} 127.0.0.1 >/dev/null & "
    script += "while :; do wait; sleep 0.1; done"
    os.mkfifo(pipe)
    with running(traffic):
        words = [VERBATIM, "run", f"--capture={pipe}", "--buffer=1", "sh", "-c", script]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as tool, open(pipe, "rb") as capture:
            wait_for(lambda: is_writing(tool.pid), "a pipe that is full")
            tool.send_signal(signal.SIGUSR1)
            told = select.select([tool.stdout], [], [], LIMIT_S)[0]
            tool.terminate()
            with open(path, "wb") as file:
                shutil.copyfileobj(capture, file)
            expect((bool(told), tool.stdout.readline()), (True, "one\n"), "the program's own way")
        expect(tool.returncode, 7, "exit status")
        expect(len(Capture(path).packets) > 0, True, "packets")
    return None


@case
def drops_are_counted_and_told():
    if harness.missing_programs("ib_write_bw"):
        return "ib_write_bw is not installed"
    with writing(18593) as (server, client):
        path = log("drops.pcapng")
        tool = subprocess.Popen(
            [VERBATIM, "capture", "--buffer=1", f"--pid={client}", path], stderr=subprocess.PIPE, text=True
        )
        wait_for(lambda: capturing(client), "the capture runs")
        tool.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        before = os.path.getsize(path)
        tool.send_signal(signal.SIGCONT)
        wait_for(lambda: os.path.getsize(path) > before + (2 << 20), "more than the ring holds")
        tool.send_signal(signal.SIGINT)
        said = harness.communicate(tool, LIMIT_S)[1]
        capture = Capture(path).judge()
        received, dropped = capture.statistics[capture.interfaces[0]]
        expect(
            dropped > 0 and received == dropped + len(capture.packets),
            True,
            f"{received} noted, {dropped} dropped, {len(capture.packets)} kept",
        )
        expect(f"{dropped} dropped" in said, True, said)
        expect(0 < sum(c.dropped for c in capture.packets) <= dropped, True, "drops before packets")
        del server
    return None


# ---- events ----


def check_events(capture):
    """Each completion was posted before, and is polled after it came."""
    for is_receive, posts in (False, POST_SEND), (True, POST_RECEIVE):
        posted, done, polled = (collections.defaultdict(list) for _ in range(3))
        for into, events in (
            (posted, [e for e in capture.of_kind(posts) if not e.status]),
            (done, capture.of_kind(COMPLETION, is_receive=is_receive)),
            (polled, capture.of_kind(POLL, is_receive=is_receive)),
        ):
            for e in events:
                key = (e.interface, 0 if e.flags & SHARED and is_receive else e.qpn, e.wr_id)
                into[key].append(e.time)
        expect(bool(done), True, "completions")
        for key, times in done.items():
            expect(len(times) <= len(posted[key]), True, f"posts of {key}: {len(posted[key])}, {len(times)} completed")
            expect(all(p <= d for p, d in zip(sorted(posted[key]), sorted(times))), True, f"{key}: posted before")
        for key, times in polled.items():
            expect(len(times) <= len(done[key]), True, f"completions of {key}: {len(done[key])}, {len(times)} polled")
            expect(all(d <= p for d, p in zip(sorted(done[key]), sorted(times))), True, f"{key}: completed before")
    return capture


def check_rping_events(capture, peer):
    check_events(capture)
    posts, receives = capture.of_kind(POST_SEND), capture.of_kind(POST_RECEIVE)
    expect({e.status for e in posts + receives}, {0}, "refused posts")
    expect(len(capture.of_kind(COMPLETION, is_receive=False)), len(posts), "each send is signaled and completes")
    expect(all(e.flags >> 16 == 1 and e.flags & SIGNALED and e.bytes for e in posts), True, "pieces, flags, bytes")
    expect(len({e.qpn for e in posts}) == 1 and posts[0].qpn != 0, True, "queue pairs")
    established = [e for e in capture.of_kind(CM) if e.text == "RDMA_CM_EVENT_ESTABLISHED"]
    expect(len(established), 1, f"{peer}: events {[e.text for e in capture.of_kind(CM)]}")


@case
def events_of_rping():
    for name, options in ("local", ()), ("wire", ("--wire",)):
        server, client = run_both("events_" + name, *ping("-C 10 -S 100"), *options)
        check_rping_events(server, "server")
        check_rping_events(client, "client")
        expect(len(server.of_kind(POST_SEND)), 40, "a READ, a WRITE and two SENDs of the server for each ping")
        expect({e.opcode for e in server.of_kind(POST_SEND)}, {0, 2, 4}, "operations")
        one_sided = [e for e in server.of_kind(POST_SEND) if e.opcode != 2]
        expect(all(e.address and e.rkey for e in one_sided), True, "addresses and rkeys")
        expect(len(client.of_kind(POST_SEND)), 20, "two SENDs of the client for each ping")
        check_dissection(server)


@case
def events_of_extended_verbs():
    """ibv_wr_post and ibv_start_poll; and events instead of polling."""
    for name, options in ("new", "-N -t"), ("events", "-e"):
        command = f"ibv_rc_pingpong -g 0 -d vb_lo -p 18655 -n 50 {options}"
        for capture in run_both("events_" + name, command, command + " 127.0.0.1"):
            check_events(capture)
            sends = capture.of_kind(POST_SEND)
            expect(len(sends), 50, f"{name}: sends")
            expect(len(capture.of_kind(POLL, is_receive=False)), len(sends), f"{name}: polled")


@case
def events_of_shared_receives():
    command = "ibv_srq_pingpong -g 0 -d vb_lo -p 18656 -n 20 -q 4"
    if absent := harness.missing_programs("ibv_srq_pingpong"):
        return f"{absent} is not installed"
    for capture in run_both("events_srq", command, command + " 127.0.0.1"):
        check_events(capture)
        receives = capture.of_kind(POST_RECEIVE)
        expect({(e.qpn, bool(e.queue), e.flags & SHARED) for e in receives}, {(0, True, SHARED)}, "shared receives")
        expect({e.flags & SHARED for e in capture.of_kind(POLL, is_receive=True)}, {SHARED}, "their completions")
    return None


@case
def events_of_refused_posts():
    """A full receive queue; and a chain, of which the bad request is the last one that is noted."""
    program = os.path.join(BUILD, "tests", "conformance", "rc", "test_rc_send")
    if not os.path.exists(program):
        return "the conformance tests are not built"
    for case_name, kind, refused in (
        ("recv__full_queue_refuses", POST_RECEIVE, errno.ENOMEM),
        ("post__of_a_chain_stops_at_the_bad_one", POST_SEND, errno.EINVAL),
    ):
        path = log(f"refused_{refused}.pcapng")
        done = run(f"--capture={path}", program, case_name)
        expect((done.returncode, "not ok" in done.stdout), (0, False), done.stdout + done.stderr)
        statuses = [e.status for e in Capture(path).of_kind(kind)]
        expect(set(statuses), {0, refused}, f"{case_name}: errnos")
    return None


@case
def events_of_sends_that_the_queue_pair_signals():
    """With sq_sig_all posts are noted as signaled, though they do not say so."""
    program = os.path.join(BUILD, "tests", "conformance", "rc", "test_rc_send")
    if not os.path.exists(program):
        return "the conformance tests are not built"
    expected = {"send__sq_sig_all_signals_all": {True}, "rnr__after_one_retry_fails": {True, False}}
    for case_name, signaled in expected.items():
        path = log(f"{case_name}.pcapng")
        done = run(f"--capture={path}", program, case_name)
        expect((done.returncode, "not ok" in done.stdout), (0, False), done.stdout + done.stderr)
        flags = {bool(e.flags & SIGNALED) for e in Capture(path).of_kind(POST_SEND)}
        expect(flags, signaled, f"{case_name}: signaled")
    return None


@case
def events_are_filtered_with_packets():
    with pinging() as (server, _):
        capture, _ = captured("events_all", "--packets", "200", "--pid", str(server))
        qpn = capture.of_kind(POST_SEND)[0].qpn
        for name, number, some in ("events_its", qpn, True), ("events_other", qpn ^ 0x800, False):
            capture, _ = captured(name, "--seconds", "0.5", "--pid", str(server), "--qp", str(number))
            expect(bool(capture.of_kind(POST_SEND, POST_RECEIVE, COMPLETION, POLL)), some, f"{name}: events")


@case
def sentences_are_events():
    """What VERBATIM_DEBUG says is in the capture, whether or not it is set; and what checks find."""
    command = "ibv_rc_pingpong -g 0 -d vb_lo -p 18657 -n 5 -s"
    _, client = run_both("sentences", f"{command} 100", f"{command} 4000 127.0.0.1", status=1)
    failed = [e for e in client.of_kind(COMPLETION, is_receive=False) if e.status]
    said = [e.text for e in client.of_kind(SENTENCE)]
    expect(any(f"wr_id 0x{failed[0].wr_id:x}: " in text for text in said), True, f"sentences: {said}")


@case
def connection_events_are_events():
    path = log("alone.pcapng")
    done = harness.run(
        [VERBATIM, "run", f"--capture={path}", *"rping -c -a 127.0.0.1 -p 7999 -C 1".split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    told = [e.text for e in Capture(path).of_kind(CM)]
    expect(told[-1:], ["RDMA_CM_EVENT_REJECTED, status 8"], f"events: {told} ({done.stderr})")
    expect("verbatim: rdma" in done.stderr, False, f"sentences are not printed for a capture: {done.stderr}")


# ---- run ----


@case
def run__statuses_and_streams():
    def status(*args, **options):
        done = harness.run(
            [VERBATIM, "run", f"--capture={log('run.pcapng')}", *args],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            **options,
        )
        return done.returncode, done.stdout, done.stderr

    expect(status("sh", "-c", "exit 42"), (42, "", ""), "exit status")
    expect(status("sh", "-c", "kill -TERM $$")[0], 143, "killed by a signal")
    expect(status("cat", input="through"), (0, "through", ""), "streams")
    expect(status("no-such-program")[0], 127, "not found")
    ignore = functools.partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)
    expect(status("sh", "-c", "exit 42", preexec_fn=ignore)[0], 42, "for who ignores children")
    expect(Capture(log("run.pcapng")).packets, [], "a program without devices")
    expect(
        subprocess.run(
            [VERBATIM, "run", "--capture=/nonexistent/x", "true"], capture_output=True, check=False
        ).returncode,
        125,
        "no file",
    )
    for option in "--qp=x", "--opcode=nonsense", "--snap=1", "--direction=up", "--buffer=0", "--capture=", "--capture=-":
        expect(
            subprocess.run([VERBATIM, "run", option, "true"], capture_output=True, check=False).returncode,
            125,
            option,
        )


@case
def run__signals_reach_the_program():
    with subprocess.Popen(
        [
            VERBATIM,
            "run",
            f"--capture={log('signal.pcapng')}",
            "sh",
            "-c",
            "trap 'echo got; exit 7' TERM; echo up; while :; do sleep 0.1; done",
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as tool:
        expect(tool.stdout.readline(), "up\n", "it runs")
        tool.terminate()
        expect((harness.wait(tool, LIMIT_S), tool.stdout.read()), (7, "got\n"), "the program's own way")


def rping_pair(port):
    """A script: server and client, which begins once the server listens."""
    place = f"-a 127.0.0.1 -p {port} -C 5"
    listens = f"until {VERBATIM} show ids | grep -q 'listening *127.0.0.1:{port} '; do sleep 0.1; done"
    return f"rping -s {place} & {listens}; rping -c {place}; wait"


@case
def run__servers_that_are_looked_at_as_they_start():
    """The look may come between the call that starts rdma_cm and the capture for which that call waits."""
    looks = f"while :; do {VERBATIM} show ids; done >/dev/null 2>&1 &"
    script = f"""
        for n in 1 2 3 4; do {looks} lookers="$lookers $!"; done
        for n in $(seq 24); do
            rping -s -a 127.0.0.1 -p 7480 & server=$!
            until {VERBATIM} show $server ids 2>/dev/null | grep -q listening; do :; done
            kill $server; wait $server
        done
        kill $lookers"""
    done = run(f"--capture={log('looked.pcapng')}", "sh", "-c", script)
    expect(done.returncode, 0, done.stderr)
    expect(len(Capture(log("looked.pcapng")).interfaces), 24, "servers")


@case
def run__in_a_machines_first_seconds():
    """When the clock shows less than a recorder waits for the slowest, records are in the order of time, too."""
    path, ran = log("young.pcapng"), ["unshare", "--time", "--fork", "--monotonic"]
    age = f"-{int(time.clock_gettime(time.CLOCK_MONOTONIC))}"
    if subprocess.run([*ran, age, "true"], capture_output=True, check=False).returncode:
        return "no clock can be set back here"
    script = rping_pair(7478).replace("-C 5", "-C 500")
    words = [*ran, age, VERBATIM, "run", f"--capture={path}", "sh", "-c", script]
    done = harness.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    expect(done.returncode, 0, done.stderr)
    capture = Capture(path)
    for records in capture.packets, capture.events:
        times = [record.time for record in records]
        expect((len(times) > 2000, times == sorted(times)), (True, True), "many records, in order")
    return None


@case
def run__signals_that_come_together():
    script = "trap 'echo one' USR1; trap 'echo two' USR2; trap 'exit 7' TERM; echo up; while :; do sleep 0.1; done"
    words = [VERBATIM, "run", f"--capture={log('signals.pcapng')}", "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as tool:
        expect(tool.stdout.readline(), "up\n", "it runs")
        tool.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, tool.pid, os.WSTOPPED)
        for number in signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGCONT:
            tool.send_signal(number)
        try:
            expect(harness.wait(tool, LIMIT_S), 7, "the program's own way")
        finally:
            tool.kill()
        expect(sorted(tool.stdout.read().split()), ["one", "two"], "those before")


@case
def run__memory_of_those_that_ended():
    """A script starts one after the other, and looks at the memory of who captures."""
    script = "for n in 1 2 3 4; do ibv_devinfo >/dev/null; done; "
    script += "while grep verbatim-capture /proc/$PPID/maps; do sleep 0.1; done"
    done = run(f"--capture={log('ended.pcapng')}", "sh", "-c", script)
    expect(done.returncode, 0, done.stderr)
    expect(len(Capture(log("ended.pcapng")).interfaces), 4, "processes")


# One after the other, children open the device.
CHILDREN = """
import ctypes, os, sys
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
verbs.ibv_open_device.restype = ctypes.c_void_p
devices = verbs.ibv_get_device_list(None)
failed = 0
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        os._exit(not verbs.ibv_open_device(devices[0]))
    failed |= os.waitpid(pid, 0)[1]
sys.exit(failed != 0)
"""


@case
def run__all_of_many_that_come_and_go():
    path, many = log("many.pcapng"), 260
    words = [f"--capture={path}", "--buffer=1", sys.executable, "-c", CHILDREN, str(many)]
    done = harness.run(
        [VERBATIM, "run", *words], capture_output=True, text=True, check=False, timeout=4 * LIMIT_S
    )
    expect((done.returncode, done.stderr), (0, ""), "exit status and complaints")
    expect(len(Capture(path).interfaces) >= many, True, "processes")


@case
def run__more_that_come_and_go_than_descriptors():
    path, many = log("more.pcapng"), 80
    words = [f"--capture={path}", "--buffer=1", sys.executable, "-c", CHILDREN, str(many)]
    done = harness.run(
        [VERBATIM, "run", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * LIMIT_S,
        preexec_fn=functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (32, 32)),
    )
    expect((done.returncode, done.stderr), (0, ""), "exit status and complaints")
    expect(len(Capture(path).interfaces) >= many, True, "processes")


@case
def run__files_of_their_own():
    """None of them is written over another one, under whichever name."""
    started, path = log("own_started"), log("own")
    with open(path, "w", encoding="ascii"):
        pass
    os.symlink(os.path.abspath(path), log("own_link"))
    options = "--capture", "--timeline", "--latency"
    for one, other in (0, 1), (0, 2), (1, 2):
        done = run(f"{options[one]}={path}", f"{options[other]}={log('own_link')}", "touch", started)
        found = done.returncode, "files of their own" in done.stderr, os.path.exists(started)
        expect(found, (125, True, False), f"{options[one]} and {options[other]}: {done.stderr}")
        names = log(f"own_new{one}{other}"), log(f"./own_new{one}{other}")
        done = run(f"{options[one]}={names[0]}", f"{options[other]}={names[1]}", "touch", started)
        found = done.returncode, "files of their own" in done.stderr, os.path.exists(started)
        expect(found, (125, True, False), f"{options[one]} and {options[other]}, a new file: {done.stderr}")
    expect(run("--capture=/dev/null", "--latency=/dev/null", "true").returncode, 0, "what nobody reads")


@case
def run__descriptors_of_the_recorder():
    """Who cannot be captured for want of them is told what to do."""
    if not shutil.which("prlimit"):
        return "prlimit is not installed"
    limit = "prlimit --pid $PPID --nofile=$(($(ls /proc/$PPID/fd | wc -l) + 1)):"
    done = run(f"--capture={log('few.pcapng')}", "sh", "-c", f"{limit} && ibv_devinfo >/dev/null")
    expect((done.returncode, "(ulimit -n)" in done.stderr), (0, True), done.stderr)
    return None


@case
def reader_along():
    """Who reads the standard output gets what there is while the capture goes on: at first that it begins."""
    with subprocess.Popen([VERBATIM, "capture", "--quiet", "-"], stdout=subprocess.PIPE, bufsize=0) as tool:
        try:
            expect(select.select([tool.stdout], [], [], LIMIT_S)[0], [tool.stdout], "something comes")
            expect(tool.stdout.read(4), b"\x0a\x0d\x0d\x0a", "the section's beginning")
        finally:
            tool.terminate()
        expect(harness.wait(tool, LIMIT_S), 0, "exit status")


@case
def no_hangup():
    """Under nohup(1) a capture goes on."""
    words = [VERBATIM, "capture", log("nohup.pcapng")]
    ignore = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, preexec_fn=ignore) as tool:
        expect("capturing" in tool.stderr.readline(), True, "it has begun")
        with open(f"/proc/{tool.pid}/status", encoding="ascii", errors="replace") as status:
            ignored = int(re.search(r"^SigIgn:\s*(\w+)", status.read(), re.MULTILINE)[1], 16)
        tool.terminate()
        expect((ignored & 1, harness.wait(tool, LIMIT_S)), (1, 0), "the hangup is ignored")


@case
def closed_streams():
    """What is said does not get into the file, which would be the first to be opened."""
    path = log("closed.pcapng")
    words = ["sh", "-c", f'exec {VERBATIM} "$@" 2>&-', "sh"]
    harness.run([*words, "capture", "--seconds=0.1", path], check=True, timeout=LIMIT_S)
    expect(Capture(path).packets, [], "packets")
    done = harness.run(
        [*words, "run", f"--capture={path}", "sh", "-c", "echo said >&2"], check=False, timeout=LIMIT_S
    )
    expect(done.returncode != 0, True, "the program's stream is closed, too")
    expect(Capture(path).packets, [], "packets")


@case
def run__all_that_it_starts():
    path = log("children.pcapng")
    done = harness.run(
        [VERBATIM, "run", f"--capture={path}", "sh", "-c", rping_pair(7477)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    capture = Capture(path).judge()
    expect((done.returncode, len(capture.interfaces)), (0, 2), f"both processes ({done.stderr})")
    check_sequences(capture)


def run(*args, **options):
    return harness.run(
        [VERBATIM, "run", *args], capture_output=True, text=True, check=False, timeout=LIMIT_S, **options
    )


RPING_PAIR = rping_pair(7479)


def held_by(page):
    """The pcapng in a page (tests/tools/timeline.py knows more of it)."""
    with open(page, encoding="utf-8") as file:
        found = re.search(r'base64" id="capture">([^<]*)<', file.read())
    return base64.b64decode(found.group(1))


@case
def run__timeline():
    """The page is there however the program ends, and holds both processes; with a capture, what that has."""
    page, path = log("run.html"), log("run_page.pcapng")
    for end, status in ("exit 3", 3), ("kill -KILL $$", 137):
        done = run(f"--timeline={page}", "sh", "-c", f"{RPING_PAIR}; {end}")
        expect(done.returncode, status, f"a program that ends by {end}: {done.stderr}")
        data = held_by(page)
        expect(len(set(re.findall(rb"rping\[\d+\]", data))), 2, "processes in the page")
        os.remove(page)
    done = run(f"--timeline={page}", f"--capture={path}", "sh", "-c", RPING_PAIR)
    expect(done.returncode, 0, done.stderr)
    made = log("made.html")
    harness.run([VERBATIM, "timeline", path, made], check=True, timeout=LIMIT_S)
    expect(held_by(page) == held_by(made), True, "the same page as of the capture")
    started = log("started")
    for bad in "/nonexistent/page.html", "-", "":
        done = run(f"--timeline={bad}", "touch", started)
        expect((done.returncode, os.path.exists(started)), (125, False), f"a page at {bad!r}: {done.stderr}")
    expect(run(f"--timeline={page}", "true").returncode, 0, "a program without devices")
    expect(held_by(page).startswith(b"\x0a\x0d\x0d\x0a"), True, "its page")


@case
def run__what_cannot_be_captured_does_not_run():
    """And nothing is told of it but that."""
    page, started = log("nothing.html"), log("nothing_started")
    done = run("--capture=/nonexistent/x", f"--timeline={page}", "--latency", "touch", started)
    wanted = "verbatim: /nonexistent/x: No such file or directory\n"
    expect((done.returncode, done.stderr, os.path.exists(started)), (125, wanted, False), "what is told")


@case
def run__timeline_without_room():
    """Who lacks room for a capture without a name is told where that is."""
    page = log("room.html")
    mount = 'mount -n -t tmpfs -o size=64k tmpfs /tmp && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", mount, "sh", VERBATIM, "run"]
    if subprocess.run([*words[:-2], "true"], capture_output=True, check=False).returncode:
        return "nothing can be mounted here"
    done = harness.run(
        [*words, f"--timeline={page}", "sh", "-c", RPING_PAIR.replace("-C 5", "-C 200")],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    told = "the capture in /tmp (--capture=FILE: elsewhere): it could not be written"
    found = done.returncode, told in done.stderr, "/proc/" in done.stderr
    expect(found, (125, True, False), f"where there is no room: {done.stderr}")
    return None


ROW = re.compile(r"^  ([A-Z_]+) +([\d-]+) +(\d+)((?: +[\d.]+ [a-z]?s){8})", re.MULTILINE)
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def rows_of(said):
    """{(operation, bytes): (count, the eight times in ns)}"""
    found = {}
    for operation, sizes, count, times in ROW.findall(said):
        values = [float(v) * UNITS[unit] for v, unit in re.findall(r"([\d.]+) ([a-z]+)", times)]
        found[operation, sizes] = int(count), values
    return found


@case
def run__latency():
    picture = log("latency.svg")
    done = run(f"--latency={picture}", "sh", "-c", RPING_PAIR.replace("-C", "-S 200 -C"))
    expect(done.returncode, 0, done.stderr)
    parts = sorted((rows_of(text) for text in done.stderr.split("verbatim: ")[1:]), key=len)
    expect(len(parts), 2, f"processes: {done.stderr}")
    client, server = ({key: count for key, (count, _) in rows.items()} for rows in parts)
    expect(client, {("SEND", "16"): 10}, done.stderr)
    expect({key[0]: n for key, n in server.items()}, {"SEND": 10, "READ": 5, "WRITE": 5}, done.stderr)
    for rows in parts:
        for count, times in rows.values():
            expect(times[:5], sorted(times[:5]), "percentiles")
            expect(sum(times[5:7]) <= times[4] * 1.01, True, f"means of {count} and the longest: {times}")
    root = xml.etree.ElementTree.parse(picture).getroot()
    names = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text") if " bytes · " in (e.text or "")]
    expect(len(names), 4, f"groups in the picture: {names}")
    expect(run("--latency=/nonexistent/x.svg", "true").returncode, 125, "no place for the picture")
    done = run("--latency", "true")
    expect((done.returncode, "no send" in done.stderr), (0, True), done.stderr)


@case
def run__latency_of_any_name():
    """The picture has it as it is."""
    program, picture = log("mü<&>\"']"), log("name.svg")
    shutil.copy(shutil.which("ibv_rc_pingpong"), program)
    with running("ibv_rc_pingpong -d vb_lo -g 0 -p 18597 -n 5"):
        done = run(f"--latency={picture}", program, *"-d vb_lo -g 0 -p 18597 -n 5 127.0.0.1".split())
    expect(done.returncode, 0, done.stderr)
    names = xml.etree.ElementTree.parse(picture).getroot().itertext()
    expect([text for text in names if "mü<&>\"'][" in text] != [], True, "the name in the picture")


@case
def run__latency_tells_what_was_lost():
    if harness.missing_programs("ib_write_bw"):
        return "ib_write_bw is not installed"
    traffic = "ib_write_bw -F -d vb_lo -x 0 -p 18594 -s 8 -D 600"
    with running(traffic) as (server,):
        tool = subprocess.Popen(
            [VERBATIM, "run", "--latency", "--buffer=1", *traffic.split(), "127.0.0.1"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

        def done_by_client():
            pids = [pid for pid in processes() if pid != server]
            return looked("stats", str(pids[0]))[0]["requests"] if pids else 0

        wait_for(lambda: done_by_client() > 0, "traffic")
        tool.send_signal(signal.SIGSTOP)
        enough = done_by_client() + 5000
        wait_for(lambda: done_by_client() > enough, "more than the ring has room for")
        tool.send_signal(signal.SIGCONT)
        tool.terminate()
        said = harness.communicate(tool, LIMIT_S)[1]
        expect(re.search(r"  [1-9]\d* packets or events were lost", said) is not None, True, said)
        expect("/dev/null" in said, False, f"a file that the user does not know: {said}")
        expect([key[0] for key in rows_of(said)], ["WRITE"], said)
    return None


@case
def run__nobody_is_captured_who_only_looks_like_this_user():
    if why := lacks_another_user():
        return why
    tool = subprocess.Popen(
        [*AS_OTHER, VERBATIM, "run", "--capture=/dev/null"]
        + ["sh", "-c", "echo $VERBATIM_CAPTURE; read -r line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    name = tool.stdout.readline().strip()

    def call_and_tell(told):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect("\0" + name)
            told.send(s.recv(4096) or b"-")

    try:
        for disguise, is_of_user in DISGUISES:
            with disguised(disguise, call_and_tell) as told:
                if told:
                    said = told.recv(4096)
                    expect((said != b"", said != b"-"), (True, is_of_user), f"{disguise.__name__}: captured")
    finally:
        tool.communicate("\n")
    expect(tool.returncode, 0, "exit status")
    return None


@case
def nobody_captures():
    """The variable without a capture: a program goes its way."""
    environment = os.environ | {"VERBATIM_CAPTURE": "verbatim/capture/0", "VERBATIM_DEBUG": "1"}
    done = harness.run(
        [VERBATIM, "run", "ibv_devinfo"],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        env=environment,
    )
    expect((done.returncode, "nobody captures" in done.stderr), (0, True), done.stderr)


@case
def a_recorder_without_a_processor_is_waited_for():
    """It is stopped before the program calls it."""
    path, script, started = log("late.pcapng"), log("late.sh"), log("late.started")
    with open(script, "w", encoding="ascii") as file:
        file.write(f"rm {started}\nsleep 0.5\nexec ibv_devinfo\n")
    with open(started, "w", encoding="ascii"):
        pass
    program = Captor(f"sh {script}", log("late.log"), path, ())
    try:
        wait_for(lambda: not os.path.exists(started), "the program's start")
        program.process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        program.process.send_signal(signal.SIGCONT)
        expect(program.wait(harness.Limit(LIMIT_S)), 0, program.output())
        names = [name.split("[")[0] for name in Capture(path).interfaces]
        expect(names, ["ibv_devinfo"], program.output())
    finally:
        program.end()


@case
def who_is_not_there_is_told():
    path = log("absent.pcapng")
    done = harness.run(
        [VERBATIM, "capture", "--pid=1", path], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    expect(
        (done.returncode, "process 1 is not one" in done.stderr, Capture(path).packets),
        (1, True, []),
        done.stderr,
    )
    with pinging() as (server, _):
        capture, said = captured("present", "--packets", "5", "--pid", "1", "--pid", str(server))
        expect(
            (len(capture.packets), "process 1 is not one" in said, "of 1 process in" in said),
            (5, True, True),
            said,
        )


@case
def usage():
    for args in (
        [],
        ["a", "b"],
        ["--nonsense", "a"],
        ["--pid=x", "a"],
        ["--seconds=-1", "a"],
        ["--seconds=5x", "a"],
        ["--pid=5x", "a"],
        ["--opcode=", "a"],
    ):
        done = harness.run([VERBATIM, "capture", *args], capture_output=True, check=False, timeout=LIMIT_S)
        expect(done.returncode, 125, f"capture {' '.join(args)}")
    many = [f"--pid={pid}" for pid in range(1, 66)]
    done = subprocess.run([VERBATIM, "capture", *many, "a"], capture_output=True, text=True, check=False)
    expect((done.returncode, "64 processes" in done.stderr), (125, True), done.stderr)


if __name__ == "__main__":
    harness.isolate()
    harness.require_library(BUILD)
    if harness.missing_programs("rping", "ibv_ud_pingpong", "ibv_xsrq_pingpong", "ip"):
        print("1..0 # SKIP rping, ibv_ud_pingpong, ibv_xsrq_pingpong and ip are needed")
        sys.exit()
    import look

    LOGS = look.LOGS = harness.log_directory(BUILD, "capture")
    sys.exit(run_cases(CASES))
