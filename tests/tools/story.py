#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The sentences of timelines: situations are planted, and the page's script names their causes.

Captures of most are written here, event by event; real programs under faults make the others. The script runs
in Node.js, or else in Chromium.

usage: story.py BUILD_DIR [PATTERN]
"""
import base64
import dataclasses
import functools
import json
import os
import re
import shutil
import struct
import subprocess
import sys

import capture  # before paths, where another one has that name
import paths  # noqa: F401
import harness
import look
import timeline
from browser import browser, missing
from capture import log, ping
from look import Failure, expect, run_cases
from timeline import COMPLETION, CM, EVENT, INTERFACE, POLL, POST_RECEIVE, POST_SEND, SENTENCE, block, section

CASES = []
SOURCES = os.path.join(os.path.dirname(__file__), "..", "..", "tools", "timeline")

# An array of what the panel says of each request, with its wr_id and what its arrows are called.
STORIES = """
(formats, bytes) => {
	const capture = new Capture(bytes, new Formats(formats)),
		model = new Model(capture),
		story = new Story(capture),
		refused = c => c.rows.map(r => r.request).filter(r => r?.post?.status);
	const told = model.connections.flatMap(c => [...c.requests, ...refused(c)]).map(r => {
		const { text, bad } = story.of(r),
			sent = [...r.packets, ...r.again, ...r.copies].map(row => row.arrow),
			labels = [...sent, ...story.answers(r)].map(arrow => arrowLabel(capture, arrow));
		return { wr: String(r.wr), operation: r.operation, process: r.end.name, text, bad, labels };
	});
	return JSON.stringify(told);
}
"""

# Of each packet: its time, its message of the CM with the queue pair that it names, the names of its fields.
FIELDS = """
(formats, bytes) => {
	const capture = new Capture(bytes, new Formats(formats));
	new Model(capture);
	const packets = capture.records.filter(r => r.kind === "packet");
	return JSON.stringify(
		packets.map(p => ({
			t: p.t,
			mad: p.mad ?? "",
			qpn: p.cmQpn ?? null,
			fields: capture.fields(p).flatMap(([, rows]) => rows.map(([name]) => name)),
		}))
	);
}
"""


def case(function):
    CASES.append(function)
    return function


# ---- the script ----


def run_in_node(page, script):
    text = timeline.read(page).decode()
    formats = re.search(r'<script type="application/json" id="formats">(.*?)</script>', text, re.S).group(1)
    held = base64.b64encode(timeline.embedded(page)).decode()
    sources = [os.path.join(SOURCES, f"{name}.js") for name in ("capture", "model", "story", "ladder")]
    program = "\n".join(timeline.read(path).decode() for path in sources)
    program += (
        f"\nconsole.log(({script})(JSON.parse({json.dumps(formats)}), "
        f"new Uint8Array(Buffer.from({json.dumps(held)}, 'base64'))));"
    )
    path = page + ".js"
    with open(path, "w", encoding="utf-8") as file:
        file.write(program)
    done = harness.run(
        ["node", path], capture_output=True, text=True, check=False, timeout=capture.LIMIT_S
    )
    if done.returncode:
        raise Failure("the script fails", done.stderr)
    return json.loads(done.stdout)


def run_in_chromium(page, script):
    with browser() as view:
        view.open(os.path.abspath(page))
        view.settle()
        element = "document.getElementById"
        return json.loads(
            view.get(
                f"({script})(JSON.parse({element}('formats').textContent), "
                f"bytesOfBase64({element}('capture').textContent))"
            )
        )


def stories(page, script=STORIES):
    return run_in_node(page, script) if has_node() else run_in_chromium(page, script)


@functools.cache
def has_node():
    """Older ones than 18 do not know all of the page's JavaScript."""
    if not shutil.which("node"):
        return False
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.", said)
    return version is not None and int(version[1]) >= 18


def no_script():
    return None if has_node() else missing()


def check(found, wr, *patterns):
    """What is said of the request with this wr_id."""
    texts = [one["text"] for one in found if one["wr"] == str(wr)]
    expect(len(texts), 1, f"requests with wr_id {wr}")
    for pattern in patterns:
        if not re.search(pattern, texts[0]):
            raise Failure(f"no {pattern!r} in what is said of wr_id {wr}", texts[0])


# ---- captures that are written here ----

