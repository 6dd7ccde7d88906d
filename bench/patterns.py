# SPDX-License-Identifier: BSD-2-Clause
"""What the patterns of patterns.c cost, beside one plain piece of as many bytes: signalled, for the queue pair's
own receive queue. Both have their copy in it."""

MOST_TIMES = 1.5
CALLS_OF_A_MESSAGE = ("post_send", "poll_cq, receiver", "poll_cq, sender")


def by_pattern(found):
    """{pattern: {call: instructions}}"""
    counts = {}
    for name, value in found.items():
        if name.startswith("pattern, "):
            pattern, call = name.removeprefix("pattern, ").split(": ")
            counts.setdefault(pattern, {})[call] = value
    return counts


def whole(calls):
    return sum(calls[call] for call in CALLS_OF_A_MESSAGE)


def table(found):
    """Each pattern beside the plain one of as many bytes, as lines of a table; nothing where none was counted."""
    counts = by_pattern(found)
    if not counts:
        return []
    lines = ["| instructions for one message | whole | beside one piece | |", "| --- | --- | --- | --- |"]
    for pattern, calls in counts.items():
        times = whole(calls) / whole(counts[pattern.split(",")[0]])
        word = f"**beyond {MOST_TIMES} ×**" if times > MOST_TIMES else ""
        lines.append(f"| {pattern} | {whole(calls):.0f} | {times:.2f} × | {word} |")
    return lines
