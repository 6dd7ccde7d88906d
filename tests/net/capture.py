# SPDX-License-Identifier: BSD-2-Clause
"""Captures what a host sends and receives, and has it read by packets.py and by tshark."""
import collections
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time

import paths  # noqa: F401
import harness
import packets
from hosts import NotHere

# Whole UDP datagrams, and fragments, of which there must be none. TCP is how some programs exchange their QP
# numbers. An empty datagram to port 9 has the kernel look for a neighbour (src/rdmacm/id/neighbour.c).
FILTER = "(udp and not dst port 9) or (ip and ip[6:2] & 0x3fff != 0)"
BUFFER_MIB = 64
END_LIMIT_S = 10  # until the last packet is in the file
SEND_END = """
import socket, sys
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
end.sendto(sys.argv[2].encode(), ("224.0.0.1", 10))
"""

EXPERT_ERROR = 0x800000
# The guesses by which tshark takes payload for what runs over RDMA elsewhere: random bytes may look like any
# of it.
GUESSES = (
    "smc",
    "smb_direct",
    "rpcordma",
    "nvme-rdma",
    "lnet",
    "iser",
    "infiniband.eoib",
    "infiniband_sdp",
    "fcoib",
    "drbd",
)
ALWAYS = (
    "frame.number",
    "_ws.malformed",
    "_ws.expert.severity",
    "_ws.expert.message",
    "infiniband.bth.opcode",
    "infiniband.mad.attributeid",
    "infiniband.invariant.crc",
    "frame.protocols",
)
# A guess that cannot be disabled: a payload that begins with the number of an EtherType and two zeros.
# packets.py has checked the packet.
GUESSED = ":infiniband:ethertype"
# tshark (4.0) does not show the ICRC of these opcodes' packets: packets.py alone checks it.
XRC = range(0xA0, 0xC0)
PRIVATE = "infiniband.cm.req.ip_cm"
CM_FIELDS = {
    "REQ": (
        "infiniband.cm.req",
        "infiniband.cm.req.serviceid",
        "infiniband.cm.req.localqpn",
        "infiniband.cm.req.startpsn",
        "infiniband.cm.req.transpsvctype",
        "infiniband.cm.req.serviceid.dport",
        f"{PRIVATE}.majv",
        f"{PRIVATE}.ipv",
        f"{PRIVATE}.sport",
    ),
    "REP": (
        "infiniband.cm.rep",
        "infiniband.cm.rep.remotecommid",
        "infiniband.cm.rep.localqpn",
        "infiniband.cm.rep.startpsn",
    ),
    "RTU": ("infiniband.cm.rtu.localcommid", "infiniband.cm.rtu.remotecommid"),
    "REJ": ("infiniband.cm.rej.localcommid", "infiniband.cm.rej.remotecommid", "infiniband.cm.rej.reason"),
    "DREQ": (
        "infiniband.cm.dreq.localcommid",
        "infiniband.cm.dreq.remotecommid",
        "infiniband.cm.req.remoteqpneecn",
    ),
    "DREP": ("infiniband.cm.drsp.localcommid", "infiniband.cm.drsp.remotecommid"),
}


