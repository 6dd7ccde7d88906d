#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lines and branches of src/ that tests ran, as a Markdown table with two columns for each build directory.

    meson setup build-cov -Db_coverage=true && ninja -C build-cov && meson test -C build-cov --suite unit
    scripts/coverage.py build-cov

A source file may be part of several objects: what ran in any of them is covered. Objects that never ran count
too, and what is there in one build directory counts for all of them, so that columns compare.
A branch is told by its place on its line; copies of an inline function count as one. Branches that only
exceptions and cancelled threads take are left out. Counts add up over test runs: delete *.gcda to begin anew.
usage: coverage.py BUILD_DIR...
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

GCOV = ["gcov", "--json-format", "--branch-probabilities", "--stdout"]
OBJECTS_AT_ONCE = 8
FINE = ("cannot open data file, assuming not executed", "no functions found")


def objects(build):
    """What each object counted or, if it never ran, the compiler's notes about it."""
    for notes in sorted(pathlib.Path(build).resolve().rglob("*.gcno")):
        counts = notes.with_suffix(".gcda")
        yield str(counts if counts.exists() else notes)


def gcov(paths):
    """What gcov says about each object."""
    done = subprocess.run([*GCOV, *paths], capture_output=True, text=True, check=True)
    for line in done.stderr.splitlines():
        if not line.endswith(FINE):
            print(line, file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line]


def taken(branches):
    """Whether each branch was taken. A call that may throw has two beside each other, no decision."""
    decisions = list(branches)
    for place in reversed(range(len(branches))):
        if branches[place]["throw"]:
            first = place - 1 if place and branches[place - 1]["fallthrough"] else place
            del decisions[first : first + 2]
    return tuple(branch["count"] > 0 for branch in decisions)


class Coverage:
    """Of one build directory."""

    def __init__(self, build):
        with open(os.path.join(build, "meson-info", "meson-info.json"), encoding="utf-8") as file:
            self.sources = os.path.join(json.load(file)["directories"]["source"], "src") + os.sep
        self.lines = {}  # (file, line): whether it ran
        self.branches = collections.defaultdict(set)  # (file, line): what objects say of its branches

    def add(self, said):
        """What gcov says about an object."""
        for file in said["files"]:
            path = os.path.normpath(os.path.join(said["current_working_directory"], file["file"]))
            if path.startswith(self.sources):
                for line in file["lines"]:
                    self._add_line((path[len(self.sources) :], line["line_number"]), line)

    def _add_line(self, place, line):
        self.lines[place] = self.lines.get(place, False) or line["count"] > 0
        if branches := taken(line["branches"]):
            self.branches[place].add(branches)


def measure(build):
    coverage = Coverage(build)
    paths = list(objects(build))
    groups = [paths[first : first + OBJECTS_AT_ONCE] for first in range(0, len(paths), OBJECTS_AT_ONCE)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for group in pool.map(gcov, groups):
            for said in group:
                coverage.add(said)
    return coverage


def fold(lists, count):
    """The branches of a line, of whichever copy they are."""
    return [any(one for ran in lists for one in ran[place::count]) for place in range(count)]


def folder_of(path):
    return path.split("/")[0] if "/" in path else "."


def count_lines(coverages):
    """For each folder the number of lines, and how many of them each build ran."""
    sums = collections.defaultdict(lambda: [0] * (1 + len(coverages)))
    for place in set().union(*(coverage.lines for coverage in coverages)):
        row = sums[folder_of(place[0])]
        row[0] += 1
        for column, coverage in enumerate(coverages, 1):
            row[column] += coverage.lines.get(place, False)
    return sums


def count_branches(coverages):
    """The same for branches."""
    sums = collections.defaultdict(lambda: [0] * (1 + len(coverages)))
    for place in set().union(*(coverage.branches for coverage in coverages)):
        lists = [coverage.branches.get(place, ()) for coverage in coverages]
        branches = min(len(ran) for of_build in lists for ran in of_build)
        row = sums[folder_of(place[0])]
        row[0] += branches
        for column, of_build in enumerate(lists, 1):
            row[column] += sum(fold(of_build, branches))
    return sums


def percent(part, whole):
    return f"{100 * part / whole:.1f}" if whole else ""


def row(name, lines, branches):
    cells = [name, f"{lines[0]:,}", f"{branches[0]:,}"]
    for ran, gone in zip(lines[1:], branches[1:]):
        cells += [percent(ran, lines[0]), percent(gone, branches[0])]
    return "| " + " | ".join(cells) + " |"


def total(sums):
    return [sum(column) for column in zip(*sums.values())]


def table(names, lines, branches):
    none = [0] * (1 + len(names))
    yield "| src/ | lines | branches |" + "".join(f" {name}: lines % | branches % |" for name in names)
    yield "|---|" + "---:|" * (2 + 2 * len(names))
    for folder in sorted(lines):
        yield row(folder, lines[folder], branches.get(folder, none))
    yield row("total", total(lines), total(branches))


def main():
    builds = sys.argv[1:]
    if not builds or builds[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    coverages = [measure(build) for build in builds]
    if not all(coverage.lines for coverage in coverages):
        print("coverage.py: all of them are to be built with -Db_coverage=true", file=sys.stderr)
        return 2
    names = [os.path.basename(os.path.normpath(build)) for build in builds]
    print("\n".join(table(names, count_lines(coverages), count_branches(coverages))))
    return 0


sys.exit(main())
