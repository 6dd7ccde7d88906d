#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Checks that some test of our own makes each call in docs/compat.md.

Usage: check_tested.py COMPAT_MD TESTS_DIRECTORY Looks for the name in the sources of the conformance and unit
tests: a verb that nobody calls is found, what the call shows is not judged. """
import pathlib
import re
import sys

from check_compat import rows

FOLDERS = ("conformance", "unit", "net")


def main():
    document, tests = map(pathlib.Path, sys.argv[1:])
    text = "".join(
        path.read_text(encoding="utf-8") for folder in FOLDERS for path in sorted((tests / folder).rglob("*.[ch]"))
    )
    called = set(re.findall(r"\w+", text))
    names = [name for _, row, _, _ in rows(document) for name in row]
    found = [name for name in names if name not in called]
    for name in found:
        print(f"no test calls {name}")
    print(f"{len(names)} calls, {len(found)} without a test")
    sys.exit(1 if found or not names else 0)


if __name__ == "__main__":
    main()
