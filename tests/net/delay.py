#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A detour on which frames fall behind: what comes in at one interface goes out at another 1 to 4 ms later.

usage: delay.py IN:OUT...
"""
import heapq
import random
import select
import socket
import sys
import time

SHORTEST_S = 0.001
LONGEST_S = 0.004
ETH_P_ALL = 3
FRAME_BYTES = 65536
WAITING_FRAMES = 4096  # what comes on top is lost


def packet_socket(interface, protocol):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sock.bind((interface, protocol))
    return sock


def main():
    ways = {}
    for way in sys.argv[1:]:
        here, there = way.split(":")
        ways[packet_socket(here, ETH_P_ALL)] = packet_socket(there, 0)
    print("ready", flush=True)
    waiting, number = [], 0
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for sock in select.select(ways, [], [], timeout)[0]:
            frame, (_, _, kind, _, _) = sock.recvfrom(FRAME_BYTES)
            if kind != socket.PACKET_OUTGOING and len(waiting) < WAITING_FRAMES:
                number += 1
                due = time.monotonic() + random.uniform(SHORTEST_S, LONGEST_S)
                heapq.heappush(waiting, (due, number, ways[sock], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, out, frame = heapq.heappop(waiting)
            try:
                out.send(frame)
            except OSError:
                pass  # no room: lost


main()
