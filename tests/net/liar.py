#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Says by ICMP of each message of the connection manager that comes to an address that nobody has the port,
as a host's kernel would.

usage: liar.py INTERFACE ADDRESS
"""
import socket
import struct
import sys

IPV4 = 0x0800
ETHERNET_BYTES = 14
IP_BYTES = 20
UDP_PORT = 4791
MAD_UDP_BYTES = 8 + 12 + 8 + 256 + 4
PORT_UNREACHABLE = (3, 3)


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def unreachable(packet):
    """The ICMP message that quotes an IPv4 packet."""
    return b"".join(
        (
            bytes(PORT_UNREACHABLE),
            struct.pack("!HI", checksum(bytes(PORT_UNREACHABLE) + b"\0" * 6 + packet), 0),
            packet,
        )
    )


def main():
    interface, address = sys.argv[1:]
    ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(IPV4))
    ear.bind((interface, IPV4))
    mouth = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    while True:
        packet = ear.recv(65536)[ETHERNET_BYTES:]
        _, dport, length = struct.unpack("!HHH", packet[IP_BYTES : IP_BYTES + 6])
        if packet[16:20] == socket.inet_aton(address) and dport == UDP_PORT and length == MAD_UDP_BYTES:
            mouth.sendto(unreachable(packet), (socket.inet_ntoa(packet[12:16]), 0))
            print("lied", flush=True)


if __name__ == "__main__":
    main()
