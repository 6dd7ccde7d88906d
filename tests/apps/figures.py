# SPDX-License-Identifier: BSD-2-Clause
"""The figures in the output of perftest and of the ping-pong programs."""
import re

MIB = 1 << 20


def latency_us(output, size):
    """perftest's typical latency in µs for a size, or None: one way for SEND and WRITE, there and back for
    others."""
    row = re.search(rf"^ *{size} +\d+ +[\d.]+ +[\d.]+ +([\d.]+)", output, re.MULTILINE)
    return float(row.group(1)) if row else None


def bandwidth_bytes(output, size):
    """perftest's average bandwidth in bytes per second for a message size, or None."""
    row = re.search(rf"^ *{size} +\d+ +[\d.]+ +([\d.]+)", output, re.MULTILINE)
    return float(row.group(1)) * MIB if row else None


def message_rate(output, size):
    """perftest's messages per second for a message size, or None."""
    row = re.search(rf"^ *{size} +\d+ +[\d.]+ +[\d.]+\s+([\d.]+)", output, re.MULTILINE)
    return float(row.group(1)) * 1e6 if row else None


def pingpong_us(output):
    """Half a round trip of ibv_*_pingpong in µs, or None."""
    line = re.search(r"= ([\d.]+) usec/iter", output)
    return float(line.group(1)) / 2 if line else None


def show_us(value):
    return f"{value:.2f} µs" if value is not None else "no figure"


def show_rate(value):
    if value is None:
        return "no figure"
    return f"{value / 1e9:.2f} GB/s" if value >= 1e8 else f"{value / 1e6:.2f} MB/s"