SEND_ONLY, WRITE_ONLY, READ_REQUEST, READ_RESPONSE, ACK = 0x04, 0x0A, 0x0C, 0x10, 0x11
UC_SEND_ONLY, UD_SEND_ONLY, GSI = 0x24, 0x64, 1
WRITE, SEND, READ = 0, 2, 4  # enum ibv_wr_opcode
SIGNALED, FENCE = 2, 1
RECEIVE, SHARED, RECEIVED = 1, 2, 128
NAK_SEQUENCE, NAK_INVALID, NAK_ACCESS = 0x60, 0x61, 0x62
RNR = 0x20 | 14
LOC_PROT, FLUSHED, REM_INV, REM_ACCESS, RETRY, RNR_RETRY, GENERAL = 4, 5, 9, 10, 12, 13, 21
ENOMEM, EINVAL = 12, 22
CAPTURED_AT = 10**18
US = 1000


def bth(opcode, qpn, psn=0):
    return bytes([opcode, 0x40, 0xFF, 0xFF, 0]) + qpn.to_bytes(3, "big") + b"\x80" + psn.to_bytes(3, "big")


def ip_packet(source, destination, rest):
    """From one of 10.0.0.0/24 to another; rest: from the BTH on."""
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(rest), 0, 0x4000, 64, 17, 0)
    ip += bytes([10, 0, 0, source, 10, 0, 0, destination])
    return ip + struct.pack(">HHHH", 49152, 4791, 8 + len(rest), 0) + rest


def direction(out):
    return timeline.option(2, struct.pack("<I", 2 if out else 1))


@dataclasses.dataclass
class Side:
    """A process with one queue pair. Times are in microseconds."""

    scene: "Scene"
    index: int
    qpn: int

    def note(self, at, kind, wr=0, *, qpn=None, opcode=0, flags=0, status=0, size=0, text=""):
        body = struct.pack(
            "<IIQIIIIQII",
            kind,
            self.qpn if qpn is None else qpn,
            wr,
            opcode,
            flags,
            status,
            size,
            0,
            0,
            0,
        )
        self.scene.add(at, self.index, EVENT, body + text.encode() + bytes(-len(text.encode()) % 4))

    def post(self, at, wr, opcode=SEND, *, flags=SIGNALED, size=8, err=0):
        self.note(at, POST_SEND, wr, opcode=opcode, flags=flags, status=err, size=size)

    def receive(self, at, wr, err=0):
        self.note(at, POST_RECEIVE, wr, status=err, size=64)

    def complete(self, at, wr, status=0, polled=None):
        self.note(at, COMPLETION, wr, status=status)
        self.note(at + 1 if polled is None else polled, POLL, wr, status=status)

    def received(self, at, wr, status=0, flags=0):
        for kind, when in (COMPLETION, at), (POLL, at + 1):
            self.note(when, kind, wr, opcode=RECEIVED, flags=RECEIVE | flags, status=status)

    def say(self, at, text):
        self.note(at, SENTENCE, qpn=0, text=text)

    def event(self, at, text):
        self.note(at, CM, text=text)

    @property
    def name(self):
        return f"{self.scene.names[self.index]}[{self.index + 1}]"

    def packet(self, at, out, opcode, psn, rest=b"", dropped=False):
        to = self.scene.other(self).qpn if out else self.qpn
        source, destination = (self, self.scene.other(self)) if out else (self.scene.other(self), self)
        data = bth(opcode, to, psn) + rest + bytes(4)
        self.put(at, out, ip_packet(source.index + 1, destination.index + 1, data), dropped)

    def put(self, at, out, ip, dropped=False):
        text = f"{'from' if out else 'to'} {self.name}, {self.scene.way}, QP 0x{self.qpn:06x}"
        text += "; dropped: its ICRC is wrong" if dropped else ""
        options = timeline.option(1, text.encode()) + direction(out) + timeline.option(0, b"")
        body = struct.pack("<II", len(ip), len(ip)) + ip + bytes(-len(ip) % 4) + options
        self.scene.add(at, self.index, timeline.PACKET, body)

    def sends_datagram(self, at, psn, destination):
        """To a queue pair of another address, which is not captured."""
        deth = struct.pack(">II", 0x1234, self.qpn)
        data = bth(UD_SEND_ONLY, 0x20 + destination, psn) + deth + bytes(8) + bytes(4)
        self.put(at, True, ip_packet(self.index + 1, destination, data))

    def sends(self, at, psn, opcode=SEND_ONLY, arrives=None, dropped=False):
        """A request's packet leaves here, and arrives there unless it is lost."""
        rest = struct.pack(">QII", 4096, 7, 8) if opcode in (WRITE_ONLY, READ_REQUEST) else b""
        rest += b"" if opcode == READ_REQUEST else bytes(8)
        self.packet(at, True, opcode, psn, rest)
        if arrives is not None:
            self.scene.other(self).packet(arrives, False, opcode, psn, rest, dropped)

    def answers(self, at, psn, syndrome=0x1F, opcode=ACK, arrives=None):
        rest = struct.pack(">I", syndrome << 24 | psn) + (bytes(8) if opcode == READ_RESPONSE else b"")
        self.packet(at, True, opcode, psn, rest)
        if arrives is not None:
            self.scene.other(self).packet(arrives, False, opcode, psn, rest)


