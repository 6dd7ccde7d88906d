#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Sums the cases of all suites in meson's testlog.json: "N passed, N failed, N skipped".

A test that speaks TAP counts by its cases; any other counts as one. A TAP test that ended badly without
a failed case to show for it (crash, time limit, missing cases) counts as one failure more.
Before the sum come the skipped cases and then the failed ones, each with the last of what was said about it, so that
the end of a long output still names what failed.
usage: count_cases.py testlog.json EXIT_STATUS_OF_MESON
"""
import dataclasses
import json
import re
import sys

CASE = re.compile(r"^(ok|not ok)\b\s*\d*\s*(?:-\s*)?([^#]*)(?:#\s*(SKIP)\S*\s*(.*))?$", re.IGNORECASE)
PLAN = re.compile(r"^1\.\.\d+")
GOOD = ("OK", "SKIP")
SAID_LINES = 12
MESONS_OWN = "(test program exited with status code"


@dataclasses.dataclass
class Outcome:
    status: str                       # "passed", "failed", "skipped"
    name: str
    reason: str = ""                  # to skip it
    said: list = dataclasses.field(default_factory=list)   # the lines behind its own


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
    own = last_lines(case.said)
    naming = [line for line in errors if case.name in line]
    return last_lines(naming or errors, SAID_LINES - len(own)) + own if len(own) < SAID_LINES else own


def outcomes(test):
    """The cases of one test, its bad end among them if no case tells of it."""
    result, said = test["result"], test.get("stdout", "").splitlines()
    cases = tap_cases(test.get("stdout", ""))
    if not cases:
        status = "passed" if result == "OK" else "skipped" if result == "SKIP" else "failed"
        cases.append(Outcome(status, result, said[-1] if said else "", said))
    elif result not in GOOD and not any(case.status == "failed" for case in cases):
        cases.append(Outcome("failed", f"ended with {result}", "", said))
    return cases


def count(log):
    """The sum, and the remarks about skipped and failed cases."""
    total, skipped, failed = {"passed": 0, "failed": 0, "skipped": 0}, [], []
    for line in log:
        test = json.loads(line)
        title = test["name"].split(" / ")[-1]
        errors = [line for line in test.get("stderr", "").splitlines() if not line.startswith(MESONS_OWN)]
        for case in outcomes(test):
            total[case.status] += 1
            if case.status == "skipped":
                skipped.append(f"skipped: {title}: {case.name}: {case.reason}")
            elif case.status == "failed":
                failed.append(f"failed: {title}: {case.name}")
                failed += [f"    {line}" for line in said_about(case, errors)]
    return total, skipped + failed


def main():
    try:
        with open(sys.argv[1], encoding="utf-8") as log:
            total, remarks = count(log)
    except FileNotFoundError:
        total, remarks = {"passed": 0, "failed": 1, "skipped": 0}, ["failed: no test log"]
    if int(sys.argv[2]) != 0 and not total["failed"]:
        total["failed"] += 1
        remarks.append(f"failed: meson test ended with {sys.argv[2]}")
    for remark in remarks:
        print(remark)
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


sys.exit(main())
