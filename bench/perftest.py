#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""perftest's figures on this library between two processes on the loopback device, as a markdown table: `make bench`.

Each figure is the median of some runs, with the lowest and the highest beside it.
usage: perftest.py BUILD_DIR [--runs N]
"""
import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "apps"))

import figures  # noqa: E402
import harness  # noqa: E402
import programs  # noqa: E402

LATENCY_SIZES = (8, 4096, 65536)
BANDWIDTH_SIZES = (4096, 65536, 1 << 20)


def rows():
    """(program, size in bytes, case, figure of an output, figure as text)"""
    for operation in programs.PERFTEST:
        for tool, sizes, figure, show, iterations in (
                ("lat", LATENCY_SIZES, figures.latency_us, figures.show_us, 20000),
                ("bw", BANDWIDTH_SIZES, figures.bandwidth_bytes, figures.show_rate, 10000)):
            for size in sizes if operation != "atomic" else (8,):
                program = f"ib_{operation}_{tool}"
                options = "" if operation == "atomic" else f"-s {size}"
                case = programs.perftest(program, options, iterations=iterations, limit_s=120)
                yield program, size, case, figure, show


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    harness.require_library(options.build)
    log_dir = harness.log_directory(options.build, "bench")
    failed = 0
    print(f"| program | bytes | median of {options.runs} | lowest | highest |\n| --- | --- | --- | --- | --- |")
    for program, size, case, figure, show in rows():
        outcomes = [harness.run_case(options.build, case, harness.endpoints()[0], log_dir) for _ in range(options.runs)]
        bad = [outcome for outcome in outcomes if outcome.status != "ok"]
        values = [figure(outcome.client_output, size) for outcome in outcomes if outcome.status == "ok"]
        if bad or None in values:
            failed += 1
            shown = (f"{bad[0].status}: {bad[0].reason}" if bad else "no figure", "", "")
        else:
            shown = (show(statistics.median(values)), show(min(values)), show(max(values)))
        print(f"| {program} | {size} | {' | '.join(shown)} |", flush=True)
    return 1 if failed else 0


sys.exit(main())
