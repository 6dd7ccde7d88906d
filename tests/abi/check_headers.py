#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compares our public headers with Debian 12's: every structure, member, enumerator, macro and function. What
rdma-core has got since is in newer.facts beside this file, a fact a line.

Usage: check_headers.py GCC OUR_INCLUDE_DIRECTORY WORK_DIRECTORY [REFERENCE_INCLUDE_DIRECTORY]
Names what differs, what is missing and what is there without a counterpart. Exit status 77: no reference.
"""
import os
import re
import sys

import reference
from abi_facts import Headers, facts

# Names that only our headers have: guards of the parts of verbs.h, and helpers, which end in an underscore.
NEWER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "newer.facts")
OWN = re.compile(r"(macro|function) (INFINIBAND_VERBS_\w+_H|\w+_)$")


def differences(ref, ours):
    for name in sorted(ref.keys() | ours.keys()):
        if name not in ours:
            yield f"missing: {name} ({ref[name]})"
        elif name not in ref:
            if not OWN.match(name):
                yield f"extra: {name} ({ours[name]})"
        elif ref[name] != ours[name]:
            yield f"differs: {name}: reference has {ref[name]}, ours has {ours[name]}"


def newer_facts():
    with open(NEWER, encoding="utf-8") as f:
        return dict(line.rstrip("\n").split(" = ", 1) for line in f if line.strip())


def main():
    gcc, include, work = sys.argv[1:4]
    directory = sys.argv[4] if len(sys.argv) > 4 else reference.include_directory()
    ref = facts(Headers(gcc, directory, os.path.join(work, "reference")))
    if len(sys.argv) <= 4:
        ref.update(newer_facts())
    ours = facts(Headers(gcc, include, os.path.join(work, "ours")))
    found = list(differences(ref, ours))
    for line in found:
        print(line)
    kinds = sorted({name.split()[0] for name in ref})
    counts = ", ".join(f"{sum(name.split()[0] == k for name in ref)} {k}" for k in kinds)
    print(f"{len(ref)} facts compared ({counts}): {len(found)} differences")
    if not all(
        sum(name.split()[0] == k for name in ref) > 10 for k in ("struct", "enumerator", "macro", "function")
    ):
        sys.exit("the reference declares next to nothing: the probe does not work")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
