# SPDX-License-Identifier: BSD-2-Clause
"""An experiment: runs that take turns, round by round, and the rows of figures that come of them.

A row compares what verbatim did with what a peer did in the same round; what counts is the median of these ratios. A row
without a peer has the median of its figures instead.
"""
import dataclasses
import statistics
import typing

# How figures are shown, by unit: the largest step that they reach.
STEPS = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")),
    "B": ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")),
    "/s": ((1e6, "million/s"), (1e3, "thousand/s"), (1, "/s")),
    "%": ((1, "%"),),
}


class NotMeasured(Exception):
    """Something that a run needs is not here; says what."""


class Failed(Exception):
    """A run went wrong; says how."""


@dataclasses.dataclass(frozen=True)
class Goal:
    """A bound for the ratio to the peer, or for the figure itself where there is no peer."""
    bound: float
    at_least: bool

    def met(self, value):
        return value >= self.bound if self.at_least else value <= self.bound


def at_least(bound):
    return Goal(bound, True)


def at_most(bound):
    return Goal(bound, False)


@dataclasses.dataclass(frozen=True)
class Row:
    """`ours` and `peer` take the outputs of the runs of one round, by name, and give a figure."""
    what: str
    unit: str
    ours: typing.Callable
    goal: typing.Optional[Goal] = None
    peer: typing.Optional[typing.Callable] = None
    peer_name: str = ""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """`runs`: by name, in the order of their turns, what returns an output or raises NotMeasured or Failed."""
    runs: dict
    rows: tuple


def measure(experiment, rounds):
    """One result for each row, as it goes into the file of figures."""
    samples = [([], []) for _ in experiment.rows]
    trouble = {}
    try:
        for _ in range(rounds):
            outputs = {name: run() for name, run in experiment.runs.items()}
            for row, (ours, peers) in zip(experiment.rows, samples):
                ours.append(row.ours(outputs))
                if row.peer:
                    peers.append(row.peer(outputs))
    except NotMeasured as reason:
        trouble = {"not_measured": str(reason)}
    except Failed as reason:
        trouble = {"failed": str(reason)}
    return [{**result(row, *taken), **trouble} for row, taken in zip(experiment.rows, samples)]


def result(row, ours, peers):
    ratios = [own / other for own, other in zip(ours, peers)]
    judged = statistics.median(ratios or ours) if ours else None
    found = {"what": row.what, "unit": row.unit, "verbatim": ours, "peer": row.peer_name, "peer_figures": peers,
             "ratios": ratios, "judged": judged}
    if row.goal:
        found["goal"] = {"at_least" if row.goal.at_least else "at_most": row.goal.bound}
        found["met"] = None if judged is None else row.goal.met(judged)
    return found


# ---- as text ----

HEADING = "| | verbatim | peer | ratio | goal | |\n| --- | --- | --- | --- | --- | --- |"


def show(value, unit):
    step, name = next((step for step in STEPS[unit] if abs(value) >= step[0]), STEPS[unit][-1])
    scaled = value / step
    return f"{scaled:.0f} {name}" if scaled >= 100 else f"{scaled:.3g} {name}"


def show_goal(found):
    if "goal" not in found:
        return ""
    (way, bound), = found["goal"].items()
    sign = "≥" if way == "at_least" else "≤"
    return f"{sign} {bound:g} ×" if found["peer"] else f"{sign} {show(bound, found['unit'])}"


def line(found):
    """A row of the table."""
    trouble = found.get("failed") or found.get("not_measured")
    if trouble:
        word = "FAILED" if "failed" in found else "not measured"
        return f"| {found['what']} | {word}: {trouble} | | | {show_goal(found)} | |"
    ours = show(statistics.median(found["verbatim"]), found["unit"])
    peer = ratio = ""
    if found["ratios"]:
        peer = f"{show(statistics.median(found['peer_figures']), found['unit'])} {found['peer']}"
        ratio = f"{found['judged']:.2f} × ({min(found['ratios']):.2f} to {max(found['ratios']):.2f})"
    verdict = {True: "met", False: "**missed**", None: ""}[found.get("met")]
    return f"| {found['what']} | {ours} | {peer} | {ratio} | {show_goal(found)} | {verdict} |"
