# SPDX-License-Identifier: BSD-2-Clause
"""Beside the kernel's rdma_rxe, in two guests that a bridge joins: between them, and within one of them.

            ┌ guest 1 ──────┐   ┌ host bridge ─────┐   ┌ guest 2 ──────┐
            │ eth0 rxe0 / vb ╪═══╪ tap1 ─ br0 ─ tap2 ╪═══╪ eth0 rxe0 / vb │
            └───────────────┘   └──────────────────┘   └───────────────┘

One UDP port serves either rxe or this library, so the module comes and goes with the turns. Where the machine
offers no hardware virtualization the guests' processors are emulated: all takes many times as long then, and
ratios are those of instructions. """
import contextlib
import dataclasses
import functools
import os

import tools
from experiment import Experiment, Failed, Row, at_least, at_most
from guest import EMULATED, Guest, GuestEndpoint, GuestFailure, GuestProgram, prepare
from hosts import gid_index

KVM = "kvm"
SIZE = 65536


def accelerator():
    """KVM counts if the processor says that it can; some machines offer its device and cannot boot a stock
    kernel."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        flags = next((set(line.split()) for line in info if line.startswith("flags")), set())
    return KVM if os.access("/dev/kvm", os.R_OK | os.W_OK) and flags & {"vmx", "svm"} else EMULATED


@dataclasses.dataclass(frozen=True)
class VerbatimEndpoint(GuestEndpoint):
    build: str = ""

    def start(self, build, command, log_path):
        return GuestProgram(self.guest, f"{self.build}/verbatim run {command}", log_path)


class Pair:
    """Two guests, on which either rxe runs or this library does."""

    def __init__(self, build, network, way):
        self.build = build
        directory = os.path.join(build, "interop")
        prepare(directory)
        bridge = network.host("bridge")
        bridge.run("ip", "link", "add", "br0", "type", "bridge")
        bridge.run("ip", "link", "set", "br0", "up")
        self.guests = [Guest(directory, bridge, self._tap(bridge, number), number, way) for number in (1, 2)]

    def set_up(self):
        for guest in self.guests:
            guest.set_up()
        self.rxe = [guest.endpoint(self.build) for guest in self.guests]
        self.rxe_runs = True
        self.want_rxe(False)
        self.sockets = [GuestEndpoint("sockets", "", guest.v4, 0, guest=guest) for guest in self.guests]
        self.verbatim = [self._own(guest) for guest in self.guests]

    @staticmethod
    def _tap(bridge, number):
        tap = f"tap{number}"
        bridge.run("ip", "tuntap", "add", "dev", tap, "mode", "tap")
        bridge.run("ip", "link", "set", tap, "master", "br0", "up")
        return tap

    def _own(self, guest):
        table = guest.run(f"{self.build}/verbatim", "run", "ibv_devinfo", "-v", "-d", "vb_eth0")
        return VerbatimEndpoint(
            "verbatim", "vb_eth0", guest.v4, gid_index(table, guest.v4), guest=guest, build=self.build
        )

    def want_rxe(self, wanted):
        if wanted != self.rxe_runs:
            for guest in self.guests:
                guest.start_rxe() if wanted else guest.stop_rxe()
            self.rxe_runs = wanted

    def close(self):
        for guest in self.guests:
            guest.close()


def experiments(tools_, network):
    way = accelerator()
    print("The guests' processors are emulated.\n" if way == EMULATED else "The guests run on KVM.\n")
    try:
        with contextlib.closing(Pair(tools_.build, network, way)) as pair:
            pair.set_up()
            yield comparison(tools_, pair)
    except GuestFailure as failure:
        raise Failed(str(failure)) from None


def latency_ns(output):
    return tools.latency(8)(output) * 1e3


# (what, program, options, iterations of ours and of rxe, within one guest, figure, unit, goal)
MEASURED = (
    (
        "ib_write_bw, 64 KiB",
        "ib_write_bw",
        f"-s {SIZE}",
        200,
        50,
        False,
        tools.bandwidth(SIZE),
        "B/s",
        at_least(3),
    ),
    ("ib_send_lat, 8 B", "ib_send_lat", "-s 8", 300, 300, False, latency_ns, "ns", at_most(1)),
    (
        "ib_write_bw, 64 KiB",
        "ib_write_bw",
        f"-s {SIZE}",
        20000,
        200,
        True,
        tools.bandwidth(SIZE),
        "B/s",
        at_least(50),
    ),
    ("ib_write_lat, 8 B", "ib_write_lat", "-s 8", 1000, 300, True, latency_ns, "ns", at_most(0.05)),
)


IPERF3_S = 3
PING_PONGS = 300


def socket_runs(tools_, pair):
    """What the guests' sockets alone take, by name: run, its figure, and the number of our row that it goes
    beside."""
    return {
        "iperf3, one TCP stream": (tools_.iperf3(pair.sockets, IPERF3_S), tools.tcp_bandwidth, 0),
        "UDP ping-pong": (tools_.udp_ping_pong(pair.sockets, 8, PING_PONGS), tools.udp_latency_ns, 1),
        "UDP ping-pong, sockets as RoCEv2 needs them": (
            tools_.udp_ping_pong(pair.sockets, 8, PING_PONGS, "-w"),
            tools.udp_latency_ns,
            1,
        ),
    }


def comparison(tools_, pair):
    """All of one side first, then all of the other: loading the module takes its time."""
    runs, rows = {}, []
    sockets = socket_runs(tools_, pair)
    for name, (run, *_) in sockets.items():
        runs[name] = functools.partial(turn, pair, False, run)
    for side in ("verbatim", "rxe"):
        for number, (_, program, options, ours, theirs, within, *_) in enumerate(MEASURED):
            ends = getattr(pair, side)
            run = tools_.perftest(
                [ends[0], ends[0 if within else 1]], program, options, ours if side == "verbatim" else theirs
            )
            runs[side, number] = functools.partial(turn, pair, side == "rxe", run)
    for number, (what, _, _, _, _, within, figure, unit, goal) in enumerate(MEASURED):
        place = "within one guest" if within else "between two guests"
        rows.append(
            Row(
                f"{place}: {what}",
                unit,
                lambda outputs, key=("verbatim", number), read=figure: read(outputs[key]),
                goal,
                lambda outputs, key=("rxe", number), read=figure: read(outputs[key]),
                "rdma_rxe",
            )
        )
    for name, (_, figure, number) in sockets.items():
        what, unit, ours = MEASURED[number][0], MEASURED[number][7], MEASURED[number][6]
        rows.append(
            Row(
                f"between two guests: {what}",
                unit,
                lambda outputs, key=("verbatim", number), read=ours: read(outputs[key]),
                None,
                lambda outputs, key=name, read=figure: read(outputs[key]),
                name,
            )
        )
    return Experiment(runs, tuple(rows))


def turn(pair, rxe, run):
    try:
        pair.want_rxe(rxe)
        return run()
    except GuestFailure as failure:
        raise Failed(str(failure)) from None
