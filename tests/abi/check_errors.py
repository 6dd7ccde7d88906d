#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Checks that each error that a man page promises is provoked once by a conformance test.

Usage: check_errors.py MAN3_DIRECTORY TESTS_DIRECTORY PATTERN... PATTERN: which pages, as "ibv_*.3". A test
provokes an error where a macro takes the errno value and the call (assert_errno(EINVAL, ibv_modify_qp(...))),
or the call and the value (CHECK_EQ(ibv_modify_qp(...), EINVAL)). One of the calls that a paragraph of RETURN
VALUE speaks of is enough for the errors that it lists, and one of the values where it lists several at once,
as EMFILE and ENFILE. """
import pathlib
import re
import sys

PROVOKED = re.compile(
    r"\b\w+\(\s*-?(?P<err>E[A-Z0-9]+),\s*(?:\(int\))?(?:\w+ = )?(?P<call>\w+)\("
    r"|\b\w+\(-?(?P<call2>\w+)\([^;]*?\), -?(?P<err2>E[A-Z][A-Z0-9]+)\)"
)
ERROR = re.compile(r"^\.TP\n(?:\.B |\\fB)(.*?)(?:\\fR)?\n", re.M)


def section(text, name):
    found = re.search(rf'^\.SH "?{name}"?\n(.*?)(?=^\.SH )', text, re.S | re.M)
    return found.group(1) if found else ""


def promises(text):
    """(calls, errors) for each entry of a page's list of errors."""
    names = re.findall(r"\w+", section(text, "NAME").split("\\-")[0])
    rest = list(names)  # what a paragraph that names no call ("the others") is about
    calls = names

    def read(paragraph):
        nonlocal calls, rest
        named = [name for name in names if re.search(rf"\\f[BI]{name}\\f", paragraph)]
        rest = [name for name in rest if name not in named]
        calls = named or rest or names

    parts = ERROR.split(section(text, "RETURN VALUE"))
    read(parts[0])
    for errors, explanation in zip(parts[1::2], parts[2::2]):
        values = re.findall(r"\bE[A-Z][A-Z0-9]+\b", errors)
        if values:
            yield calls, values
        if ".PP" in explanation:
            read(explanation.split(".PP", 1)[1])


def provoked(tests):
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((tests / "conformance").rglob("*.[ch]")))
    return {(m["call"] or m["call2"], m["err"] or m["err2"]) for m in PROVOKED.finditer(text)}


def main():
    pages, tests = map(pathlib.Path, sys.argv[1:3])
    done = provoked(tests)
    count = missing = 0
    for page in sorted(path for pattern in sys.argv[3:] for path in pages.glob(pattern)):
        for calls, errors in promises(page.read_text(encoding="utf-8")):
            count += 1
            if not any((call, error) in done for call in calls for error in errors):
                missing += 1
                print(f"{page.name}: no test provokes {' or '.join(errors)} of {', '.join(calls)}")
    print(f"{count} errors are promised, {missing} provoked by no test")
    sys.exit(1 if missing or not count else 0)


if __name__ == "__main__":
    main()
