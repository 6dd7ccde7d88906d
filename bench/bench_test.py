#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What bench.py makes of runs: rounds, ratios, goals, runs that fail, figures in outputs, charts. Nothing is
measured; TAP.

usage: bench_test.py [FOLDER_OF_PROGRAMS]
"""
import contextlib
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from xml.dom import minidom

import paths  # noqa: F401
import instructions
import lab
import lines
import patterns
import report
import svg
import tools
import unmodified
from experiment import (
    Experiment,
    Failed,
    NotMeasured,
    Outputs,
    Row,
    at_least,
    at_most,
    beside_other_build,
    line,
    measure,
    show,
)

PROGRAMS = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
LIMIT_S = 300

PERFTEST_LATENCY = """
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]
 8       20000          1.18           19.24        1.22     	       1.23        	0.27   		1.26    		6.84
"""
PERFTEST_RATE = """
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 8          1000000          0.00               102.22 		   13.398401
"""
UCX = "                      100000      0.259    13.609    45.224        0.56       0.17       73479       22112\n"
IPERF3 = "[  5]   0.00-1.00   sec  1.52 GBytes  13029285 Kbits/sec                  receiver\n"


def scripted(*values):
    """A run that gives these one by one, raising those that are exceptions."""
    left = iter(values)

    def run():
        value = next(left)
        if isinstance(value, Exception):
            raise value
        return value

    return run


def compare(ours, peers, goal, **names):
    row = Row(
        "row",
        "ns",
        lambda outputs: outputs["verbatim"],
        goal,
        lambda outputs: outputs["peer"],
        "peer",
        **names,
    )
    return measure(Experiment({"verbatim": scripted(*ours), "peer": scripted(*peers)}, (row,)), 3)[0]


class Rounds(unittest.TestCase):
    def test_the_median_of_ratios_counts(self):
        found = compare((1, 20, 30), (10, 10, 10), at_most(2))
        self.assertEqual(found["ratios"], [0.1, 2, 3])
        self.assertEqual((found["judged"], found["met"]), (2, True))

    def test_a_goal_can_be_missed_either_way(self):
        self.assertFalse(compare((21, 21, 21), (10, 10, 10), at_most(2))["met"])
        self.assertFalse(compare((19, 19, 19), (10, 10, 10), at_least(2))["met"])

    def test_runs_take_turns(self):
        order = []
        runs = {name: lambda name=name: order.append(name) or 1.0 for name in ("verbatim", "peer")}
        measure(Experiment(runs, ()), 2)
        self.assertEqual(order, ["verbatim", "peer"] * 2)

    def test_without_a_peer_the_figure_is_judged(self):
        row = Row("rate", "/s", lambda outputs: outputs["verbatim"], at_least(5e3))
        found = measure(Experiment({"verbatim": scripted(4e3, 6e3, 7e3)}, (row,)), 3)[0]
        self.assertEqual((found["judged"], found["met"]), (6e3, True))

    def test_a_missing_peer_leaves_our_figures(self):
        found = compare((1, 2, 3), (NotMeasured("not installed"),), at_most(2))
        self.assertEqual((found["verbatim"], found["judged"], found["met"]), ([1, 2, 3], None, None))
        self.assertIn("not measured: not installed", line(found))

    def test_a_peer_of_nothing_is_a_failure_of_its_round(self):
        found = compare((1, 2, 3), (0.0, 1, 1), at_most(9))
        self.assertEqual((found["ratios"], found["failed"].split(",")[0]), ([2, 3], "peer has 0"))

    def test_a_failure_is_kept_and_not_tried_again(self):
        found = compare((1, Failed("killed")), (10, 10, 10), at_most(2))
        self.assertEqual((found["verbatim"], found["failed"]), ([1], "killed"))


class Builds(unittest.TestCase):
    """A build beside another."""

    def found(self, unit, new, old):
        row = Row(
            "row", unit, lambda outputs: outputs["verbatim"], None, lambda outputs: outputs["peer"], "peer"
        )
        unused = scripted(Failed("the peer ran"))
        pair = [Experiment({"verbatim": scripted(*ran), "peer": unused}, (row, row)) for ran in (new, old)]
        return measure(beside_other_build(*pair), 3)

    def test_only_what_the_rows_ask_for_runs(self):
        (found,) = self.found("ns", (2, 4, 6), (1, 2, 3))
        self.assertEqual((found["verbatim"], found["peer_figures"]), ([2, 4, 6], [1, 2, 3]))
        self.assertEqual((found["peer"], found["judged"], found["met"]), ("the other build", 2, False))

    def test_slower_is_more_time_or_less_of_anything_else(self):
        self.assertTrue(self.found("ns", (1, 1, 1), (2, 2, 2))[0]["met"])
        self.assertFalse(self.found("B/s", (1, 1, 1), (2, 2, 2))[0]["met"])
        self.assertTrue(self.found("B/s", (2, 2, 2), (1, 1, 1))[0]["met"])


class Figures(unittest.TestCase):
    def test_perftest(self):
        self.assertEqual(tools.latency(8)(PERFTEST_LATENCY), 1.22)
        self.assertEqual(tools.bandwidth(8)(PERFTEST_RATE), 102.22 * (1 << 20))
        self.assertEqual(tools.message_rate(8)(PERFTEST_RATE), 13398401)

    def test_a_figure_of_nothing_is_a_failure(self):
        self.assertRaises(Failed, tools.bandwidth(8), PERFTEST_RATE.replace("102.22", "0.00"))
        self.assertRaises(Failed, tools.bandwidth(64), PERFTEST_RATE)

    def test_peers(self):
        self.assertEqual(tools.ucx_latency_ns(UCX), 259)
        self.assertEqual(tools.ucx_bandwidth(UCX), 0.17 * (1 << 20))
        self.assertEqual(tools.tcp_bandwidth(IPERF3), 13029285e3 / 8)
        self.assertEqual(tools.udp_latency_ns("8 bytes: 2.33 us, least 2.1\n"), 2330)
        self.assertEqual(tools.named("send_ns")("write_ns 3\nsend_ns 44.5\n"), 44.5)

    def test_units(self):
        self.assertEqual([show(value, "ns") for value in (70, 1500, 2.5e6)], ["70 ns", "1.5 µs", "2.5 ms"])
        self.assertEqual([show(value, "B/s") for value in (999.7e6, 12.34e9)], ["1000 MB/s", "12.3 GB/s"])


FI_PINGPONG = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
4k      5k      =5k      39m         0.17s    246.80      16.60       0.06
"""
RSTREAM = """name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer
custom    64k     20      100     250m        0.58s      3.64     144.10
"""


