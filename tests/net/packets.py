# SPDX-License-Identifier: BSD-2-Clause
"""RoCEv2 packets as they must be on a cable, judged from the specification's tables and from nothing of the
library.

read_pcap gives frames; Packet.problems says what is wrong with one, the invariant CRC included.
"""
import dataclasses
import ipaddress
import struct
import zlib

ROCE_PORT = 4791
PCAP_HEADER_BYTES = 24
UDP = 17
ETHERTYPES = {4: 0x0800, 6: 0x86DD}
DONT_FRAGMENT = 0x4000
MAX_PAYLOAD = 4096
GSI_QKEY = 0x80010000
MAD_BYTES = 256
DEFAULT_PKEY = 0xFFFF

RC, UC, UD, XRC = "RC", "UC", "UD", "XRC"
SERVICES = {0: RC, 1: UC, 3: UD, 5: XRC}

# Operation bits: (name, extension headers in bytes, may have a payload). Table 38 of volume 1.
RETH, AETH, IMMDT, IETH, ATOMICETH, ATOMICACKETH, DETH, XRCETH, FETH = 16, 4, 4, 4, 28, 8, 8, 4, 4
CONNECTED = {
    0x00: ("SEND_FIRST", 0, True),
    0x01: ("SEND_MIDDLE", 0, True),
    0x02: ("SEND_LAST", 0, True),
    0x03: ("SEND_LAST_IMM", IMMDT, True),
    0x04: ("SEND_ONLY", 0, True),
    0x05: ("SEND_ONLY_IMM", IMMDT, True),
    0x06: ("WRITE_FIRST", RETH, True),
    0x07: ("WRITE_MIDDLE", 0, True),
    0x08: ("WRITE_LAST", 0, True),
    0x09: ("WRITE_LAST_IMM", IMMDT, True),
    0x0A: ("WRITE_ONLY", RETH, True),
    0x0B: ("WRITE_ONLY_IMM", RETH + IMMDT, True),
}
RELIABLE = CONNECTED | {
    0x0C: ("READ_REQUEST", RETH, False),
    0x0D: ("READ_RESPONSE_FIRST", AETH, True),
    0x0E: ("READ_RESPONSE_MIDDLE", 0, True),
    0x0F: ("READ_RESPONSE_LAST", AETH, True),
    0x10: ("READ_RESPONSE_ONLY", AETH, True),
    0x11: ("ACKNOWLEDGE", AETH, False),
    0x12: ("ATOMIC_ACKNOWLEDGE", AETH + ATOMICACKETH, False),
    0x13: ("COMPARE_SWAP", ATOMICETH, False),
    0x14: ("FETCH_ADD", ATOMICETH, False),
    0x16: ("SEND_LAST_INV", IETH, True),
    0x17: ("SEND_ONLY_INV", IETH, True),
    0x1C: ("FLUSH", FETH + RETH, False),
    0x1D: ("ATOMIC_WRITE", RETH, True),
}
RESPONSES = range(0x0D, 0x13)
OPERATIONS = {
    RC: RELIABLE,
    UC: CONNECTED,
    UD: {0x04: ("SEND_ONLY", DETH, True), 0x05: ("SEND_ONLY_IMM", DETH + IMMDT, True)},
    XRC: {
        bits: (name, extra + (0 if bits in RESPONSES else XRCETH), payload)
        for bits, (name, extra, payload) in RELIABLE.items()
    },
}

# Communication management: attribute id to (name, offset of the local communication id or None, of the remote
# one)
CM_CLASS = 7
CM_MESSAGES = {
    0x10: ("REQ", 0, None),
    0x11: ("MRA", 0, 4),
    0x12: ("REJ", 0, 4),
    0x13: ("REP", 0, 4),
    0x14: ("RTU", 0, 4),
    0x15: ("DREQ", 0, 4),
    0x16: ("DREP", 0, 4),
    0x17: ("SIDR_REQ", None, None),
    0x18: ("SIDR_REP", None, None),
    0x19: ("LAP", 0, 4),
    0x1A: ("APR", 0, 4),
}
MAD_HEADER = struct.Struct(">BBBBHHQHHI")


