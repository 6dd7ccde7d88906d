#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes a vendor's library of its table: the functions in C and the linker's version script.

Usage: generate.py TABLE OUTPUT.c OUTPUT.map A line of the table names a version node, or, indented, an answer
(answers.h) and the function that gives it at that node. Where a name is at several nodes, the last is what
programs that are linked now get. """
import sys


def read(path):
    """Rows of (node, answer, name), in the table's order."""
    rows, node = [], None
    with open(path, encoding="utf-8") as table:
        for number, line in enumerate(table, 1):
            words = line.split("#")[0].split()
            if len(words) == 1 and not line[0].isspace():
                node = words[0]
            elif len(words) == 2 and line[0].isspace() and node:
                rows.append((node, *words))
            elif words:
                sys.exit(f"{path}:{number}: neither a node nor an answer with a name")
    return rows


def main():
    table, source, script = sys.argv[1:]
    rows = read(table)
    default = {name: node for node, _, name in rows}
    with open(source, "w", encoding="utf-8") as out:
        print('#include "vendors/answers.h"', file=out)
        for number, (node, answer, name) in enumerate(rows):
            at = "@" if default[name] == node else ""
            print(f'VB_ANSWER_{answer}(answer_{number}, "{name}", "{at}{node}");', file=out)
    with open(script, "w", encoding="utf-8") as out:
        for node in dict.fromkeys(node for node, _, _ in rows):
            print(f"{node} {{}};", file=out)
        print("VERBATIM_PRIVATE { local: *; };", file=out)  # a "local" in a function's own node would hide it


if __name__ == "__main__":
    main()