class Unmodified(unittest.TestCase):
    def test_figures(self):
        self.assertEqual(unmodified.libfabric_ns(FI_PINGPONG), 16600)
        self.assertEqual(unmodified.libfabric_bandwidth(FI_PINGPONG), 246.8e6)
        self.assertEqual(unmodified.rstream_ns(RSTREAM), 144100)
        self.assertEqual(unmodified.rstream_bandwidth(RSTREAM), 3.64e9 / 8)
        self.assertRaises(Failed, unmodified.rstream_ns, "name bytes\n")

    def test_ratios_are_drawn_with_their_goals(self):
        rows = [
            {**compare((4, 4, 4), (2, 2, 2), at_most(3)), "what": "a & b"},
            compare((1, 1, 1), (4, 4, 4), at_least(1)),
            compare((NotMeasured("not installed"),), (1, 1, 1), at_most(2)),
        ]
        with tempfile.TemporaryDirectory() as directory:
            (path,) = unmodified.draw({"programs": {"rows": rows}}, pathlib.Path(directory))
            drawn = minidom.parse(str(path))
        classes = [each.getAttribute("class") for each in drawn.getElementsByTagName("rect")]
        self.assertEqual(classes, ["", "met", "missed"])
        goals = [line for line in drawn.getElementsByTagName("line") if line.getAttribute("class") == "goal"]
        self.assertEqual(len(goals), 2)

    def test_nothing_is_drawn_of_nothing(self):
        self.assertEqual(unmodified.draw({}, pathlib.Path("/")), [])


class Flows(unittest.TestCase):
    def found(self, *rates):
        said = [{"type": "output", "text": f"flow_{n}_bytes_per_s {rate}"} for n, rate in enumerate(rates)]
        said += [{"type": "start", "program": "send-1"}, {"type": "output", "text": "median_ns 1e+06"}]
        return lab.Found(lab.packet("cubic", lab.MTU), lab.figures(said))

    def test_a_link_is_full_of_packets_with_their_headers(self):
        full = lab.RATE * 1e6 / 8 * 1448 / 1538
        self.assertAlmostEqual(self.found(full / 4, full * 3 / 4).share(), 100)

    def test_packets_are_as_long_as_the_mtu_permits(self):
        self.assertEqual(lab.packet("rdma", lab.MTU), (1024, 1106))
        self.assertEqual(lab.packet("rdma", lab.LONG_MTU), (4096, 4178))
        self.assertEqual(lab.packet("bbr", lab.LONG_MTU), (4148, 4238))

    def test_fairness(self):
        self.assertAlmostEqual(self.found(5, 5, 5, 5).fairness(), 1)
        self.assertAlmostEqual(self.found(5, 0, 0, 0).fairness(), 0.25)
        self.assertEqual(self.found(0, 0).fairness(), 0)

    def test_figures_of_other_programs(self):
        self.assertEqual(lab.value("median_ns")(self.found()), 1e6)
        self.assertRaises(Failed, lab.value("p99_ns"), self.found())

    def test_a_congestion_control_that_is_missing_is_not_measured(self):
        reason = lab.reason_of("bbr", ["bbr: No such file or directory", "send-1: exit status 1"])
        self.assertIsInstance(reason, NotMeasured)
        self.assertIsInstance(lab.reason_of("bbr", ["bind: Address already in use"]), Failed)
        outputs = Outputs({"TCP CUBIC": self.found(5), "TCP BBR": reason})
        self.assertEqual(lab.best_of(lab.Found.rate, outputs), 5)
        outputs = Outputs(dict.fromkeys(lab.PEERS, reason))
        self.assertRaises(NotMeasured, lab.best_of, lab.Found.rate, outputs)

    def test_what_is_no_figure_is_passed_over(self):
        said = ["verbatim: VERBATIM_FOO is no setting", "flow_0_bytes_per_s 5", "rate nan", "", "h2 2 3"]
        self.assertEqual(
            lab.figures([{"type": "output", "text": text} for text in said]), {"flow_0_bytes_per_s": 5}
        )


