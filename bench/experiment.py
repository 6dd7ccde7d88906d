# SPDX-License-Identifier: BSD-2-Clause
"""An experiment: runs that take turns, round by round, and the rows of figures that come of them.

A row compares what verbatim did with what a peer did in the same round; what counts is the median of these
ratios. A row without a peer has the median of its figures instead. """
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
    "1": ((1, ""),),
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
    """`runs`: by name, in the order of their turns, what returns an output or raises NotMeasured or
    Failed."""

    runs: dict
    rows: tuple


class Outputs(dict):
    """What the runs of a round said, by name; asking for one that gave nothing raises the reason."""

    def __getitem__(self, name):
        value = super().__getitem__(name)
        if isinstance(value, Exception):
            raise value
        return value


def take_turns(runs, broken):
    """One round. A run that went wrong is not tried again."""
    outputs = Outputs(broken)
    for name, run in runs.items():
        if name not in broken:
            try:
                outputs[name] = run()
            except (NotMeasured, Failed) as reason:
                broken[name] = outputs[name] = reason
    return outputs


def measure(experiment, rounds):
    """One result for each row, as it goes into the file of figures."""
    samples = [Samples(row) for row in experiment.rows]
    broken = {}
    for _ in range(rounds):
        outputs = take_turns(experiment.runs, broken)
        for sample in samples:
            sample.add(outputs)
    return [sample.result() for sample in samples]


class Samples:
    """What the rounds gave for one row."""

    def __init__(self, row):
        self.row = row
        self.ours, self.peers, self.ratios = [], [], []
        self.trouble = {}

    def add(self, outputs):
        try:
            self.ours.append(self.row.ours(outputs))
            if self.row.peer:
                self.peers.append(self.row.peer(outputs))
                if not self.peers[-1]:
                    raise Failed(f"{self.row.peer_name} has 0, beside which nothing can be set")
                self.ratios.append(self.ours[-1] / self.peers[-1])
        except NotMeasured as reason:
            self.trouble["not_measured"] = str(reason)
        except Failed as reason:
            self.trouble["failed"] = str(reason)

    def result(self):
        row, judged = self.row, self.ratios if self.row.peer else self.ours
        found = {
            "what": row.what,
            "unit": row.unit,
            "verbatim": self.ours,
            "peer": row.peer_name,
            "peer_figures": self.peers,
            "ratios": self.ratios,
            "judged": statistics.median(judged) if judged else None,
            **self.trouble,
        }
        if row.goal:
            found["goal"] = {"at_least" if row.goal.at_least else "at_most": row.goal.bound}
            found["met"] = row.goal.met(found["judged"]) if judged else None
        return found


# ---- a build beside another ----

# Within which a build is no slower than the other, whatever noise is left in the median.
AS_FAST = 1.1
LESS_IS_BETTER = ("ns", "B", "%")


def runs_asked_by(figure):
    """The names of the runs whose outputs a row's figure is taken from."""
    asked = []

    class Asked(dict):
        def __missing__(self, name):
            asked.append(name)
            raise NotMeasured(name)

    try:
        figure(Asked())
    except NotMeasured:
        pass
    return asked


class OfBuild:
    """The outputs of one build's runs."""

    def __init__(self, outputs, build):
        self.outputs, self.build = outputs, build

    def __getitem__(self, name):
        return self.outputs[self.build, name]


def beside_other_build(ours, other):
    """Of two builds' same experiment, one whose peer is the other build. What else it had as peers is left
    out."""
    runs, rows = {}, {}
    for row in ours.rows:
        for name in runs_asked_by(row.ours):
            runs["new", name], runs["old", name] = ours.runs[name], other.runs[name]
        rows[row.what] = Row(
            row.what,
            row.unit,
            lambda outputs, row=row: row.ours(OfBuild(outputs, "new")),
            at_most(AS_FAST) if row.unit in LESS_IS_BETTER else at_least(1 / AS_FAST),
            lambda outputs, row=row: row.ours(OfBuild(outputs, "old")),
            "the other build",
        )
    return Experiment(runs, tuple(rows.values()))


# ---- as text ----

HEADING = "| | verbatim | peer | ratio | goal | |\n| --- | --- | --- | --- | --- | --- |"


def show(value, unit):
    step, name = next((step for step in STEPS[unit] if abs(value) >= step[0]), STEPS[unit][-1])
    scaled = value / step
    return (f"{scaled:.0f} {name}" if scaled >= 100 else f"{scaled:.3g} {name}").strip()


def show_goal(found):
    if "goal" not in found:
        return ""
    ((way, bound),) = found["goal"].items()
    sign = "≥" if way == "at_least" else "≤"
    return f"{sign} {bound:g} ×" if found["peer"] else f"{sign} {show(bound, found['unit'])}"


def line(found):
    """A row of the table."""
    ours = show(statistics.median(found["verbatim"]), found["unit"]) if found["verbatim"] else ""
    peer = ratio = ""
    if found["ratios"]:
        peer = f"{show(statistics.median(found['peer_figures']), found['unit'])} {found['peer']}"
        ratio = f"{found['judged']:.2f} × ({min(found['ratios']):.2f} to {max(found['ratios']):.2f})"
    verdict = {True: "met", False: "**missed**", None: ""}[found.get("met")]
    if "failed" in found:
        verdict += f" FAILED: {found['failed']}"
    elif "not_measured" in found:
        verdict += f" not measured: {found['not_measured']}"
    return f"| {found['what']} | {ours} | {peer} | {ratio} | {show_goal(found)} | {verdict.strip()} |"