def icrc(ip, ip_bytes, udp_and_more):
    """The invariant CRC over an IP header and what follows it (without the ICRC itself), as it stands in the
    packet."""
    head = bytearray(ip[:ip_bytes])
    if ip_bytes == 20:
        head[1] = head[8] = head[10] = head[11] = 0xFF
    else:
        head[0] |= 0x0F
        head[1:4] = b"\xff\xff\xff"
        head[7] = 0xFF
    udp_bth = bytearray(udp_and_more[:20])
    udp_bth[6] = udp_bth[7] = 0xFF
    udp_bth[12] = 0xFF
    crc = zlib.crc32(b"\xff" * 8 + head + udp_bth)
    return struct.pack("<I", zlib.crc32(udp_and_more[20:], crc))


@dataclasses.dataclass
class Cm:
    name: str
    local_id: int
    remote_id: int


class Malformed(Exception):
    """No further look into a packet makes sense."""


class Packet:
    """One Ethernet frame with UDP in it."""

    def __init__(self, number, time, frame):
        self.number = number
        self.time = time
        self.problems = []
        self.service = self.name = self.cm = None
        self.destination_qpn = self.psn = self.bth_opcode = 0
        self.payload_bytes = 0
        try:
            self._parse(frame)
        except Malformed as problem:
            self.problems.append(str(problem))

    @property
    def opcode(self):
        return f"{self.service} {self.name}" if self.service else "?"

    def _expect(self, good, problem):
        if not good:
            self.problems.append(problem)

    def _parse(self, frame):
        ethertype = int.from_bytes(frame[12:14], "big")
        ip = frame[14:]
        version = ip[0] >> 4 if ip else 0
        if ETHERTYPES.get(version) != ethertype:
            raise Malformed(f"Ethernet type {ethertype:#06x} with IP version {version}")
        ip_bytes, end = self._parse_ip(ip, version)
        if end > len(ip):
            raise Malformed(f"IP length {end}, {len(ip)} bytes captured")
        udp = ip[ip_bytes:end]
        if len(udp) < 8 + 12 + 4:
            raise Malformed(f"{len(udp)} bytes of UDP")
        source, destination, length = struct.unpack_from(">HHH", udp)
        self._expect(destination == ROCE_PORT, f"UDP destination port {destination}")
        self._expect(source >= 0xC000, f"UDP source port {source}")
        self._expect(length == len(udp), f"UDP length {length}, IP says {len(udp)}")
        found, right = udp[-4:], icrc(ip, ip_bytes, udp[:-4])
        self._expect(found == right, f"ICRC {found.hex()}, should be {right.hex()}")
        self._parse_bth(udp[8:-4])

    def _parse_ip(self, ip, version):
        """(length of the header, end of the datagram)"""
        if version == 4:
            self._expect(ip[0] == 0x45, "IPv4 options")
            total, _, fragment = struct.unpack_from(">HHH", ip, 2)
            self._expect(fragment == DONT_FRAGMENT, f"IPv4 flags and fragment offset {fragment:#06x}")
            self._expect(ip[9] == UDP, f"IP protocol {ip[9]}")
            self.source, self.destination = (ipaddress.ip_address(bytes(ip[at : at + 4])) for at in (12, 16))
            return 20, total
        self._expect(ip[6] == UDP, f"IPv6 next header {ip[6]}")
        self.source, self.destination = (ipaddress.ip_address(bytes(ip[at : at + 16])) for at in (8, 24))
        return 40, 40 + int.from_bytes(ip[4:6], "big")

    def _parse_bth(self, packet):
        opcode, flags, pkey = struct.unpack_from(">BBH", packet)
        self.bth_opcode = opcode
        self.destination_qpn = int.from_bytes(packet[5:8], "big")
        self.psn = int.from_bytes(packet[9:12], "big")
        service = SERVICES.get(opcode >> 5)
        operation = OPERATIONS.get(service, {}).get(opcode & 0x1F)
        if not operation:
            raise Malformed(f"opcode {opcode:#04x}")
        self.service = service
        self.name, extra, may_have_payload = operation
        pad = flags >> 4 & 3
        self.payload_bytes = len(packet) - 12 - extra - pad
        self._expect(flags & 0x0F == 0, f"transport version {flags & 0x0f}")
        self._expect(pkey == DEFAULT_PKEY, f"P_Key {pkey:#06x}")
        self._expect(packet[4] & 0x3F == 0 and packet[8] & 0x7F == 0, "reserved bits of the BTH")
        if self.payload_bytes < 0:
            raise Malformed(f"{len(packet)} bytes are too few for {self.opcode}")
        self._expect(len(packet) % 4 == 0, f"{len(packet)} bytes: not padded to a multiple of 4")
        self._expect(not any(packet[len(packet) - pad :] if pad else b""), "padding is not zero")
        self._expect(
            may_have_payload or self.payload_bytes == 0, f"{self.opcode} with {self.payload_bytes} bytes"
        )
        self._expect(self.payload_bytes <= MAX_PAYLOAD, f"{self.payload_bytes} bytes of payload")
        if service == UD and self.destination_qpn == 1:
            self._parse_mad(packet[12:])

    def _parse_mad(self, deth_and_mad):
        qkey, source_qpn = struct.unpack_from(">II", deth_and_mad)
        mad = deth_and_mad[DETH:]
        self._expect(qkey == GSI_QKEY, f"Q_Key {qkey:#x} on QP 1")
        self._expect(source_qpn == 1, f"MAD from QP {source_qpn}")
        if len(mad) != MAD_BYTES:
            raise Malformed(f"a MAD of {len(mad)} bytes")
        base, kind, version, method, _, _, _, attribute, _, modifier = MAD_HEADER.unpack_from(mad)
        self._expect(
            (base, kind, version, method) == (1, CM_CLASS, 2, 3) and modifier == 0,
            f"MAD header {mad[:24].hex()}",
        )
        if attribute not in CM_MESSAGES:
            raise Malformed(f"CM attribute {attribute:#06x}")
        name, local, remote = CM_MESSAGES[attribute]
        local_id, remote_id = (
            int.from_bytes(mad[24 + at : 28 + at], "big") if at is not None else 0 for at in (local, remote)
        )
        self.cm = Cm(name, local_id, remote_id)