class Capture:
    """A capture of one interface, from now until stop()."""

    def __init__(self, host, interface, path):
        self.host = host
        self.interface = interface
        for program in ("dumpcap", "tshark"):
            if not shutil.which(program):
                raise NotHere(f"{program} is not installed")
        self.path = path
        self.log = f"{path}.log"
        if os.path.exists(path):  # an earlier run's does not show that this one has begun
            os.remove(path)
        with open(self.log, "wb") as log:
            self.dumpcap = host.popen(
                ["dumpcap", "-qP", "-i", interface.name, "-B", str(BUFFER_MIB), "-f", FILTER, "-w", path],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        limit = harness.Limit(10)
        while not os.path.exists(path) or os.path.getsize(path) < 24:
            if self.dumpcap.poll() is not None or not limit.left():
                self.kill()
                raise NotHere(f"dumpcap does not start: {self._said()[-200:]}")
            time.sleep(0.02)

    def _said(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read().strip()

    def kill(self):
        if self.dumpcap.poll() is None:
            self.dumpcap.kill()
        self.dumpcap.wait()

    def stop(self):
        """Ends it; returns how many packets the kernel had to drop. dumpcap leaves what it has not read: a
        datagram of its own, which is taken out again, shows that it has read all."""
        end = secrets.token_hex(16)
        self.host.run(sys.executable, "-c", SEND_END, self.interface.v4, end)
        limit = harness.Limit(END_LIMIT_S)
        while not packets.holds(self.path, end.encode()):
            if not limit.left():
                raise AssertionError(f"dumpcap does not write its last packet: {self._said()[-200:]}")
            time.sleep(0.02)
        self.dumpcap.send_signal(signal.SIGINT)
        self.dumpcap.wait(30)
        packets.cut_before(self.path, end.encode())
        dropped = re.search(r"received/dropped on interface .*?: \d+/(\d+)", self._said())
        return int(dropped.group(1)) if dropped else 0


def tshark_problems(path, options=()):
    """[(frame number, problem)]: malformed packets, errors, CM messages without their fields; and the frames
    it saw."""
    fields = list(dict.fromkeys(ALWAYS + sum(CM_FIELDS.values(), ())))
    command = [
        "tshark",
        "-n",
        *options,
        "-r",
        path,
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "occurrence=a",
    ]
    for guess in GUESSES:
        command += ["--disable-protocol", guess]
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    problems, frames = [], 0
    if done.returncode:
        problems.append((0, f"tshark ended with {done.returncode}: {done.stderr.strip()[-200:]}"))
    for line in done.stdout.splitlines():
        frames += 1
        row = dict(zip(fields, line.split("\t")))
        problems += [(int(row["frame.number"]), problem) for problem in _row_problems(row)]
    return problems, frames


def _row_problems(row):
    if GUESSED in row["frame.protocols"]:
        return
    if row["_ws.malformed"]:
        yield f"malformed: {row['_ws.malformed']}"
    if any(
        int(severity, 0) >= EXPERT_ERROR for severity in row["_ws.expert.severity"].split(",") if severity
    ):
        yield f"error: {row['_ws.expert.message']}"
    if not row["infiniband.bth.opcode"]:
        yield "no infiniband.bth.opcode"
    elif not row["infiniband.invariant.crc"] and int(row["infiniband.bth.opcode"], 0) not in XRC:
        yield "no infiniband.invariant.crc"
    if row["infiniband.mad.attributeid"]:
        name = packets.CM_MESSAGES.get(int(row["infiniband.mad.attributeid"], 0), ("?",))[0]
        missing = [field for field in CM_FIELDS.get(name, ()) if not row[field]]
        if missing:
            yield f"{name} without {', '.join(missing)}"


class Reading:
    """A whole capture, read: its packets and what is wrong with them, to be asked for by time."""

    def __init__(self, path, tshark_options=()):
        self.packets = [packets.Packet(*frame) for frame in packets.read_pcap(path)]
        self.problems = collections.defaultdict(list)
        for packet in self.packets:
            self.problems[packet.number] += packet.problems
        for packet, problem in packets.unknown_ids(self.packets):
            self.problems[packet.number].append(problem)
        found, frames = tshark_problems(path, tshark_options)
        for number, problem in found:
            self.problems[number].append(f"tshark: {problem}")
        if frames != len(self.packets):
            self.problems[0].append(f"tshark saw {frames} frames of {len(self.packets)}")

    def between(self, start, end):
        return [packet for packet in self.packets if start <= packet.time <= end]

    def judge(self, start, end, expected):
        """What is wrong with the packets of a time, or "". Each of the expected opcodes or CM messages must
        be among them."""
        seen = self.between(start, end)
        names = {packet.opcode for packet in seen} | {packet.cm.name for packet in seen if packet.cm}
        missing = [name for name in expected if name not in names]
        if missing:
            return f"no {', '.join(missing)} among {len(seen)} packets ({', '.join(sorted(names))})"
        bad = [(packet, self.problems[packet.number]) for packet in seen if self.problems.get(packet.number)]
        if bad:
            packet, problems = bad[0]
            return (
                f"{len(bad)} of {len(seen)} packets are wrong; frame {packet.number}, {packet.opcode}: "
                f"{'; '.join(problems)}"
            )
        return ""
