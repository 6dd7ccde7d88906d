#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Measures this library beside its peers, which take turns with it in the same run, and says which goals are
reached.

usage: bench.py BUILD_DIR [PART...] [--rounds N] [--quick] [--publish] [--accept] [--beside OTHER_BUILD_DIR]

Parts: local, wire, loss, scale, programs, lab, guests (emulated), instructions, lines, curves; all of them
without a name. Tables go to standard output, every single figure to BUILD_DIR/bench/figures.json, all tables
and plots to figures.md and *.svg there. Goals are not tests: the exit status tells only whether all could be
measured. """
import argparse
import os
import pathlib
import shutil
import sys

import paths
import curves
import guests
import harness
import hosts
import instructions
import lab
import lines
import report
import rows
import tools
import unmodified
from experiment import HEADING, Failed, beside_other_build, line, measure

ROUNDS = 5
DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "bench"
NEED_NETWORK = ("wire", "loss", "programs", "guests", "curves")


def experiments(name, bench, network):
    if name == "programs":
        return unmodified.experiments(bench, network)
    if name == "guests":
        return guests.experiments(bench.tools, network)
    return rows.PARTS[name](bench, network)


def rounds_of(options):
    return 1 if options.quick else options.rounds


def show_rows(of, rounds):
    """Measures and prints; the results."""
    found = []
    print(HEADING)
    for experiment in of:
        for result in measure(experiment, rounds):
            print(line(result), flush=True)
            found.append(result)
    return found


def compare(options):
    """The two builds in turns. Nothing is kept. False: something failed."""
    good = True
    logs = [harness.log_directory(build, "bench") for build in (options.build, options.beside)]
    ours = rows.Bench(tools.Tools(options.build, logs[0]))
    other = rows.Bench(tools.Tools(options.beside, logs[1], options.build))
    for name in options.parts:
        print(f"\n## {name}, beside {options.beside}\n", flush=True)
        with hosts.Network() as network, hosts.Network() as other_network:
            pairs = zip(experiments(name, ours, network), experiments(name, other, other_network))
            found = show_rows((beside_other_build(*pair) for pair in pairs), rounds_of(options))
        good &= not any("failed" in result for result in found)
    return good


class Run:
    """One call of `make bench`."""

    def __init__(self, options):
        self.options = options
        self.rounds = rounds_of(options)
        self.tools = tools.Tools(options.build, harness.log_directory(options.build, "bench"))
        self.bench = rows.Bench(self.tools)
        self.about = {"load": report.load(), "machine": report.machine(options.build)}
        self.failed = False

    def part(self, name):
        print(f"\n## {name}\n", flush=True)
        if name == "instructions":
            found = instructions.measure(self.tools, self.options.accept)
        elif name == "lines":
            found = lines.measure(self.tools)
        elif name == "lab":
            found = {"rows": self.rows(lab.experiments(self.tools))}
        else:
            with hosts.Network() as network:
                found = self.measure(name, network)
        self.failed |= bool(found.get("failed"))
        report.add_part(self.options.build, name, self.about, found)

    def measure(self, name, network):
        if name == "curves":
            return curves.measure(self.bench, network, self.rounds)
        about = unmodified.placement(self.bench) if name == "programs" else {}
        return {**about, "rows": self.rows(experiments(name, self.bench, network))}

    def rows(self, of):
        found = show_rows(of, self.rounds)
        self.failed |= any("failed" in result for result in found)
        return found


PARTS = (*rows.PARTS, "programs", "lab", "guests", "instructions", "lines", "curves")
QUICK = ("local", "wire", "scale", "instructions", "lines")
COMPARED = ("local", "wire", "scale", "programs")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build")
    parser.add_argument("parts", nargs="*", metavar="part", choices=[[], *PARTS])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--quick", action="store_true", help=f"one round; unless parts are named, of {', '.join(QUICK)}"
    )
    parser.add_argument(
        "--publish", action="store_true", help="copies figures.md and the plots to docs/bench"
    )
    parser.add_argument("--accept", action="store_true", help="writes bench/instructions.json anew")
    parser.add_argument(
        "--beside",
        metavar="BUILD",
        help=f"in turns with another build of the library, and nothing else; parts: {', '.join(COMPARED)}",
    )
    options = parser.parse_intermixed_args()
    options.build = os.path.abspath(options.build)
    if options.beside:
        options.beside = os.path.abspath(options.beside)
        options.parts = options.parts or COMPARED[:-1]
        if unknown := set(options.parts).difference(COMPARED):
            parser.error(f"{' '.join(sorted(unknown))}: not with --beside")
    options.parts = options.parts or (QUICK if options.quick else PARTS)
    return options


def main():
    options = parse()
    harness.require_library(options.build)
    if os.geteuid() and any(part in NEED_NETWORK for part in options.parts):
        harness.isolate()  # root in a user namespace
    if options.beside:
        harness.require_library(options.beside)
        return 0 if compare(options) else 1
    run = Run(options)
    if run.about["load"] > report.BUSY:
        print(f"THIS MACHINE IS BUSY (load {run.about['load']:.1f}): its times mean little.")
    if under := run.about["machine"]["settings"]:
        print(f"MEASURED UNDER SETTINGS OF THE ENVIRONMENT: {report.show_settings(under)}")
    for part in options.parts:
        try:
            run.part(part)
        except hosts.NotHere as reason:
            print(f"{part} is not measured: {reason}")
        except Failed as reason:
            run.failed = True
            print(f"{part} FAILED: {reason}")
    parts, directory = report.read(options.build), report.directory(options.build)
    plots = {"curves": curves.draw(parts, directory), "programs": unmodified.draw(parts, directory)}
    text = report.write_text(options.build, plots)
    if options.publish:
        DOCS.mkdir(exist_ok=True)
        for path in (text, *plots["curves"], *plots["programs"]):
            shutil.copy(path, DOCS)
    return 1 if run.failed else 0


sys.exit(main())
