# SPDX-License-Identifier: BSD-2-Clause
"""The part `lab`: flows that share a network, in `verbatim lab`: many to one, near and far, over a link that
loses packets, short messages beside long ones, a ring; the same by RC queue pairs and by the kernel's TCP."""
import dataclasses
import errno
import functools
import json
import os
import re
import subprocess
import tempfile

from experiment import Experiment, Failed, NotMeasured, Row, at_least

RATE = 500  # Mbit/s of what carries the flows: what the switch of a lab passes on easily, packet by packet
HOSTS = f"hosts rate {RATE}mbit queue 256k delay 50us"
MARKS = " ecn 60k-180k"
WARM_MS, WINDOW_MS = 2000, 5000
PORT = 7000
LIMIT_S = 120
SENDERS, RANKS = 16, 8
RING_BYTES, RING_ROUNDS = 1 << 20, 9
RING_HOSTS = f"hosts rate {RATE / RANKS}mbit queue 256k delay 50us"  # all links are in use at once
SHORT = 4096
KINDS = {"verbatim": "rdma", "TCP CUBIC": "cubic", "TCP BBR": "bbr"}
PEERS = ("TCP CUBIC", "TCP BBR")
FIGURE = re.compile(r"(\w+) (\d[\d.]*(?:e[+-]?\d+)?)")
MTU, LONG_MTU = 1500, 4200  # RoCEv2 carries 1024 and 4096 bytes in such a packet
PATH_MTUS = (256, 512, 1024, 2048, 4096)
ETHERNET, ROCE, TCP = 14 + 24, 20 + 8 + 12 + 4, 20 + 32  # bytes beside the payload; ROCE, TCP: of the MTU


def packet(kind, mtu):
    """Payload in a full packet, and what that takes of the link, all of Ethernet included."""
    if kind == "rdma":
        payload = max(size for size in PATH_MTUS if size + ROCE <= mtu)
        return payload, payload + ROCE + ETHERNET
    return mtu - TCP, mtu + ETHERNET


class Lab:
    """Runs scenarios of flows."""

    def __init__(self, tools_):
        self.tools = tools_

    def run(self, kind, mtu, hosts, links, programs):
        """The figures of all programs, by name. programs: (host, arguments of `flows`, whether it ends)"""
        text = [f"hosts = {hosts}", f"mtu = {mtu}", f"links = {json.dumps(links)}", f'limit = "{LIMIT_S}s"']
        for number, (host, arguments, ends) in enumerate(programs):
            role, *rest = map(str, arguments)
            text += [
                "[[program]]",
                f'name = "{role}-{number}"',
                f'host = "h{host}"',
                f"command = {json.dumps(self.command(kind, links, [role, kind, *rest]))}",
                *([] if ends else ["daemon = true", 'exit = "any"']),
            ]
        with tempfile.NamedTemporaryFile("w", suffix=".toml", dir=self.tools.log_dir) as file:
            file.write("\n".join(text) + "\n")
            file.flush()
            verbatim = os.path.join(self.tools.build, "verbatim")
            done = subprocess.run(
                [verbatim, "lab", "run", "--json", file.name], capture_output=True, text=True, check=False
            )
        if done.returncode == 125:
            raise NotMeasured(done.stderr.strip())
        said = [json.loads(line) for line in done.stdout.split("\n") if line]
        if done.returncode:
            raise reason_of(kind, list(trouble(said)) or [done.stderr.strip()])
        return Found(packet(kind, mtu), figures(said))

    def command(self, kind, links, arguments):
        """Packets of TCP can carry marks only if its hosts ask for that; those of RoCEv2 do."""
        flows = [self.tools.own("flows"), *arguments]
        if kind == "rdma" or not any(MARKS in link for link in links):
            return flows
        return ["sh", "-c", 'echo 1 >/proc/sys/net/ipv4/tcp_ecn && exec "$@"', "sh", *flows]


def reason_of(kind, lines):
    """Some kernels have no BBR, and load none for a lab."""
    if f"{kind}: {os.strerror(errno.ENOENT)}" in lines:
        return NotMeasured(f"the kernel has no congestion control {kind}")
    return Failed("; ".join(lines))


def trouble(said):
    for each in said:
        if each["type"] == "output":
            yield each["text"]
        elif each["type"] == "verdict":
            yield from each["failures"]