class Counts(unittest.TestCase):
    def test_only_changes_beyond_the_tolerance_are_told(self):
        accepted = {"counts": {"a": 100, "b": 100, "c": 100}, "compiler": ""}
        now = {"counts": {"a": 102, "b": 104, "c": 96, "new": 5}, "compiler": "gcc"}
        self.assertEqual(instructions.changes(now, accepted), {"b": 0.04, "c": -0.04})

    def test_patterns_stand_beside_one_piece_of_as_many_bytes(self):
        calls = ("post_recv", "post_send", "poll_cq, receiver", "poll_cq, sender", "poll_cq, empty")
        cost = {"64 B": 100, "64 B, SRQ": 151, "8 KiB": 200, "8 KiB, SRQ": 300}
        counts = {f"pattern, {name}: {call}": each for name, each in cost.items() for call in calls}
        table = patterns.table({"local, send: post_send": 3, **counts})[2:]
        self.assertEqual(
            table,
            [
                "| 64 B | 300 | 1.00 × |  |",
                "| 64 B, SRQ | 453 | 1.51 × | **beyond 1.5 ×** |",
                "| 8 KiB | 600 | 1.00 × |  |",
                "| 8 KiB, SRQ | 900 | 1.50 × |  |",
            ],
        )
        self.assertEqual(patterns.table({"local, send: post_send": 3}), [])


class Charts(unittest.TestCase):
    def test_it_is_xml_with_all_lines(self):
        series = [("ours & theirs", True, [(8, 70.0), (64, 90.0)]), ("peer", False, [(8, 60.0)])]
        drawn = minidom.parseString(svg.chart("title", series, str, str))
        self.assertEqual(len(drawn.getElementsByTagName("polyline")), 2)
        self.assertEqual(len(drawn.getElementsByTagName("circle")), 3)

    def test_one_size_alone_is_drawn(self):
        drawn = minidom.parseString(svg.chart("title", [("ours", True, [(8, 70.0)])], str, str))
        self.assertEqual(len(drawn.getElementsByTagName("circle")), 1)

    def test_axes_hold_all_figures(self):
        for low, high in ((0.5, 3), (7, 7), (1, 1e6), (45, 180)):
            marks = svg.ticks(low, high)
            self.assertTrue(marks[0] <= low and marks[-1] >= high, (low, high, marks))
            self.assertGreater(len(marks), 1)

    def test_names_do_not_overlap(self):
        places = svg.spread([100, 101, 102, 300])
        self.assertTrue(all(abs(a - b) >= svg.LABEL_STEP for i, a in enumerate(places) for b in places[:i]))


class Reports(unittest.TestCase):
    ABOUT = {
        **dict.fromkeys(("processor", "virtualization", "kernel", "system", "commit"), "x"),
        "processors": 2,
        "memory_kib": 1 << 20,
        "packages": {},
    }

    def test_settings_of_the_environment_are_told(self):
        with unittest.mock.patch.dict(os.environ, {"VERBATIM_LOCAL": "off", "VERBATIM_TEST_RUN": "1"}):
            self.assertEqual(report.settings()["VERBATIM_LOCAL"], "off")
            self.assertNotIn("VERBATIM_TEST_RUN", report.settings())
        told = report.describe({**self.ABOUT, "settings": {"VERBATIM_LOCAL": "off"}})
        self.assertTrue(told.endswith("commit x; under VERBATIM_LOCAL=off"), told)
        self.assertTrue(report.describe(self.ABOUT).endswith("commit x"))  # of an older file


