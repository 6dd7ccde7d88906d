#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Sums the cases of all suites in meson's testlog.json: "N passed, N failed, N skipped".

A test that speaks TAP counts by its cases; any other counts as one. A TAP test that ended badly without
a failed case to show for it (crash, time limit, missing cases) counts as one failure more.
usage: count_cases.py testlog.json EXIT_STATUS_OF_MESON
"""
import json
import re
import sys

CASE = re.compile(r"^(ok|not ok)\b\s*\d*\s*(?:-\s*)?([^#]*)(?:#\s*(SKIP)\S*\s*(.*))?$", re.IGNORECASE)
GOOD = ("OK", "SKIP")


def tap_cases(text):
    """Yields (outcome, name, reason) of each case."""
    for line in text.splitlines():
        match = CASE.match(line)
        if not match:
            continue
        status, name, skip, reason = match.groups()
        if skip:
            yield "skipped", name.strip(), reason
        else:
            yield ("passed" if status.lower() == "ok" else "failed"), name.strip(), ""


def count(log):
    total = {"passed": 0, "failed": 0, "skipped": 0}
    remarks = []
    for line in log:
        test = json.loads(line)
        title = test["name"].split(" / ")[-1]
        cases = list(tap_cases(test.get("stdout", "")))
        for outcome, name, reason in cases:
            total[outcome] += 1
            if outcome == "skipped":
                remarks.append(f"skipped: {title}: {name}: {reason}")
            elif outcome == "failed":
                remarks.append(f"failed: {title}: {name}")
        result = test["result"]
        if not cases:
            total["passed" if result == "OK" else "skipped" if result == "SKIP" else "failed"] += 1
            if result != "OK":
                last = (test.get("stdout", "").strip().splitlines() or [""])[-1]
                remarks.append(f"{'skipped' if result == 'SKIP' else 'failed'}: {title}: {result} {last}")
        elif result not in GOOD and not any(outcome == "failed" for outcome, _, _ in cases):
            total["failed"] += 1
            remarks.append(f"failed: {title}: ended with {result}")
    return total, remarks


def main():
    try:
        with open(sys.argv[1], encoding="utf-8") as log:
            total, remarks = count(log)
    except FileNotFoundError:
        total, remarks = {"passed": 0, "failed": 1, "skipped": 0}, ["failed: no test log"]
    if int(sys.argv[2]) != 0 and not total["failed"]:
        total["failed"] += 1
        remarks.append(f"failed: meson test ended with {sys.argv[2]}")
    print("\n".join(remarks))
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


sys.exit(main())
