#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""perftest's figures between two network namespaces, joined by a veth pair or by a switch that loses packets, as a markdown
table: part of `make bench`.

Each figure is the median of some runs, with the lowest and the highest beside it.
usage: network.py BUILD_DIR [--runs N]
"""
import argparse
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "net"))

import hosts  # noqa: E402
import paths  # noqa: E402, F401
import figures  # noqa: E402
import harness  # noqa: E402
import programs  # noqa: E402

MTUS = (1500, 4200)
LOSSES = (0.0, 0.001, 0.01, 0.05)
LIMIT_S = 120.0


def cases():
    """(case, size in bytes, figure of an output, figure as text)"""
    for operation in ("send", "write", "read"):
        yield programs.perftest(f"ib_{operation}_lat", "-s 8", iterations=5000, limit_s=LIMIT_S), 8, figures.latency_us, \
            figures.show_us
    for operation in ("send", "write", "read"):
        yield programs.perftest(f"ib_{operation}_bw", "-s 65536", iterations=5000, limit_s=LIMIT_S), 65536, \
            figures.bandwidth_bytes, figures.show_rate


class Table:
    def __init__(self, options):
        self.options = options
        self.log_dir = harness.log_directory(options.build, "bench-network")
        self.failed = 0
        print(f"| link | program | bytes | median of {options.runs} | lowest | highest |\n| --- | --- | --- | --- | --- | --- |")

    def row(self, link, ends, case, size, figure, show):
        """Adds a row; returns the median, None if there is none."""
        outcomes = [harness.run_case(self.options.build, case, ends[0], self.log_dir, ends[1])
                    for _ in range(self.options.runs)]
        bad = [outcome for outcome in outcomes if outcome.status != "ok"]
        values = [figure(outcome.client_output, size) for outcome in outcomes if outcome.status == "ok"]
        program = case.client.split()[0]
        if bad or None in values:
            self.failed += 1
            print(f"| {link} | {program} | {size} | {f'{bad[0].status}: {bad[0].reason}' if bad else 'no figure'} | | |")
            return None
        shown = (show(value) for value in (statistics.median(values), min(values), max(values)))
        print(f"| {link} | {program} | {size} | {' | '.join(shown)} |", flush=True)
        return statistics.median(values)


def direct(table, mtu):
    with hosts.Network() as network:
        a, b = network.host("a"), network.host("b")
        network.join(a, b, mtu=mtu)
        ends = a.endpoint(table.options.build), b.endpoint(table.options.build)
        for case, size, figure, show in cases():
            table.row(f"veth, MTU {mtu}", ends, case, size, figure, show)


def lossy(table, mtu):
    """One write bandwidth per share of loss; the switch gets single packets, never batches."""
    case = programs.perftest("ib_write_bw", "-s 65536", iterations=5000, limit_s=LIMIT_S)
    with hosts.Network() as network:
        a, b = network.host("a"), network.host("b")
        switch = network.join_by_switch(a, b, mtu=mtu)
        ends = a.endpoint(table.options.build), b.endpoint(table.options.build)
        for loss in LOSSES:
            switch.misbehave(loss=loss)
            table.row(f"switch, MTU {mtu}, {loss * 100:g} % lost", ends, case, 65536, figures.bandwidth_bytes,
                      figures.show_rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    harness.require_library(options.build)
    try:
        hosts.enter_user_namespace()
        table = Table(options)
        for mtu in MTUS:
            direct(table, mtu)
            lossy(table, mtu)
    except hosts.NotHere as reason:
        print(f"not measured: {reason}")
        return 0
    return 1 if table.failed else 0


sys.exit(main())
