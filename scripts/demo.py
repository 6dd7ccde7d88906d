#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's unmodified RDMA programs between two processes on this library, and one line about each: `make
demo`.

The figures are one run's, on this machine, with whatever else it is doing; `make bench` measures with more
care. usage: demo.py BUILD_DIR """
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "apps"))

import figures  # noqa: E402
import harness  # noqa: E402
import programs  # noqa: E402


def latency(size, how="one way"):
    return lambda outcome: f"{figures.show_us(figures.latency_us(outcome.client_output, size))} {how}"


def bandwidth(size):
    return lambda outcome: figures.show_rate(figures.bandwidth_bytes(outcome.client_output, size))


def pingpong(outcome):
    return f"{figures.show_us(figures.pingpong_us(outcome.client_output))} one way"


def said(text):
    return lambda outcome: text


# (endpoint, case, what it is, how to say the result)
ROWS = [
    (
        "lo",
        programs.rping("-C 1000 -S 4096"),
        "1000 × 4 KiB through RDMA READ and WRITE",
        said("every byte compared"),
    ),
    ("eth", programs.rping("-C 1000 -S 4096"), "the same", said("every byte compared")),
    ("lo", programs.pingpong("ibv_rc_pingpong", "-n 10000"), "10000 × 4 KiB there and back", pingpong),
    ("lo", programs.pingpong("ibv_rc_pingpong", "-e -n 10000"), "the same, asleep in between", pingpong),
    ("lo", programs.pingpong("ibv_srq_pingpong"), "16 QPs on a shared receive queue", pingpong),
    ("lo", programs.ucmatose_case("-c 100"), "100 connections", said("all connected and closed")),
    ("lo", programs.perftest("ib_write_lat", iterations=10000), "2 B writes", latency(2)),
    ("lo", programs.perftest("ib_send_lat", iterations=10000), "2 B sends", latency(2)),
    ("lo", programs.perftest("ib_read_lat", iterations=10000), "2 B reads", latency(2, "there and back")),
    (
        "lo",
        programs.perftest("ib_atomic_lat", iterations=10000),
        "8 B fetch-and-add",
        latency(8, "there and back"),
    ),
    ("lo", programs.perftest("ib_write_bw", iterations=5000), "64 KiB writes", bandwidth(65536)),
    ("lo", programs.perftest("ib_send_bw", iterations=5000), "64 KiB sends", bandwidth(65536)),
    ("lo", programs.perftest("ib_read_bw", iterations=5000), "64 KiB reads", bandwidth(65536)),
    (
        "eth",
        programs.perftest("ib_send_lat", "-R", iterations=10000),
        "2 B sends, set up by rdma_cm",
        latency(2),
    ),
    ("eth", programs.perftest("ib_write_bw", iterations=5000), "64 KiB writes", bandwidth(65536)),
]


def main():
    build = sys.argv[1]
    harness.require_library(build)
    log_dir = harness.log_directory(build, "demo")
    found = {endpoint.label: endpoint for endpoint in harness.endpoints()}
    real = len(os.listdir("/sys/class/infiniband")) if os.path.isdir("/sys/class/infiniband") else 0
    print(
        f"\nDebian's RDMA programs, unmodified, two processes each; RDMA devices of the kernel: {real or 'none'}\n"
    )
    print(f"{'device':<10} {'program':<34} {'what it does':<42} result")
    failed = 0
    for label, case, what, result in ROWS:
        if label not in found:
            print(f"{'-':<10} {case.name:<34} {what:<42} skipped: no Ethernet interface with an IPv4 address")
            continue
        outcome = harness.run_case(build, case, found[label], log_dir)
        failed += outcome.status == "FAIL"
        text = result(outcome) if outcome.status == "ok" else f"{outcome.status}: {outcome.reason}"
        print(f"{found[label].dev:<10} {case.name:<34} {what:<42} {text}", flush=True)
    print(
        f"\n{failed} of {len(ROWS)} failed; logs in {log_dir}"
        if failed
        else f"\nAll ran. Yours: {build}/verbatim run PROGRAM"
    )
    return 1 if failed else 0


sys.exit(main())
