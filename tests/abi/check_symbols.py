#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compares what a shared library exports with lists of name@@NODE (default version) and name@NODE entries.

Usage: check_symbols.py LIBRARY LIST... A line "at NODE..." goes before names without a node: each of them is
at all these nodes, at the first by default. Names what is missing, and what is exported without being listed.
Our own libraries share internal names through the version node VERBATIM_PRIVATE, which is allowed as long as
they keep to the prefix vb_. """
import subprocess
import sys


def exported(library):
    out = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--with-symbol-versions", library],
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=True,
    ).stdout
    symbols = (line.split() for line in out.splitlines())
    # A version node is itself an absolute symbol.
    return {fields[-1] for fields in symbols if fields[-2] != "A"}


def listed(paths):
    found = set()
    for path in paths:
        with open(path, encoding="utf-8") as f:
            lines = [line.strip() for line in f if line.strip()]
        nodes = []
        for line in lines:
            if line.startswith("at "):
                nodes = line.split()[1:]
            elif "@" in line:
                found.add(line)
            else:
                found |= {f"{line}@{'' if i else '@'}{node}" for i, node in enumerate(nodes)}
    return found


def is_own(symbol):
    return symbol.startswith("vb_") and symbol.endswith("@@VERBATIM_PRIVATE")


def main():
    library, *paths = sys.argv[1:]
    have, want = exported(library), listed(paths)
    missing = sorted(want - have)
    extra = sorted(s for s in have - want if not is_own(s))
    for symbol in missing:
        print(f"missing: {symbol}")
    for symbol in extra:
        print(f"extra: {symbol}")
    print(f"{len(want)} symbols wanted, {len(have)} exported: {len(missing)} missing, {len(extra)} extra")
    sys.exit(1 if missing or extra or not want else 0)


if __name__ == "__main__":
    main()
