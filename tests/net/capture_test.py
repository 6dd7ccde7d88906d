#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The judgement of captures judged: packets made here, right ones and spoilt ones, each must be found. Speaks
TAP.

The packets are built from scratch, and the CRC is computed bit by bit.
"""
import os
import shutil
import signal
import struct
import sys
import tempfile
import threading

import capture
import hosts
import packets
import paths  # noqa: F401
import harness

ETHERNET = {4: bytes(12) + b"\x08\x00", 6: bytes(12) + b"\x86\xdd"}


def crc_by_bits(data):
    register = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            feedback = (register ^ byte >> bit) & 1
            register = register >> 1 ^ (0xEDB88320 if feedback else 0)
    return register ^ 0xFFFFFFFF


def bth(opcode, pad=0, qpn=0x11, psn=7, flags=0x40, pkey=0xFFFF):
    return struct.pack(">BBHII", opcode, flags | pad << 4, pkey, qpn, 0x80000000 | psn)


def frame(packet, version=4, port=4791, source=0xC123, fragment=0x4000):
    """An Ethernet frame around a packet from the BTH on; the ICRC is added."""
    udp_bytes = 8 + len(packet) + 4
    udp = struct.pack(">HHHH", source, port, udp_bytes, 0x5678)
    masked_udp = struct.pack(">HHHH", source, port, udp_bytes, 0xFFFF)
    if version == 4:
        addresses = bytes((10, 77, 1, 1, 10, 77, 1, 2))
        ip = struct.pack(">BBHHHBBH", 0x45, 0x02, 20 + udp_bytes, 5, fragment, 64, 17, 0x1234) + addresses
        masked_ip = (
            struct.pack(">BBHHHBBH", 0x45, 0xFF, 20 + udp_bytes, 5, fragment, 0xFF, 17, 0xFFFF) + addresses
        )
    else:
        addresses = bytes((0xFD, 0x77)) + bytes(13) + b"\1" + bytes((0xFD, 0x77)) + bytes(13) + b"\2"
        ip = struct.pack(">IHBB", 0x60012345, udp_bytes, 17, 64) + addresses
        masked_ip = struct.pack(">IHBB", 0x6FFFFFFF, udp_bytes, 17, 0xFF) + addresses
    masked = b"\xff" * 8 + masked_ip + masked_udp + packet[:4] + b"\xff" + packet[5:]
    return ETHERNET[version] + ip + udp + packet + struct.pack("<I", crc_by_bits(masked))


def mad(attribute, content=b"", size=256, qkey=0x80010000, version=2):
    header = struct.pack(">BBBBHHQHHI", 1, 7, version, 3, 0, 0, 0x55, attribute, 0, 0)
    body = (header + content.ljust(256, b"\0"))[:size]
    return bth(0x64, qpn=1) + struct.pack(">II", qkey, 1) + body


def flip(data, at):
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


SEND = bth(0x04) + b"data" * 8
# The service id of the RDMA IP CM service, TCP port space, port 5; a private data header for IPv4.
REQ = (
    struct.pack(">IIQ", 0x1001, 0, 0x1060005)
    + bytes(124)
    + bytes((0x00, 0x40, 0x12, 0x34))
    + bytes(28)
    + bytes(4)
)
RC_ACK = bth(0x11) + struct.pack(">I", 0x1F000001)

RIGHT = {
    "send_only": frame(SEND),
    "ipv6": frame(SEND, version=6),
    "padded": frame(bth(0x04, pad=3) + b"data" + b"d\0\0\0"),
    "ethertype": frame(bth(0x04, pad=2) + b"\x89\x02" + bytes(2)),
    "ack": frame(RC_ACK),
    "write": frame(bth(0x0A) + struct.pack(">QII", 4096, 7, 4) + b"data"),
    "read": frame(bth(0x0C) + struct.pack(">QII", 4096, 7, 4)),
    "fetch_add": frame(bth(0x14) + struct.pack(">QIQQ", 4096, 7, 1, 0)),
    "atomic_ack": frame(bth(0x12) + struct.pack(">IQ", 0x1F000001, 9)),
    "uc_send": frame(bth(0x24) + b"data"),
    "ud_send": frame(bth(0x64) + struct.pack(">II", 0x11111111, 0x12) + b"data"),
    "req": frame(mad(0x10, REQ)),
}
WRONG = {
    "icrc": (flip(RIGHT["send_only"], -1), "ICRC"),
    "icrc_ipv6": (flip(RIGHT["ipv6"], -2), "ICRC"),
    "payload": (flip(RIGHT["send_only"], -8), "ICRC"),
    "identification": (flip(RIGHT["send_only"], 14 + 5), "ICRC"),
    "opcode": (frame(bth(0x18) + b"data"), "opcode 0x18"),
    "service": (frame(bth(0xE4) + b"data"), "opcode 0xe4"),
    "uc_read": (frame(bth(0x2C) + bytes(16)), "opcode 0x2c"),
    "port": (frame(SEND, port=4792), "destination port 4792"),
    "source_port": (frame(SEND, source=4791), "source port 4791"),
    "fragment": (frame(SEND, fragment=0x2000), "fragment"),
    "not_padded": (frame(bth(0x04) + b"dat"), "multiple of 4"),
    "padding": (frame(bth(0x04, pad=1) + b"data"), "padding"),
    "too_short": (frame(bth(0x0A) + bytes(8)), "too few"),
    "ack_with_payload": (frame(RC_ACK + b"data"), "RC ACKNOWLEDGE with 4"),
    "version": (frame(bth(0x04, flags=0x41) + b"data"), "transport version"),
    "pkey": (frame(bth(0x04, pkey=0x7FFF) + b"data"), "P_Key"),
    "cut_off": (RIGHT["send_only"][:-6], "captured"),
    "mad_length": (frame(mad(0x10, size=128)), "a MAD of 128"),
    "mad_version": (frame(mad(0x10, REQ, version=1)), "MAD header"),
    "mad_attribute": (frame(mad(0x77)), "CM attribute 0x0077"),
    "mad_qkey": (frame(mad(0x10, REQ, qkey=1)), "Q_Key"),
    "stranger": (frame(mad(0x14, struct.pack(">II", 1, 0xBAD))), "never given"),
    "tshark_truncated_reth": (frame(bth(0x0A) + bytes(8)), "tshark: malformed"),
    "tshark_no_ip_cm": (frame(mad(0x10, struct.pack(">IIQ", 1, 0, 0x77))), "tshark: REQ without"),
}


def write_pcap(path, frames):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, data in enumerate(frames):
            file.write(struct.pack("<IIII", 1000 + number, 0, len(data), len(data)) + data)


LATE_DATAGRAMS = 2000
SEND_LATE = """
import socket, sys
late = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[2])):
    late.sendto(b"late", (sys.argv[1], 4790))