class Scene:
    """Two processes and what they do."""

    def __init__(self, way="over UDP", names=("p0", "p1")):
        self.way, self.names, self.records = way, names, []
        self.a, self.b = Side(self, 0, 0x11), Side(self, 1, 0x22)

    def other(self, side):
        return self.b if side is self.a else self.a

    def add(self, at, index, kind, rest):
        time = CAPTURED_AT + int(at * US)
        body = struct.pack("<III", index, time >> 32, time & 0xFFFFFFFF) + rest
        self.records.append((time, len(self.records), block(kind, body)))

    def page(self, name):
        path = log(name + ".pcapng")
        with open(path, "wb") as file:
            file.write(section())
            for side in self.a, self.b:
                options = timeline.option(2, side.name.encode())
                options += timeline.option(9, b"\x09") + timeline.option(0, b"")
                file.write(block(INTERFACE, struct.pack("<HHI", 101, 0, 0) + options))
            file.writelines(data for _, _, data in sorted(self.records))
        return timeline.page_of(name, path)

    def told(self, name):
        """What the page says of all requests."""
        return stories(self.page(name))


# ---- situations ----


@case
def late_receive_on_the_wire():
    s = Scene()
    s.a.post(0, 7)
    s.a.sends(1, 0, arrives=3)
    s.b.answers(4, 0, RNR, arrives=6)
    s.b.receive(500, 70)
    s.a.sends(700, 0, arrives=702)
    s.b.received(703, 70)
    s.b.answers(704, 0, arrives=706)
    s.a.complete(707, 7)
    check(
        s.told("late_wire"),
        7,
        "took 707 µs",
        "waited for a receive",
        "RNR 1 time",
        "posted 499 µs after it had left",
    )


@case
def late_receive_in_shared_memory():
    s = Scene("through shared memory")
    s.b.receive(0, 69)
    for wr, served in (7, 2), (8, 400):
        s.a.post(1, wr)
        s.a.sends(1.5, wr, arrives=served)
    s.b.received(3, 69)
    s.b.receive(399, 70)
    s.b.received(401, 70)
    for wr, done in (7, 4), (8, 403):
        s.b.answers(done - 1, wr, arrives=done)
        s.a.complete(done, wr)
    found = s.told("late_local")
    check(found, 7, "took 3 µs[^:]*$")
    check(found, 8, "waited for a receive", "posted 398 µs after it had left")


@case
def late_shared_receive():
    s = Scene()
    s.a.post(0, 7)
    s.a.sends(1, 0, arrives=3)
    s.b.note(500, POST_RECEIVE, 70, qpn=0, flags=SHARED, size=64)
    s.b.note(501, POST_RECEIVE, 71, qpn=0, flags=SHARED, size=64)
    s.b.received(503, 70, flags=SHARED)
    s.b.answers(504, 0, arrives=506)
    s.a.complete(507, 7)
    check(s.told("late_shared"), 7, "waited for a receive", "posted 499 µs after it had left")


@case
def receive_exhausted():
    s = Scene()
    s.a.post(0, 7)
    for again in range(4):
        s.a.sends(1 + 100 * again, 0, arrives=3 + 100 * again)
        s.b.answers(4 + 100 * again, 0, RNR, arrives=6 + 100 * again)
    s.a.complete(310, 7, RNR_RETRY)
    causes = "said 4 times that it has no receive", "rnr_retry is used up"
    check(s.told("rnr"), 7, "failed with RNR_RETRY_EXC_ERR", *causes)


@case
def wrong_rkey():
    s = Scene()
    s.a.post(0, 7, WRITE)
    s.a.sends(1, 0, WRITE_ONLY, arrives=3)
    s.b.say(3, "responder: QP 0x000022, WRITE: the rkey 0x7 names no region")
    s.b.answers(4, 0, NAK_ACCESS, arrives=6)
    s.a.say(6, "completion: QP 0x000011, send wr_id 0x7: REM_ACCESS_ERR: the peer refused")
    s.a.complete(7, 7, REM_ACCESS)
    causes = "the rkey, the address range or its access rights", "says: “[^”]*wr_id 0x7: "
    check(s.told("rkey"), 7, "failed with REM_ACCESS_ERR", *causes)