def figures(said):
    """What programs say beside figures, such as a warning of the library's, is none."""
    lines = (FIGURE.fullmatch(each["text"]) for each in said if each["type"] == "output")
    return {line[1]: float(line[2]) for line in lines if line}


@dataclasses.dataclass
class Found:
    """The figures of a run, by name; `packet`: bytes of payload in a full one, and of all that it takes."""

    packet: tuple
    values: dict

    def flows(self):
        """Bytes a second of each."""
        return [value for name, value in self.values.items() if name.startswith("flow_")]

    def rate(self):
        return sum(self.flows())

    def share(self):
        """% of what the link can carry of such packets."""
        payload, whole = self.packet
        return 100 * self.rate() * 8 / (RATE * 1e6) * whole / payload

    def fairness(self):
        """Jain's index."""
        flows = self.flows()
        return sum(flows) ** 2 / (len(flows) * sum(flow**2 for flow in flows)) if any(flows) else 0.0


def value(name):
    def read(found):
        if name not in found.values:
            raise Failed(f"no {name} in the output")
        return found.values[name]

    return read


# ---- what is measured ----


def experiments(tools_):
    lab = Lab(tools_)
    share_and_fairness = (
        ("of the link", "%", Found.share, at_least(90)),
        ("fairness", "1", Found.fairness, at_least(0.9)),
    )
    for what, links in ((f"{SENDERS} to one", [HOSTS]), (f"{SENDERS} to one, marked", [HOSTS + MARKS])):
        yield compare(lab, what, 1 + SENDERS, links, streams(SENDERS), share_and_fairness)
    yield compare(
        lab,
        "two to one, of which one is ten times as far",
        3,
        [HOSTS, "h1-h3 delay 900us"],
        streams(2),
        share_and_fairness,
    )
    for what, mtu in (("1 % of packets lost", MTU), (f"1 % of packets lost, MTU {LONG_MTU}", LONG_MTU)):
        yield compare(
            lab,
            what,
            2,
            [HOSTS, "h1-h2 loss 1%"],
            streams(1),
            (("rate", "B/s", Found.rate, None),),
            mtu=mtu,
            beside_the_best=True,
        )
    asker = (6, ("ask", "h1", PORT, SHORT, WARM_MS, WINDOW_MS), True)
    yield compare(
        lab,
        "4 KiB and their answer beside 4 streams",
        6,
        [HOSTS],
        streams(4, asker),
        (("median", "ns", value("median_ns"), None), ("99 %", "ns", value("p99_ns"), None)),
    )
    ring = [
        (1 + r, ("ring", PORT, f"h{1 + (r + 1) % RANKS}", r, RANKS, RING_BYTES, RING_ROUNDS), True)
        for r in range(RANKS)
    ]
    yield compare(
        lab,
        f"all-reduce of {RING_BYTES >> 20} MiB, ring of {RANKS}",
        RANKS,
        [RING_HOSTS],
        ring,
        (("time", "ns", value("all_reduce_ns"), None),),
    )


def streams(senders, *others):
    """Programs, by their hosts: the first receives from all others."""
    return [
        (1, ("receive", PORT, senders + len(others), WARM_MS, WINDOW_MS), True),
        *((2 + n, ("send", "h1", PORT, n), False) for n in range(senders)),
        *others,
    ]


def compare(lab, what, hosts, links, programs, read, mtu=MTU, beside_the_best=False):
    """The same by each kind of flow. read: (what, unit, a figure of a run, the goal of ours)"""
    runs = {
        name: functools.partial(lab.run, kind, mtu, hosts, links, programs) for name, kind in KINDS.items()
    }
    rows = []
    for word, unit, figure, goal in read:
        ours = functools.partial(of, "verbatim", figure)
        if goal:
            rows.append(Row(f"{what}: {word}", unit, ours, goal))
        for peer in PEERS:
            rows.append(Row(f"{what}: {word}", unit, ours, None, functools.partial(of, peer, figure), peer))
        if beside_the_best:
            best = functools.partial(best_of, figure)
            rows.append(Row(f"{what}: {word}", unit, ours, at_least(1), best, "TCP's best"))
    return Experiment(runs, tuple(rows))


def of(name, figure, outputs):
    return figure(outputs[name])


def best_of(figure, outputs):
    """Of the peers that are here."""
    found = []
    for peer in PEERS:
        try:
            found.append(figure(outputs[peer]))
        except NotMeasured as reason:
            missing = reason
    if not found:
        raise missing
    return max(found)