"""


def captured_by_a_late_reader(path):
    """How many of LATE_DATAGRAMS a capture has whose dumpcap has read none of them when it is to end."""
    with hosts.Network() as network:
        a, b = network.host("a"), network.host("b")
        network.join(a, b)
        wire = capture.Capture(a, a.interfaces[0], path)
        try:
            wire.dumpcap.send_signal(signal.SIGSTOP)
            a.run(sys.executable, "-c", SEND_LATE, b.interfaces[0].v4, str(LATE_DATAGRAMS))
            wakes = threading.Timer(1, wire.dumpcap.send_signal, (signal.SIGCONT,))
            wakes.start()
            wire.stop()
            wakes.join()
        finally:
            wire.kill()
    return sum(data[-4:] == b"late" for _, _, data in packets.read_pcap(path))


def endpoint_on_a_broken_library(folder):
    """What becomes of a test that asks for one."""
    if harness.missing_programs("ibv_devinfo"):
        raise hosts.NotHere("ibv_devinfo is not installed")
    verbatim = os.path.join(folder, "verbatim")
    with open(verbatim, "w", encoding="ascii") as script:
        script.write("#!/bin/sh\necho 'no devices' >&2\nexit 1\n")
    os.chmod(verbatim, 0o755)
    with hosts.Network() as network:
        a, b = network.host("a"), network.host("b")
        network.join(a, b)
        try:
            return a.endpoint(folder)
        except AssertionError as failure:
            return f"fails: {failure}"
        except hosts.NotHere as reason:
            return f"is skipped: {reason}"


class Tap:
    def __init__(self):
        self.number = self.failed = 0

    def check(self, name, good, remark=""):
        self.number += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.number} - {name}", flush=True)
        if not good:
            print(f"# {remark}")

    def skip(self, name, reason):
        self.number += 1
        print(f"ok {self.number} - {name} # SKIP {reason}", flush=True)


def main():
    if not shutil.which("tshark"):
        print("1..0 # SKIP tshark is not installed")
        return 0
    harness.isolate()
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "made.pcap")
        write_pcap(path, [*RIGHT.values(), *(spoilt for spoilt, _ in WRONG.values())])
        reading = capture.Reading(path)
        for number, name in enumerate(RIGHT, 1):
            tap.check(f"right__{name}", not reading.problems.get(number), reading.problems.get(number))
        for number, (name, (_, wanted)) in enumerate(WRONG.items(), len(RIGHT) + 1):
            found = reading.problems.get(number, [])
            tap.check(
                f"wrong__{name}", any(wanted in problem for problem in found), f"{wanted} not in {found}"
            )
        last = 999.5 + len(RIGHT)
        names = {packet.opcode for packet in reading.between(0, last)}
        tap.check(
            "opcodes__named",
            {"RC SEND_ONLY", "RC ACKNOWLEDGE", "UC SEND_ONLY", "UD SEND_ONLY"} <= names,
            names,
        )
        tap.check(
            "judge__clean", reading.judge(0, last, ("RC SEND_ONLY", "REQ")) == "", reading.judge(0, last, ())
        )
        tap.check("judge__missing", "no REP" in reading.judge(0, last, ("REP",)))
        tap.check("judge__wrong", "ICRC" in reading.judge(last, last + 1, ()))
        try:
            late = captured_by_a_late_reader(path)
            tap.check("capture__has_its_end", late == LATE_DATAGRAMS, f"{late} of {LATE_DATAGRAMS}")
        except hosts.NotHere as reason:
            tap.skip("capture__has_its_end", reason)
        try:
            found = endpoint_on_a_broken_library(folder)
            tap.check("endpoint__on_a_broken_library_fails", found.startswith("fails: "), found)
        except hosts.NotHere as reason:
            tap.skip("endpoint__on_a_broken_library_fails", reason)
    print(f"1..{tap.number}")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