@case
def message_longer_than_its_receive():
    s = Scene()
    s.a.post(0, 7)
    s.a.sends(1, 0, arrives=3)
    s.b.answers(4, 0, NAK_INVALID, arrives=6)
    s.a.complete(7, 7, REM_INV)
    check(s.told("long"), 7, "failed with REM_INV_REQ_ERR", "longer than its receive")


@case
def own_memory_refused():
    s = Scene()
    s.a.post(0, 7)
    s.a.say(1, "completion: QP 0x000011, send wr_id 0x8: LOC_PROT_ERR: of another one")
    s.a.say(1, "completion: QP 0x000011, send wr_id 0x7: LOC_PROT_ERR: lkey 0x5 names no region")
    s.a.complete(2, 7, LOC_PROT)
    causes = "the lkey or the address range", "lkey 0x5 names no region"
    check(s.told("lkey"), 7, "failed with LOC_PROT_ERR", *causes)


@case
def peer_does_not_look():
    s = Scene("through shared memory")
    s.b.receive(0, 70)
    s.a.post(1, 7)
    s.a.sends(1.5, 0, arrives=900)
    s.b.received(901, 70)
    s.b.answers(902, 0, arrives=903)
    s.a.complete(904, 7)
    check(s.told("unlooked"), 7, "took 903 µs", "lay in shared memory until the peer looked")


@case
def peer_slow_to_answer():
    s = Scene()
    s.a.post(0, 7, READ)
    s.a.sends(1, 0, READ_REQUEST, arrives=3)
    s.b.answers(803, 0, opcode=READ_RESPONSE, arrives=805)
    s.a.complete(806, 7)
    check(s.told("slow"), 7, "had it for 800 µs", "slow to serve it")


@case
def lost_packet():
    s = Scene()
    s.a.post(0, 7)
    s.b.receive(0, 70)
    s.a.sends(1, 0)
    s.a.sends(4001, 0, arrives=4003)
    s.b.received(4004, 70)
    s.b.answers(4004, 0, arrives=4006)
    s.a.complete(4007, 7)
    check(s.told("lost"), 7, "1 packet of it was lost", "sent again 1 time, which cost 4 ms")


@case
def lost_acknowledgement():
    s = Scene()
    s.b.receive(0, 70)
    s.a.post(0, 7)
    s.a.sends(1, 0, arrives=3)
    s.b.received(4, 70)
    s.b.answers(4, 0)
    s.a.sends(4001, 0, arrives=4003)
    s.b.answers(4004, 0, arrives=4006)
    s.a.complete(4007, 7)
    check(s.told("lost_ack"), 7, "It arrived, but its ACK was lost", "sent again 1 time")


@case
def earlier_packet_lost():
    s = Scene()
    for wr in 7, 8:
        s.a.post(wr - 7, wr, WRITE)
    s.a.sends(2, 0, WRITE_ONLY)
    s.a.sends(3, 1, WRITE_ONLY, arrives=5)
    s.b.answers(6, 0, NAK_SEQUENCE, arrives=8)
    for psn in 0, 1:
        s.a.sends(900 + psn, psn, WRITE_ONLY, arrives=902 + psn)
    s.b.answers(904, 1, arrives=906)
    for wr in 7, 8:
        s.a.complete(900 + wr, wr)
    found = s.told("gap")
    check(found, 7, "1 packet of it was lost")
    check(found, 8, "sent again 1 time", "missed an earlier packet")


@case
def wrong_icrc():
    s = Scene()
    s.a.post(0, 7, WRITE)
    s.a.sends(1, 0, WRITE_ONLY, arrives=3, dropped=True)
    s.a.sends(4001, 0, WRITE_ONLY, arrives=4003)
    s.b.answers(4004, 0, arrives=4006)
    s.a.complete(4007, 7)
    check(s.told("icrc"), 7, "arrived with a wrong ICRC and was dropped")


@case
def completion_not_polled():
    s = Scene()
    s.a.post(0, 7, WRITE)
    s.a.sends(1, 0, WRITE_ONLY, arrives=3)
    s.b.answers(4, 0, arrives=6)
    s.a.complete(7, 7, polled=5007)
    check(s.told("unpolled"), 7, "lay in the completion queue for 5 ms until the program polled it")