class Lines(unittest.TestCase):
    OWN, THEIRS, MARK = 0x10000000000, 0x20000000000, 0x404040

    def count(self, *accesses, marks=2):
        log = [f" S {self.OWN:x},8", f" M {self.MARK:x},8", *accesses, *[f" S {self.MARK:x},8"] * (marks - 1)]
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "log"
            path.write_text(
                "\n".join(["==1== I speak", "I  04000000,3", *log, f" S {self.OWN:x},8"]) + "\n",
                encoding="ascii",
            )
            return lines.count(path, self.MARK, self.OWN, [self.THEIRS])

    def test_what_lies_between_the_marks_counts(self):
        stores, strange, loads = self.count(
            f" S {self.OWN + 64:x},8",
            f" M {self.OWN + 120:x},8",
            f" L {self.OWN:x},8",
            f" L {self.THEIRS + 128:x},4",
        )
        self.assertEqual((dict(stores), dict(strange), dict(loads)), ({1: 2}, {}, {2: 1}))

    def test_a_store_into_the_others_arena_is_strange(self):
        self.assertEqual(dict(self.count(f" S {self.THEIRS:x},8")[1]), {0: 1})

    def test_a_mark_that_is_missing_is_a_failure(self):
        with self.assertRaises(Failed):
            self.count(marks=1)

    def test_lines_are_told_by_their_readers(self):
        busy, ack = (lines.QPS + at for at in (128, 64))
        rows = lines.table({"0": {busy // 64: 128, ack // 64: 64}, "1": {}}, {"0": {}, "1": {ack // 64: 32}})
        self.assertEqual(
            [(row["part"], row["read"], row["stores"]) for row in rows],
            [("a queue pair: ack", True, 0.5), ("a queue pair: busy", False, 1.0)],
        )


@unittest.skipIf(PROGRAMS is None, "no folder of programs was given")
class Programs(unittest.TestCase):
    def test_a_child_that_fails_ends_its_parent(self):
        command = [PROGRAMS / "wakeup", "-1", "1023"]  # the child's CPU does not exist
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("a child failed\n", done.stderr)

    def test_a_flow_that_gets_nothing_through_is_told_of(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        command = [PROGRAMS / "flows", "receive", "reno", str(port), "1", "1", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
            peer = connected(port, receiver)
            peer.sendall(struct.pack("=II", 3, 0))
            said = receiver.communicate(timeout=LIMIT_S)[0]
            peer.close()
        self.assertEqual(said, "flow_3_bytes_per_s 0\n")

    def test_a_stream_of_packets_comes_whole(self):
        command = [PROGRAMS / "udp_stream", "-n", "2", "-p", str(free_udp_port())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            self.assertEqual(server.stdout.readline(), "ready\n")
            done = subprocess.run(
                [*command, "127.0.0.1"], capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        self.assertEqual((done.returncode, server.returncode), (0, 0), done.stderr)
        self.assertGreater(tools.named("bytes_per_s")(done.stdout), 0)

    def test_hellos_to_a_late_server_are_no_rounds(self):
        hello, message = b"\x22" + bytes(7), bytes(8)
        for options in ([], ["-w"]):
            with udp_client() as (client, server):
                command = [PROGRAMS / "udp_pingpong", *options, "-n", "1", "-p", str(server[1])]
                with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                    process.stdout.readline()  # "ready"
                    for said in (hello, hello, hello, message):
                        client.sendto(said, server)
                        self.assertEqual(answer(client)[0], said[0], options)
                self.assertEqual(process.returncode, 0)


def free_udp_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_port:
        any_port.bind(("", 0))
        return any_port.getsockname()[1]


@contextlib.contextmanager
def udp_client():
    """A socket, and the address of its server: with -w, that answers to the port behind its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.settimeout(LIMIT_S)
        yield client, ("127.0.0.1", client.getsockname()[1] - 1)


def answer(client):
    """The next datagram that is no ACK."""
    while (datagram := client.recv(100))[0] == 0x11:
        pass
    return datagram


def connected(port, server):
    """A connection to a server that may not listen yet."""
    while server.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise AssertionError("the server has ended")


class Tap(unittest.TextTestResult):
    """One line for each test."""

    def startTestRun(self):
        self.number = 0

    def told(self, verdict, test, remark=""):
        self.number += 1
        print(f"{verdict} {self.number} - {test.id().split('.', 1)[1]}{remark}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.told("ok", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.told("not ok", test)

    def addError(self, test, err):
        super().addError(test, err)
        self.told("not ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.told("ok", test, f" # SKIP {reason}")

    def stopTestRun(self):
        print(f"1..{self.number}")


if __name__ == "__main__":
    unittest.main(testRunner=unittest.TextTestRunner(stream=sys.stderr, resultclass=Tap))
