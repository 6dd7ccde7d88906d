#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""rdma-core's own test-suite, as Debian's python3-pyverbs brings it, on this library.

All modules run in one process under `verbatim run`; a test that crashes or hangs is recorded as such, and
what is left of each module goes on in a process of its own. The result is compared, test by test and in both
directions, with what is expected of this release of rdma-core, rdma-core/RELEASE.txt beside this file: a test
that fails is a failure, and so is one that is skipped, or passes, against what is written there. A test that
fails through the suite's own fault is written with the reason behind its name, and skipped; it is a failure
to pass. Of another release the nearest earlier one's expectations are taken: tests that these do not have are
new, and no failures, whatever they give. The table per module is left in
BUILD_DIR/apps-logs/rdma-core-suite/table.md, the reasons in results.txt. usage: rdma_core_suite.py BUILD_DIR
[--update] [--device DEV --gid N] [PATTERN...] """
import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys

import harness

SUITE = pathlib.Path("/usr/share/doc/rdma-core/tests")
PYTHON = "/usr/bin/python3"  # the one that Debian's pyverbs is built for
HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = HERE / "rdma-core"
VENDOR = re.compile(r"test_(mlx5|efa|efadv|cuda)")
MACHINE = re.compile(
    r"huge pages|dmabuf|/dev/dri|root"
)  # reasons to skip that depend on the machine, not on the library
TEST_LIMIT_S = 120.0
NOT_RUN = ("error", "was not run")


def unpack(folder):
    """Copies the suite; the names of its modules."""
    folder.mkdir(parents=True)
    for source in SUITE.iterdir():
        text = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
        (folder / source.name.removesuffix(".gz")).write_bytes(text)
    return sorted(path.stem for path in folder.glob("test_*.py"))


class Driver:
    """A running suite_driver.py and the messages from it."""

    def __init__(self, options, folder, modules, patterns, log):
        receive, send = os.pipe()
        command = [
            os.path.join(options.build, "verbatim"),
            "run",
            PYTHON,
            str(HERE / "suite_driver.py"),
            str(folder),
            str(send),
            options.device,
            str(options.gid),
            ",".join(modules),
            *patterns,
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(send,),
            start_new_session=True,
        )
        os.close(send)
        self.receive = receive
        self.pending = b""

    def message(self, limit_s):
        """The next message; None at the driver's end; raises TimeoutError."""
        limit = harness.Limit(limit_s)
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.receive], [], [], 1.0)
            if not ready and limit.left():
                continue
            if not ready:
                raise TimeoutError
            chunk = os.read(self.receive, 65536)
            if not chunk:
                return None
            self.pending += chunk
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.close(self.receive)
        return self.process.wait()


def run_some(options, folder, modules, patterns, log, results):
    """Runs tests until one of them takes the process down: those of some modules whose ids match a
    pattern."""
    driver = Driver(options, folder, modules, patterns, log)
    current = None
    try:
        while message := driver.message(TEST_LIMIT_S):
            if "test" in message:
                results.setdefault(message["test"], NOT_RUN)
            elif "start" in message:
                current = message["start"]
            else:
                results[message["end"]] = (message["status"], message["reason"])
                current = None
        status = driver.process.wait(TEST_LIMIT_S)
    except (TimeoutError, subprocess.TimeoutExpired):
        results[current or f"tests.{modules[0]}"] = ("timeout", f"no end within {TEST_LIMIT_S:.0f} s")
        return
    finally:
        driver.end()
    if current:
        results[current] = ("crash", f"process {harness.describe_exit(status)}")
    elif status != 0:
        results[f"tests.{modules[0]}"] = (
            "crash",
            f"process {harness.describe_exit(status)} outside of a test",
        )


def run_modules(options, folder, modules, log):
    """{test id: (status, reason)}"""
    results = {}
    run_some(options, folder, modules, options.patterns, log, results)
    for module in modules:
        while left := [
            test
            for test, result in results.items()
            if result == NOT_RUN and test.startswith(f"tests.{module}.")
        ]:
            run_some(options, folder, [module], [f"^{re.escape(test)}$" for test in left], log, results)
            if results[left[0]] == NOT_RUN:
                break
    return results


def selected(options, name):
    return not options.patterns or any(re.search(pattern, name) for pattern in options.patterns)


def on_the_wire():
    """Both ends of a connection are of one process here; they talk as two hosts do with this setting."""
    return os.environ.get("VERBATIM_LOCAL") == "off"


def vendor_tests(folder, module):
    return len(
        re.findall(r"^    def test_", (folder / f"{module}.py").read_text(encoding="utf-8"), re.MULTILINE)
    )


