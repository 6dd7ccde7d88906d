#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Checks docs/compat.md: each public symbol and each inline verb has exactly one row there, and each row a
state and names that exist. Each program that has a page among librdmacm's is named there, too.

Usage: check_compat.py COMPAT_MD INCLUDE_DIRECTORY PAGES SYMBOL_LIST...
"""
import pathlib
import re
import sys

STATES = ("works", "limits", "refused")
INLINE = re.compile(r"static inline[^;{]*?\b((?:ibv|rdma)_\w+)\(")
# What a table of calls is not about: names that only headers use.
HELPERS = re.compile(r"_$")


def rows(path):
    """(line number, names, state, note) of each row, its first cell names in backticks, of the tables of
    symbols."""
    symbols = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        symbols = bool(cells) and (symbols or cells[0] == "symbols")
        if symbols and len(cells) == 3 and cells[0].startswith("`"):
            yield number, cells[0].replace("`", "").split(), cells[1], cells[2]


def exported(lists):
    return {
        line.split("@")[0]
        for path in lists
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.startswith("at ")
    }


def inline_verbs(include):
    found = set()
    for header in sorted([*(include / "infiniband").rglob("*.h"), *(include / "rdma").rglob("*.h")]):
        names = INLINE.findall(header.read_text(encoding="utf-8"))
        found |= {name for name in names if not HELPERS.search(name)}
    return found


def programs(pages):
    """The programs of librdmacm's pages."""
    return re.findall(r"^(\w+)\.1$", pages.read_text(encoding="utf-8").split("## librdmacm", 1)[1], re.M)


def problems(document, include, pages, lists):
    wanted = exported(lists) | inline_verbs(include)
    seen = {}
    for number, names, state, note in rows(document):
        if state not in STATES:
            yield f"line {number}: state {state!r} is none of {', '.join(STATES)}"
        if state != "works" and not note:
            yield f"line {number}: {state} without a note"
        for name in names:
            if name in seen:
                yield f"line {number}: {name} is listed in line {seen[name]} already"
            elif name not in wanted:
                yield f"line {number}: no such symbol or inline verb: {name}"
            seen[name] = number
    for name in sorted(wanted - seen.keys()):
        yield f"not listed: {name}"
    for name in programs(pages):
        if f"`{name}`" not in document.read_text(encoding="utf-8"):
            yield f"no word on the program {name}"


def main():
    document, include, pages, *lists = sys.argv[1:]
    found = list(problems(*map(pathlib.Path, (document, include, pages)), lists))
    for line in found:
        print(line)
    print(
        f"{len(exported(lists))} symbols, {len(inline_verbs(pathlib.Path(include)))} inline verbs: {len(found)} problems"
    )
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
