# SPDX-License-Identifier: BSD-2-Clause
"""Latency and bandwidth over message size, beside the peers of rows.py: measured, and drawn from the file of
figures."""
import dataclasses
import statistics
import typing

import svg
import tools
from experiment import Failed, NotMeasured, show
from rows import (
    BANDWIDTH_ITERATIONS,
    IPERF3_S,
    KIB,
    LOOPBACK,
    MIB,
    SHARED_MEMORY_ITERATIONS,
    WIRE_MTU,
    size_name,
)

MAX_ROUNDS = 3
LATENCY_ROUNDS = 10000
SIZES = (8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB, MIB)
UDP_LARGEST = 32 * KIB  # one datagram


@dataclasses.dataclass(frozen=True)
class Line:
    """`run` and `figure` take a size; they give a run, and what reads its output."""

    name: str
    ours: bool
    run: typing.Callable
    figure: typing.Callable
    largest: int = MIB


@dataclasses.dataclass(frozen=True)
class Chart:
    name: str
    title: str
    unit: str
    lines: tuple


def charts(bench, network):
    ends = tools.pinned(LOOPBACK)
    yield Chart(
        "local-latency",
        "One host: latency, one way",
        "ns",
        (
            *(latency_line(bench, ends, operation) for operation in ("write", "send")),
            ucx_latency_line(bench, ends, "put", "ucp_put_lat", "posix"),
            ucx_latency_line(bench, ends, "tagged message", "tag_lat", "posix,cma"),
        ),
    )
    yield Chart(
        "local-bandwidth",
        "One host: bandwidth",
        "B/s",
        (
            *(
                bandwidth_line(bench, ends, operation, SHARED_MEMORY_ITERATIONS)
                for operation in ("write", "send")
            ),
            ucx_bandwidth_line(bench, ends, "put", "ucp_put_bw", "posix"),
            ucx_bandwidth_line(bench, ends, "tagged message", "tag_bw", "posix,cma"),
        ),
    )
    a, b = network.host("a"), network.host("b")
    network.join(a, b, mtu=WIRE_MTU)
    ends = a.endpoint(bench.tools.build), b.endpoint(bench.tools.build)
    off = [tools.through(end, "env", "VERBATIM_LOCAL=off") for end in ends]
    yield Chart(
        "wire-latency",
        "Over a veth pair: latency, one way",
        "ns",
        (
            latency_line(bench, off, "send"),
            Line(
                "UDP",
                False,
                lambda size: bench.tools.udp_ping_pong(ends, size, LATENCY_ROUNDS),
                lambda _: tools.udp_latency_ns,
                UDP_LARGEST,
            ),
        ),
    )
    yield Chart(
        "wire-bandwidth",
        "Over a veth pair: bandwidth",
        "B/s",
        (
            *(
                bandwidth_line(bench, off, operation, BANDWIDTH_ITERATIONS, " -m 4096")
                for operation in ("write", "send")
            ),
            Line(
                "TCP, iperf3",
                False,
                lambda size: bench.tools.iperf3(ends, IPERF3_S, size),
                lambda _: tools.tcp_bandwidth,
            ),
        ),
    )


def latency_line(bench, ends, operation):
    return Line(
        f"verbatim: {operation}",
        True,
        lambda size: bench.latency_run(ends, operation, size, LATENCY_ROUNDS),
        bench.latency_ns,
    )


def bandwidth_line(bench, ends, operation, iterations, options=""):
    return Line(
        f"verbatim: {operation}",
        True,
        lambda size: bench.tools.perftest(
            ends, f"ib_{operation}_bw", f"-s {size}{options}", iterations[size]
        ),
        tools.bandwidth,
    )


def ucx_latency_line(bench, ends, name, test, transports):
    return Line(
        f"UCX: {name}",
        False,
        lambda size: bench.tools.ucx(ends, test, size, LATENCY_ROUNDS, transports),
        lambda _: tools.ucx_latency_ns,
    )


def ucx_bandwidth_line(bench, ends, name, test, transports):
    return Line(
        f"UCX: {name}",
        False,
        lambda size: bench.tools.ucx(ends, test, size, SHARED_MEMORY_ITERATIONS[size], transports),
        lambda _: tools.ucx_bandwidth,
    )


def measure(bench, network, rounds):
    """The entry of the file of figures; prints a table for each chart."""
    found = {"charts": []}
    for chart in charts(bench, network):
        figures = {line.name: {size: [] for size in SIZES} for line in chart.lines}
        missing = {}
        print(
            f"| {chart.title} | {' | '.join(line.name for line in chart.lines)} |\n|{' --- |' * (len(chart.lines) + 1)}"
        )
        for size in SIZES:
            for _ in range(min(rounds, MAX_ROUNDS)):
                take_turns(chart, size, figures, missing)
            print(
                f"| {size_name(size)} |",
                *(f"{middle(figures[line.name][size], chart.unit)} |" for line in chart.lines),
                flush=True,
            )
        found["charts"].append(
            {
                "name": chart.name,
                "title": chart.title,
                "unit": chart.unit,
                "missing": missing,
                "lines": [
                    {"name": line.name, "ours": line.ours, "figures": figures[line.name]}
                    for line in chart.lines
                ],
            }
        )
        for name, reason in missing.items():
            print(f"{name}: {reason}")
        print()
    if any(reason.startswith("FAILED") for chart in found["charts"] for reason in chart["missing"].values()):
        found["failed"] = "some runs"
    return found


def take_turns(chart, size, figures, missing):
    for line in chart.lines:
        if size > line.largest or line.name in missing:
            continue
        try:
            figures[line.name][size].append(line.figure(size)(line.run(size)()))
        except NotMeasured as reason:
            missing[line.name] = str(reason)
        except Failed as reason:
            missing[line.name] = f"FAILED: {reason}"


def middle(values, unit):
    return show(statistics.median(values), unit) if values else ""


def draw(parts, directory):
    """The plots of what was last measured, as files; their paths."""
    paths = []
    for chart in parts.get("curves", {}).get("charts", ()):
        lines = []
        for line in chart["lines"]:
            points = [
                (int(size), statistics.median(values)) for size, values in line["figures"].items() if values
            ]
            if points:
                lines.append((line["name"], line["ours"], points))
        if not lines:
            continue
        path = directory / f"{chart['name']}.svg"
        drawn = svg.chart(
            chart["title"], lines, size_name, lambda value, unit=chart["unit"]: show(value, unit)
        )
        path.write_text(drawn, encoding="utf-8")
        paths.append(path)
    return paths