@case
def completion_late():
    s = Scene()
    s.a.post(0, 7, WRITE)
    s.a.sends(1, 0, WRITE_ONLY, arrives=3)
    s.b.answers(4, 0, arrives=6)
    s.a.complete(906, 7)
    check(s.told("completing"), 7, "its completion came 900 µs later: nobody looked, or others came first")


@case
def fence():
    s = Scene()
    s.a.post(0, 7, READ)
    s.a.post(0.5, 8, WRITE, flags=SIGNALED | FENCE)
    s.a.sends(1, 0, READ_REQUEST, arrives=3)
    s.b.answers(700, 0, opcode=READ_RESPONSE, arrives=702)
    s.a.complete(703, 7)
    s.a.sends(704, 1, WRITE_ONLY, arrives=706)
    s.b.answers(707, 1, arrives=709)
    s.a.complete(710, 8)
    check(s.told("fence"), 8, "waited 704 µs in the send queue", "it has a fence")


@case
def fence_without_reads():
    """A fence does not wait for WRITEs, nor for a READ that is over."""
    s = Scene()
    s.a.post(0, 6, READ)
    s.a.sends(1, 0, READ_REQUEST, arrives=3)
    s.b.answers(4, 0, opcode=READ_RESPONSE, arrives=6)
    s.a.complete(7, 6)
    s.a.post(10, 7, WRITE)
    s.a.post(10.5, 8, WRITE, flags=SIGNALED | FENCE)
    s.a.sends(11, 1, WRITE_ONLY, arrives=13)
    s.b.answers(700, 1, arrives=702)
    s.a.complete(703, 7)
    s.a.sends(704, 2, WRITE_ONLY, arrives=706)
    s.b.answers(707, 2, arrives=709)
    s.a.complete(710, 8)
    check(s.told("no_fence"), 8, r"waited 694 µs in the send queue behind 1 request\.$")


@case
def behind_others():
    s = Scene()
    for wr in range(10):
        s.a.post(wr / 10, wr, WRITE)
    for wr in range(10):
        s.a.sends(1 + 100 * wr, wr, WRITE_ONLY, arrives=3 + 100 * wr)
        s.b.answers(4 + 100 * wr, wr, arrives=6 + 100 * wr)
        s.a.complete(7 + 100 * wr, wr)
    check(s.told("behind"), 9, "waited 900 µs in the send queue behind 9 requests")


@case
def send_queue_full():
    s = Scene()
    for wr in 1, 2:
        s.a.post(wr, wr, WRITE)
        s.a.sends(wr + 0.5, wr, WRITE_ONLY, arrives=wr + 3)
    s.b.answers(7, 1, arrives=8)
    s.a.complete(9, 1, polled=100)
    s.a.say(10, "ibv_post_send: the send queue is full")
    s.a.post(10, 3, WRITE, err=ENOMEM)
    s.b.answers(20, 2, arrives=21)
    s.a.complete(22, 2)
    check(
        s.told("full"),
        3,
        r"refused at once \(ENOMEM\)",
        "no room: 1 request in it had no completion yet, and 1 place waited for completions to be polled",
        "says: “ibv_post_send: the send queue is full”",
    )


@case
def unsignaled_ones_of_the_same_wr_id():
    """As perftest posts them: the one completion is of the last one, and is for all their places."""
    s = Scene()
    for i in range(4):
        s.a.post(i, 7, WRITE, flags=SIGNALED if i == 3 else 0)
        s.a.sends(i + 0.5, i, WRITE_ONLY, arrives=i + 2)
    s.b.answers(6, 3, arrives=8)
    s.a.complete(9, 7, polled=100)
    s.a.post(10, 8, WRITE, err=ENOMEM)
    found = s.told("unsignaled")
    texts = [one["text"] for one in found if one["wr"] == "7"]
    expect(len(texts), 4, "requests")
    for text in texts[:3]:
        expect("It asked for no completion of its own" in text, True, text)
    expect("took 6 µs" in texts[3] and "lay in the completion queue for 91 µs" in texts[3], True, texts[3])
    check(found, 8, "no room: 0 requests in it had no completion yet, and 4 places waited")


@case
def unsignaled_one_fails():
    """The completion of a failure is of one that has no answer."""
    s = Scene()
    for psn, flags in enumerate((SIGNALED, 0, 0, SIGNALED)):
        s.a.post(psn, 7, WRITE, flags=flags)
        s.a.sends(psn + 0.5, psn, WRITE_ONLY, arrives=psn + 2)
    s.b.answers(6, 1, arrives=7)
    s.a.complete(8, 7)
    s.b.answers(9, 2, NAK_ACCESS, arrives=10)
    for status in REM_ACCESS, FLUSHED:
        s.a.complete(11, 7, status)
    texts = [one["text"] for one in s.told("unsignaled_fails")]
    ends = ("took 8 µs", "asked for no completion", "REM_ACCESS_ERR after", "WR_FLUSH_ERR after")
    for text, said in zip(texts, ends):
        expect(said in text, True, text)


