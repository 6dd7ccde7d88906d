#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Sums the cases of all suites in logs of Meson's tests: "N passed, N failed, N skipped".

A test that speaks TAP counts by its cases; any other counts as one. A TAP test that ended badly without a
failed case to show for it (crash, time limit, missing cases) counts as one failure more. Before the sum come
the skipped cases with their reasons and then the failed ones, each with the last of what was said about it
and how to run it again, so that the end of a long output still names what failed. usage: count_cases.py
{LOG.json EXIT_STATUS_OF_MESON}... """
import dataclasses
import json
import os
import re
import sys

CASE = re.compile(r"^(ok|not ok)\b\s*\d*\s*(?:-\s*)?([^#]*)(?:#\s*(SKIP)\S*\s*(.*))?$", re.IGNORECASE)
TITLE = re.compile(r"[^ :]+$")  # of "project:suite / title", and of Meson 1.12's "suite - project:title"
PLAN = re.compile(r"^1\.\.\d+")
GOOD = ("OK", "SKIP")
SAID_LINES = 12
MESONS_OWN = "(test program exited with status code"
# How a case is run again, and what its seed was: tests may say so themselves.
AGAIN, SEED = re.compile(r"^# again: "), re.compile(r"^# seed\b")
# A case of cmocka that passes without having done anything.
SKIPPED = re.compile(r"^# (.*): skipped: (.*)$", re.MULTILINE)


@dataclasses.dataclass
class Outcome:
    status: str  # "passed", "failed", "skipped"
    name: str
    reason: str = ""  # to skip it
    said: list = dataclasses.field(default_factory=list)  # the lines behind its own


def tap_cases(text):
    """Each case with the lines that follow it, up to the next one."""
    cases = []
    for line in text.splitlines():
        if match := CASE.match(line):
            status, name, skip, reason = match.groups()
            status = "skipped" if skip else "passed" if status.lower() == "ok" else "failed"
            cases.append(Outcome(status, name.strip(), reason or ""))
        elif cases and not PLAN.match(line):
            cases[-1].said.append(line)
    return cases


def last_lines(lines, limit=SAID_LINES):
    return [line.rstrip() for line in lines if line.strip(" #\t")][-limit:]


def said_about(case, errors):
    """What its own lines and standard error say about a case: the lines with its name, if there are any."""
    own, errors = (
        [line for line in lines if not AGAIN.match(line) and not SEED.match(line)]
        for lines in (case.said, errors)
    )
    own = last_lines(own)
    naming = [line for line in errors if case.name in line]
    return last_lines(naming or errors, SAID_LINES - len(own)) + own if len(own) < SAID_LINES else own


def outcomes(test):
    """The cases of one test, its bad end among them if no case tells of it."""
    result, said = test["result"], test.get("stdout", "").splitlines()
    cases = tap_cases(test.get("stdout", ""))
    reasons = dict(SKIPPED.findall(test.get("stdout", "") + test.get("stderr", "")))
    for case in cases:
        if case.status == "passed" and case.name in reasons:
            case.status, case.reason = "skipped", reasons[case.name]
    if not cases:
        status = "passed" if result == "OK" else "skipped" if result == "SKIP" else "failed"
        cases.append(Outcome(status, result, said[-1] if said else "", said))
    elif result not in GOOD and not any(case.status == "failed" for case in cases):
        cases.append(Outcome("failed", f"ended with {result}", "", said))
    return cases


def again(title, case, errors):
    """How to run a failed case again."""
    lines = case.said + ([line for line in errors if case.name in line] or errors)
    build = os.path.dirname(os.path.dirname(sys.argv[1]))
    told = [line for line in lines if AGAIN.match(line)] or [f"# again: meson test -C {build} {title}"]
    return told + [line for line in lines if SEED.match(line)]


@dataclasses.dataclass
class Sum:
    total: dict = dataclasses.field(default_factory=lambda: {"passed": 0, "failed": 0, "skipped": 0})
    skipped: list = dataclasses.field(default_factory=list)
    failed: list = dataclasses.field(default_factory=list)

    def fail(self, remark):
        self.total["failed"] += 1
        self.failed.append(f"failed: {remark}")

    def add_test(self, test):
        title = TITLE.search(test["name"]).group()
        said = set(test.get("stdout", "").splitlines())
        errors = [
            line
            for line in test.get("stderr", "").splitlines()
            if line not in said and not line.startswith(MESONS_OWN)
        ]
        for case in outcomes(test):
            if case.status == "failed":
                self.fail(f"{title}: {case.name}")
                self.failed += [
                    f"    {line}" for line in said_about(case, errors) + again(title, case, errors)
                ]
                continue
            self.total[case.status] += 1
            if case.status == "skipped":
                self.skipped.append(f"skipped: {title}: {case.name}: {case.reason}")

    def add_log(self, path, status):
        before = self.total["failed"]
        try:
            with open(path, encoding="utf-8") as log:
                for line in log:
                    self.add_test(json.loads(line))
        except FileNotFoundError:
            self.fail(f"no test log {path}")
        if status != 0 and self.total["failed"] == before:
            self.fail(f"meson test ended with {status}")


def main():
    found = Sum()
    for path, status in zip(sys.argv[1::2], sys.argv[2::2]):
        found.add_log(path, int(status))
    total = found.total
    for remark in found.skipped + found.failed:
        print(remark)
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


sys.exit(main())
