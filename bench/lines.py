# SPDX-License-Identifier: BSD-2-Clause
"""Cache lines of shared memory that a ping-pong of 8 bytes touches, by who writes and who reads them: what
valgrind's lackey has seen.

A line is shared falsely if two write it, or if one writes what the other does not look for beside what it
does. So for each line that a side stores into there stands how often it does so for one message, and whether
the other side loads from it. """
import collections
import pathlib
import re
import subprocess

import harness
from experiment import Failed

LINE = 64
MESSAGES = 64  # each way, as in lines.c
LIMIT_S = 600
# Where things are in an arena: adapter/memory/arena.h. What the lines of a control block are for:
# local/shared.h.
KEYS, QPS = 4096, 4096 + (64 << 20)
HEAP = QPS + 64 * 4096 * 512
ARENA_BYTES = 16 << 30
QP_BYTES = 512
HEAD = {0: "the arena's head: what changes seldom", 5: "the arena's head: asleep"}
BLOCK = ("its attributes", "ack", "busy", "put", "taken", "atomics", "atomics", "what captures need")
ACCESS = re.compile(r"^ ([SLM]) ([0-9a-f]+),(\d+)$")


def part_of(offset):
    if offset < KEYS:
        return HEAD.get(offset // LINE, "the arena's head: slots")
    if offset < QPS:
        return "the key table"
    if offset < HEAP:
        return f"a queue pair: {BLOCK[offset % QP_BYTES // LINE]}"
    return "queues and bells"


def measure(tools):
    """The entry of the file of figures; prints the table."""
    program = tools.own("lines")
    if missing := harness.missing_programs("valgrind"):
        return {"not_measured": say(f"{missing[0]} is not installed")}
    try:
        found = {"lines": table(*trace(tools, program))}
    except Failed as reason:
        return {"failed": say(f"FAILED: {reason}")}
    print("\n".join(as_text(found)), flush=True)
    return found


def say(sentence):
    print(sentence, flush=True)
    return sentence


def trace(tools, program):
    """(stores, loads): for each side {offset of a line: how often}, of the arena that is its own, and of the
    other's."""
    directory = pathlib.Path(tools.log_dir) / "lackey"
    directory.mkdir()
    command = ["valgrind", "-q", "--tool=lackey", "--trace-mem=yes", f"--log-file={directory}/%p", program]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"no end in {LIMIT_S} s") from None
    sides = re.findall(r"^arena ([01]) (\d+) (\w+) (\w+) (.+)$", done.stdout, re.MULTILINE)
    if done.returncode or len(sides) != 2:
        raise Failed(f"ended with {done.returncode}{harness.last_words(done.stdout)}")
    stores, loads = {}, {}
    for side, pid, mark, own, theirs in sides:
        stores[side], strange, loads[side] = count(
            directory / pid, int(mark, 16), int(own, 16), [int(place, 16) for place in theirs.split()]
        )
        if strange:
            raise Failed(f"side {side} stores into the other's arena")
        (directory / pid).unlink()
    return stores, loads


def count(path, mark, own, theirs):
    """Between two stores to `mark`: {line: stores} of the own arena and of the other's, {line: loads} of the
    other's."""
    stores, strange, loads = (collections.Counter() for _ in range(3))
    marks = 0
    with open(path, encoding="ascii", errors="replace") as log:
        for found in filter(None, map(ACCESS.match, log)):
            how, address = found.group(1), int(found.group(2), 16)
            if address == mark and how != "L":
                marks += 1
            elif marks == 1 and 0 <= address - own < ARENA_BYTES:
                stores[(address - own) // LINE] += how != "L"
            elif marks == 1:
                for base in (base for base in theirs if 0 <= address - base < ARENA_BYTES):
                    (loads if how == "L" else strange)[(address - base) // LINE] += 1
    if marks != 2:
        raise Failed(f"{path} has {marks} marks")
    return +stores, strange, loads


def table(stores, loads):
    """Rows, one for each part of the arenas and for whether its lines are read by the other side."""
    rows = collections.defaultdict(lambda: [set(), 0, 0])
    for side, other in (("0", "1"), ("1", "0")):
        for line, times in stores[side].items():
            row = rows[part_of(line * LINE), line in loads[other]]
            row[0].add((side, line))
            row[1] += times
            row[2] += loads[other].get(line, 0)
    return [
        {
            "part": part,
            "read": read,
            "lines": len(lines),
            "stores": total / MESSAGES / 2,
            "loads": looked / MESSAGES / 2,
        }
        for (part, read), (lines, total, looked) in sorted(rows.items())
    ]


def as_text(found):
    yield "| lines of an arena that its owner stores into | lines, both sides | stores for one message | the other side's loads |"
    yield "| --- | --- | --- | --- |"
    for row in found["lines"]:
        yield f"| {row['part']} | {row['lines']} | {row['stores']:.3g} | {format(row['loads'], '.3g') if row['read'] else 'none'} |"