@case
def bad_request():
    s = Scene()
    s.a.say(1, "ibv_post_send: num_sge is beyond the queue pair's max_send_sge")
    s.a.post(1, 3, WRITE, err=EINVAL)
    s.a.post(2, 4, WRITE)
    s.a.sends(3, 0, WRITE_ONLY, arrives=4)
    s.b.answers(5, 0, arrives=6)
    s.a.complete(7, 4)
    found = s.told("bad")
    check(found, 3, r"refused at once \(EINVAL\)", "does not fit the queue pair", "num_sge is beyond")
    check(found, 4, "took 5 µs")


@case
def completion_queue_full():
    s = Scene()
    for wr in 1, 2:
        s.a.post(wr, wr, WRITE)
        s.a.sends(wr + 0.5, wr, WRITE_ONLY, arrives=wr + 3)
        s.b.answers(wr + 5, wr, arrives=wr + 6)
    s.a.complete(8, 1, polled=900)
    s.a.say(9, "completion: QP 0x000011: its completion queue of 1 entries is full: a completion is lost")
    cause = "No completion came: .*completion queue of 1 entries is full"
    check(s.told("overrun"), 2, "was answered after", cause)


@case
def peer_killed():
    s = Scene("through shared memory")
    s.a.post(0, 7)
    s.a.sends(1, 0)
    s.a.say(100, "completion: QP 0x000011, send wr_id 0x7: RETRY_EXC_ERR: the peer's process has ended")
    s.a.complete(100, 7, RETRY)
    causes = "it has ended, or nothing gets through", "the peer's process has ended”"
    check(s.told("killed"), 7, "failed with RETRY_EXC_ERR", *causes)


@case
def flushed_after_an_error():
    s = Scene()
    for wr in 7, 8:
        s.a.post(wr - 7, wr, WRITE)
        s.a.sends(wr - 6.5, wr, WRITE_ONLY, arrives=wr)
    s.b.answers(12, 7, NAK_ACCESS, arrives=14)
    s.a.complete(15, 7, REM_ACCESS)
    s.a.complete(15, 8, FLUSHED)
    cause = "since send wr_id 7 had failed with REM_ACCESS_ERR"
    check(s.told("flush"), 8, "failed with WR_FLUSH_ERR", cause)


@case
def flushed_after_a_disconnect():
    s = Scene()
    s.a.event(0, "RDMA_CM_EVENT_ESTABLISHED")
    s.a.post(1, 7)
    s.a.sends(2, 0)
    s.a.event(90, "RDMA_CM_EVENT_DISCONNECTED")
    s.a.complete(100, 7, FLUSHED)
    check(s.told("disconnect"), 7, "flushed: the connection had ended")


@case
def dropped_datagrams():
    """Who finds no receive is lost, and takes none of those that are posted afterwards."""
    s = Scene()
    s.a.post(0, 7)
    s.a.sends(1, 0, UC_SEND_ONLY, arrives=3)
    s.a.complete(2, 7)
    s.b.receive(500, 70)
    s.b.receive(501, 71)
    for wr in 8, 9:
        at = 100 * wr
        s.a.post(at, wr)
        s.a.sends(at + 1, wr, UC_SEND_ONLY, arrives=at + 3)
        s.a.complete(at + 2, wr)
        s.b.received(at + 4, 62 + wr)
    found = s.told("unreliable")
    for wr in 7, 8, 9:
        check(found, wr, r"took 2 µs\.$")


@case
def datagrams_to_several():
    """Each post has the packet that left for it, wherever the others went."""
    s = Scene()
    for wr, leaves in (1, 101), (2, 201), (3, 350), (4, 401):
        s.a.post(100 * wr, wr)
        s.a.sends_datagram(leaves, wr, 2 + wr % 2)
        s.a.complete(leaves + 1, wr)
    found = s.told("several")
    for wr in 1, 2, 4:
        check(found, wr, r"took 2 µs\.$")
    check(found, 3, r"took 51 µs\. It waited 50 µs in the send queue\.$")


@case
def status_without_a_cause():
    s = Scene()
    s.a.post(0, 7, WRITE)
    s.a.sends(1, 0, WRITE_ONLY, arrives=3)
    s.a.say(899, "faults: QP 0x000011, send wr_id 0x7: GENERAL_ERR on purpose")
    s.a.complete(900, 7, GENERAL)
    causes = "Why: nothing is known of it but this status", "says: “[^”]*on purpose"
    check(s.told("general"), 7, "failed with GENERAL_ERR", *causes)