def table(results, vendor):
    """The markdown table: a row per module and the sum."""
    rows = collections.defaultdict(collections.Counter)
    for test, (status, _) in results.items():
        rows[test.split(".")[1]][status] += 1
        rows["all of these"][status] += 1
    lines = ["| module | ok | skipped | failed | error |", "| --- | --- | --- | --- | --- |"]
    for module, counter in sorted(rows.items(), key=lambda row: (row[0] == "all of these", row[0])):
        errors = counter["error"] + counter["crash"] + counter["timeout"]
        lines.append(
            f"| {module} | {counter['ok']} | {counter['skipped']} | {counter['failed']} | {errors} |"
        )
    lines.append("")
    lines.append(f"Not run: {sum(vendor.values())} tests for one vendor's devices, in {len(vendor)} modules.")
    return "\n".join(lines) + "\n"


def read_expected(number):
    """What is expected of a release, and the release that this is about."""
    known = sorted(int(path.stem) for path in EXPECTED.glob("*.txt"))
    about = max((r for r in known if r <= number), default=known[0])
    return read_rows(about), about


def read_rows(number):
    """{test: (status, why this is the suite's own fault)}; the reason is empty but for tests that fail."""
    rows = (
        line.split(maxsplit=2)
        for line in (EXPECTED / f"{number}.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    return {test: (status, " ".join(why)) for status, test, *why in rows}


def write_expected(results, number):
    """Reasons are written by hand, and kept."""
    before = read_rows(number) if (EXPECTED / f"{number}.txt").exists() else {}
    lines = [
        f"# What rdma-core {number}'s test-suite gives on this library, one test a line; rdma_core_suite.py --update."
    ]
    for test, (status, reason) in sorted(results.items()):
        either = status == "skipped" and MACHINE.search(reason)
        known, why = before.get(test, ("", ""))
        lines.append(f"{'ok|skipped' if either else status} {test} {why if known == status else ''}".rstrip())
    (EXPECTED / f"{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def judge(test, results, row, is_known):
    """row: what is expected, None if nothing is; is_known: that is about this very release."""
    wanted, why = row or (None, "")
    status, reason = results.get(test, ("missing", "the suite has no such test"))
    story, reason = reason, (reason.strip().splitlines() or [""])[-1]
    if status == "error" and "Operation not permitted" in reason and not harness.may_open_packet_sockets():
        return harness.Outcome("skip", "raw packets are not for this user")
    if status in ("ok", "skipped") and status in (wanted or ("" if is_known else status)).split("|"):
        return harness.Outcome("skip" if status == "skipped" else "ok", reason)
    if why and status == wanted:
        return harness.Outcome("skip", f"fails by itself: {why}")
    if not wanted and not is_known:
        return harness.Outcome("skip", f"new in this release: {status}: {reason}")
    return harness.Outcome("FAIL", f"{status}, expected {wanted}: {reason}", client_output=story)


def run_suite(options, log_dir):
    """({test id: (status, reason)}, {vendor module: number of tests})"""
    folder = log_dir / "tests"
    modules = unpack(folder)
    vendor = {module: vendor_tests(folder, module) for module in modules if VENDOR.match(module)}
    with open(log_dir / "suite.log", "wb") as log:
        return (
            run_modules(options, folder, [module for module in modules if module not in vendor], log),
            vendor,
        )


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build")
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--update", action="store_true", help="write what is found as what is expected")
    parser.add_argument("--device")
    parser.add_argument("--gid", type=int)
    options = parser.parse_intermixed_args()
    if options.update and options.patterns:
        parser.error("--update writes what all tests give")
    endpoint = harness.endpoints()[-1]
    options.device = options.device or endpoint.dev
    options.gid = endpoint.gid if options.gid is None else options.gid
    return options


def main():
    harness.isolate()
    options = parse_options()
    report = harness.Report(sys.argv[0], options.build)
    if not (SUITE / "run_tests.py").exists() or not os.path.exists("/usr/lib/python3/dist-packages/pyverbs"):
        report.add("rdma-core's suite", harness.Outcome("skip", "no python3-pyverbs with its documentation"))
        return report.finish()
    harness.require_library(options.build)
    log_dir = pathlib.Path(
        harness.log_directory(options.build, "rdma-core-suite" + ("-wire" if on_the_wire() else ""))
    )
    results, vendor = run_suite(options, log_dir)
    (log_dir / "table.md").write_text(table(results, vendor), encoding="utf-8")
    (log_dir / "results.txt").write_text(
        "".join(
            f"{status} {test}\n    {reason.strip()}\n" for test, (status, reason) in sorted(results.items())
        ),
        encoding="utf-8",
    )
    number = harness.release("python3-pyverbs")
    if options.update:
        write_expected(results, number)
    expected, about = read_expected(number)
    expected = {test: row for test, row in expected.items() if selected(options, test)}
    print(f"# rdma-core {number}; expected is what {about} gives")
    for test in sorted(results.keys() | (expected.keys() if about == number else set())):
        report.add(test.removeprefix("tests."), judge(test, results, expected.get(test), about == number))
    print("# " + table(results, vendor).strip().replace("\n", "\n# "))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