def unknown_ids(packets):
    """Problems of CM messages that name a communication id which nobody has given."""
    given = {packet.cm.local_id for packet in packets if packet.cm}
    return [
        (packet, f"{packet.cm.name} for communication id {packet.cm.remote_id:#x}, which was never given")
        for packet in packets
        if packet.cm and packet.cm.remote_id and packet.cm.remote_id not in given
    ]


def _records(file):
    """(offset, record header, frame) of each whole record of a pcap file, from its first on."""
    while True:
        offset = file.tell()
        header = file.read(16)
        if len(header) < 16:
            return
        captured = struct.unpack_from("<I", header, 8)[0]
        frame = file.read(captured)
        if len(frame) < captured:
            return
        yield offset, header, frame


def holds(path, content):
    """Does a frame of a pcap file, which may still grow, hold these bytes?"""
    with open(path, "rb") as file:
        file.seek(PCAP_HEADER_BYTES)
        return any(content in frame for _, _, frame in _records(file))


def cut_before(path, content):
    """Ends a pcap file before the first frame that holds these bytes."""
    with open(path, "r+b") as file:
        file.seek(PCAP_HEADER_BYTES)
        for offset, _, frame in _records(file):
            if content in frame:
                file.truncate(offset)
                return


def read_pcap(path):
    """(number from 1, seconds since 1970, frame) of each frame of a pcap file of Ethernet."""
    with open(path, "rb") as file:
        head = file.read(PCAP_HEADER_BYTES)
        unit = {0xA1B2C3D4: 1e-6, 0xA1B23C4D: 1e-9}[struct.unpack_from("<I", head)[0]]
        if struct.unpack_from("<I", head, 20)[0] & 0xFFFF != 1:
            raise ValueError(f"{path} is not of Ethernet")
        for number, (_, header, frame) in enumerate(_records(file), 1):
            seconds, fraction, captured, original = struct.unpack("<IIII", header)
            if captured != original:
                raise ValueError(f"{path}: frame {number} was cut off")
            yield number, seconds + fraction * unit, frame