@case
def names_that_read_like_a_fate():
    """What a program is called says nothing of its packets."""
    s = Scene(names=("; dropped", "lost on purpose, through shared memory, QP 0x000033"))
    s.a.post(0, 7, WRITE)
    s.a.sends(1, 0, WRITE_ONLY, arrives=3)
    s.b.answers(4, 0, arrives=6)
    s.a.complete(7, 7)
    found = s.told("names")
    check(found, 7, r"took 7 µs\.$")
    expect([one["bad"] for one in found], [False], "trouble")


@case
def names_that_begin_with_a_mark_of_byte_order():
    """It is a part of the name, which packets' comments have, too."""
    s = Scene("through shared memory", names=("\ufeffp0", "p1"))
    s.a.post(0, 7)
    s.a.sends(1, 0, arrives=30)
    s.b.answers(31, 0, arrives=32)
    s.a.complete(33, 7)
    check(s.told("byte_order"), 7, "Most of it, 29 µs, it lay in shared memory")


# Of each event: what it is called.
LABELS = """
(formats, bytes) => {
	const capture = new Capture(bytes, new Formats(formats)),
		events = capture.records.filter(r => r.kind === "event");
	return JSON.stringify([...events.map(e => eventLabel(capture, e)), ...capture.processes.map(p => p.name)]);
}
"""


@case
def texts_that_xml_has_not():
    """Pictures are XML."""
    s = Scene(names=("a\x01b", "p1"))
    s.a.say(0, "one\0two\x1b[2J\ttab \x9b \ufffe <&>")
    said = stories(s.page("xml"), LABELS)
    wanted = ["one\ufffdtwo\ufffd[2J\ttab \ufffd \ufffd <&>", "a\ufffdb[1]", "p1[2]"]
    expect(said, wanted, "what is shown")


# A request of so many packets, each of them held back.
HELD = """
(formats, bytes) => {
	const capture = new Capture(bytes, new Formats(formats)),
		story = new Story(capture),
		row = { arrow: { from: { record: { fault: { flags: FAULT.LATE, held: 3000 } } } } };
	capture.hasFaults = true;
	return JSON.stringify([
		story.held({ packets: new Array(300000).fill(row), again: [], copies: [], connection: { side: () => 0, arrows: [] } }),
	]);
}
"""


@case
def request_of_many_packets_that_are_held_back():
    s = Scene()
    s.a.post(0, 7)
    (said,) = stories(s.page("many_held"), HELD)
    expect(said, "A packet of it was held back for 3 µs on purpose (VERBATIM_FAULTS).", "the sentence")


# ---- captures of others, and pieces ----


def packet_block(ip, options=None, at=0):
    options = direction(True) + timeline.option(0, b"") if options is None else options
    head = struct.pack("<IIIII", 0, at >> 32, at & 0xFFFFFFFF, len(ip), len(ip))
    return block(timeline.PACKET, head + ip + bytes(-len(ip) % 4) + options)


def looked_into(name, resolution, *packets):
    path = log(name + ".pcapng")
    options = timeline.option(2, b"p[1]") + timeline.option(9, resolution) + timeline.option(0, b"")
    with open(path, "wb") as file:
        file.write(section() + block(INTERFACE, struct.pack("<HHI", 101, 0, 0) + options))
        file.writelines(packets)
    return stories(timeline.page_of(name, path), FIELDS)


ACKNOWLEDGE = ip_packet(1, 2, bth(ACK, 0x22) + bytes(8))


@case
def times_of_any_resolution():
    for resolution, second in (b"\x09", 10**9), (b"\x0c", 10**12), (b"\x8a", 2**10), (b"\0", 1):
        packets = packet_block(ACKNOWLEDGE), packet_block(ACKNOWLEDGE, at=second)
        found = looked_into("resolution", resolution, *packets)
        expect([p["t"] for p in found], [0, 10**9], f"times by the resolution {resolution}")


@case
def packets_and_options_that_end_too_early():
    for last in packet_block(b"\x60"), packet_block(ACKNOWLEDGE, struct.pack("<HH", 4, 8)):
        found = looked_into("pieces", b"\x09", packet_block(ACKNOWLEDGE), last)
        expect(len(found), 2, "packets")


