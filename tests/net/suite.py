# SPDX-License-Identifier: BSD-2-Clause
"""What the suites between hosts share: running programs between two hosts, capturing what they send, the
command line."""
import argparse
import concurrent.futures
import dataclasses
import os
import re
import sys
import time

import capture
import hosts
import paths  # noqa: F401
import harness

# What must be seen of rdma_cm, and of an rping whose pieces fit into a packet, or do not.
CONNECTED_BY_CM = ("REQ", "REP", "RTU", "DREQ", "DREP")
PING = (*CONNECTED_BY_CM, "RC SEND_ONLY", "RC READ_REQUEST", "RC WRITE_ONLY", "RC ACKNOWLEDGE")
LONG_PING = (
    *CONNECTED_BY_CM,
    "RC SEND_ONLY",
    "RC READ_RESPONSE_MIDDLE",
    "RC WRITE_MIDDLE",
    "RC ACKNOWLEDGE",
)


@dataclasses.dataclass(frozen=True)
class Item:
    """A case, and what must be seen on the wire: opcodes, CM messages."""

    case: harness.Case
    wire: tuple = ()
    ipv6: bool = False
    tcp_over_ipv4: bool = False  # with ipv6: for programs that exchange addresses over IPv4 alone

    @property
    def name(self):
        return self.case.name + (" over IPv6" if self.ipv6 else "")


class Suite:
    """What the suites share. Names of cases are "program options topic"."""

    NAME = ""
    QUICK = ()  # patterns of the names of cases that `make check` runs
    TSHARK_OPTIONS = ()

    def __init__(self, options):
        self.options = options
        self.build = options.build
        self.report = harness.Report(sys.argv[0], options.build)
        self.log_dir = harness.log_directory(
            options.build, "-".join(filter(None, (self.NAME, options.tier, "checked" * options.check)))
        )

    def is_quick(self, name):
        """Does a case belong to `make check`?"""
        return any(re.search(pattern, name) for pattern in self.QUICK)

    def selected(self, name):
        return harness.selected(self.options, name, self.is_quick(name))

    def run_item(self, item, server, client, label=""):
        ends = [host.endpoint(self.build, ipv6=item.ipv6) for host in (server, client)]
        if item.tcp_over_ipv4:
            ends = [
                dataclasses.replace(end, addr=host.interfaces[0].v4)
                for end, host in zip(ends, (server, client))
            ]
        if label or item.ipv6:
            ends[0] = dataclasses.replace(ends[0], label=f"{label}{'.v6' if item.ipv6 else ''}")
        return harness.run_case(self.build, item.case, ends[0], self.log_dir, ends[1])

    def run_items(self, topic, server, client, table):
        """Runs a table of items one by one."""
        for item in table:
            if self.selected(f"{item.name} {topic}"):
                outcome = self.run_item(item, server, client, topic.replace(" ", "_"))
                self.report.add(f"{item.name} {topic}", outcome)

    def captured(self, topic, server, client, table, at=None):
        """Runs a table of items one by one while a host's interface, the client's, is captured, then judges
        both."""
        chosen = [item for item in table if self.selected(f"{item.name} {topic}")]
        if not chosen:
            return
        path = os.path.join(self.log_dir, f"{re.sub(r'[^a-z0-9]+', '_', topic)}.pcap")
        at = at or client
        wire = capture.Capture(at, at.interfaces[0], path)
        spans = []
        try:
            for item in chosen:
                start = time.time()
                outcome = self.run_item(item, server, client, topic.replace(" ", "_"))
                spans.append((item, start, time.time(), outcome))
                self.report.add(f"{item.name} {topic}", outcome)
            dropped = wire.stop()
        finally:
            wire.kill()
        self.judge_capture(topic, path, spans, dropped)

    def judge_capture(self, topic, path, spans, dropped):
        reading = capture.Reading(path, self.TSHARK_OPTIONS)
        print(f"# capture {topic}: {len(reading.packets)} packets, {dropped} not captured")
        for item, start, end, outcome in spans:
            if outcome.status == "skip":
                continue
            self.add(f"{item.name} {topic}, captured", reading.judge(start, end, item.wire))
        self.add(
            f"capture {topic} as a whole",
            "; ".join(reading.problems.get(0, ())) or reading.judge(0, float("inf"), ()),
        )

    def at_once(self, name, runs):
        """Runs (case, server endpoint, client endpoint) all at the same time."""
        if not self.selected(name):
            return
        with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
            futures = []
            for number, (case, server, client) in enumerate(runs):
                server = dataclasses.replace(server, label=f"{name.replace(' ', '_')}.{number}")
                futures.append(pool.submit(harness.run_case, self.build, case, server, self.log_dir, client))
            for number, future in enumerate(futures):
                self.report.add(f"{name}: {runs[number][0].name}", future.result())

    def guarded(self, name, part):
        """Runs a part of the suite that this machine may be unable to run."""
        try:
            part()
        except hosts.NotHere as reason:
            self.report.add(name, harness.Outcome("skip", str(reason)))

    def add(self, name, reason):
        """A line of its own: reason says why it failed, or nothing."""
        self.report.add(name, harness.Outcome("FAIL" if reason else "ok", reason))

    def parts(self):
        """The functions that make up the suite."""
        raise NotImplementedError


def run(suite_class, description):
    """The main function of a suite: the exit status."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build")
    harness.add_selection(parser)
    parser.add_argument(
        "--check", action="store_true", help="under VERBATIM_CHECK, which is to find what is known alone"
    )
    options = parser.parse_intermixed_args()
    options.build = os.path.abspath(options.build)
    if options.check:
        os.environ["VERBATIM_CHECK"] = "1"
    harness.require_library(options.build)
    harness.isolate()
    suite = suite_class(options)
    for part in suite.parts():
        suite.guarded(part.__name__.replace("_", " "), part)
    return suite.report.finish()