@case
def messages_that_were_cut():
    """By --snap: what is behind the cut is not the message's."""
    mad = bytes([1, 7, 2, 3]) + bytes(12) + struct.pack(">HHIII", 0x10, 0, 0, 0x77, 0)
    ip = ip_packet(1, 2, bth(UD_SEND_ONLY, GSI) + struct.pack(">II", 0x80010000, GSI) + mad)
    options = timeline.option(1, b"x" * 200) + direction(True) + timeline.option(0, b"")
    request, _ = looked_into("cut", b"\x09", packet_block(ip, options), packet_block(ACKNOWLEDGE))
    expect((request["mad"], request["qpn"]), ("REQ", None), "message, and its queue pair")
    named = ["local_comm_id" in request["fields"], "local_qpn" in request["fields"]]
    expect(named, [True, False], "fields before and behind the cut")


# ---- real programs ----


def run_and_tell(name, *pair, status=0):
    return stories(timeline.both(name, *pair, status=status)[0])


@case
def programs_are_told():
    """Each send of rping's has a post, a completion and a poll, and a story of its own."""
    found = run_and_tell("rping", *ping("-C 10 -S 100"))
    posted = [one for one in found if one["wr"] != "undefined"]
    expect(len(posted), 60, "requests of both sides, all with their posts")
    expect([one for one in found if one["bad"]], [], "trouble")
    for one in found:
        well = re.match(r"wr_id \S+ \((SEND|WRITE|READ), [\d,]+ bytes?\) took ", one["text"])
        expect(well is not None, True, one["text"])


@case
def programs_lose_packets():
    found = run_and_tell("rping_loss", *ping("-C 20 -S 9000"), "--wire", "--faults=drop #5 of request out")
    causes = [one["text"] for one in found if one["bad"]]
    expect(any("1 packet of it was lost on purpose" in text for text in causes), True, f"causes: {causes}")


def check_faults(name, faults, stories_of, labels):
    """Of one run: each pattern is in some request's story, or in what some arrow is called."""
    found = run_and_tell(name, *ping("-C 20 -S 9000"), "--wire", f"--faults={faults}")
    texts = [one["text"] for one in found]
    called = [label for one in found for label in one["labels"]]
    for patterns, among in (stories_of, texts), (labels, called):
        for pattern in patterns:
            if not any(re.search(pattern, text) for text in among):
                raise Failure(f"{faults}: no {pattern!r}", "\n".join(t for t in among if "purpose" in t))


@case
def programs_meet_faults_on_the_way_out():
    check_faults(
        "rping_out",
        "corrupt #5 of request out; duplicate #25 of request out; delay 3ms #15 of request out",
        (
            r"1 packet was changed on purpose \(VERBATIM_FAULTS\), arrived with a wrong ICRC and was dropped",
            r"A packet of it was held back for \d+(\.\d+)? ms on purpose",
        ),
        (r" · changed on purpose · dropped: ICRC$", r" · sent twice on purpose$", r" · held back for \d"),
    )


@case
def programs_meet_faults_on_the_way_in():
    check_faults(
        "rping_in",
        "drop #5 of request in; corrupt #15 of request in; duplicate #25 of request in; "
        "delay 3ms #9 of request in",
        (
            r"1 packet of it was lost on purpose \(VERBATIM_FAULTS\); it was sent again",
            r"A packet of it was held back for \d+(\.\d+)? ms on purpose",
        ),
        (
            r" · dropped on purpose$",
            r" · changed, dropped on purpose$",
            r" · delivered twice on purpose$",
        ),
    )


@case
def programs_meet_no_receive():
    """Receives that faults withhold are posted when they get to the adapter."""
    for way in (), ("--wire",):
        found = run_and_tell("rping_rnr", *ping("-C 4 -S 64"), *way, "--faults=rnr #3 for 30ms")
        causes = [one["text"] for one in found]
        expect(any("waited for a receive" in text for text in causes), True, f"{way}: {causes}")


@case
def programs_fail_and_are_flushed():
    command = "ibv_rc_pingpong -g 0 -d vb_lo -p 18658 -n 5 -s"
    found = run_and_tell("too_long", f"{command} 100", f"{command} 4000 127.0.0.1", status=1)
    causes = [one["text"] for one in found if one["bad"]]
    expect(any("longer than its receive" in text for text in causes), True, f"{causes}")


if __name__ == "__main__":
    harness.isolate()
    harness.require_library(sys.argv[1])
    if why := no_script():
        print(f"1..0 # SKIP {why}; nor is Node.js 18")
        sys.exit()
    capture.LOGS = look.LOGS = harness.log_directory(sys.argv[1], "story")
    sys.exit(run_cases(CASES))
