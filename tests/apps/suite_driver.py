# SPDX-License-Identifier: BSD-2-Clause
"""Runs tests of rdma-core's suite inside one process and tells what happens over a pipe, one JSON object per
line: {"test": ID} for each that is going to run, then {"start": ID} before a test and {"end": ID, "status":
ok|skipped|failed|error, "reason": TEXT} after it.

Nothing of the suite is changed: it asks sysfs which network interface a device belongs to, and `verbatim run`
answers. usage: suite_driver.py FOLDER_OF_THE_SUITE PIPE_FD DEVICE GID_INDEX MODULE,... [PATTERN_OF_IDS...]
"""
import importlib
import importlib.util
import json
import multiprocessing
import os
import re
import sys
import unittest


class Teller(unittest.TestResult):
    def __init__(self, pipe):
        super().__init__()
        self.pipe = pipe
        self.verdict = None

    def tell(self, **message):
        self.pipe.write(json.dumps(message) + "\n")
        self.pipe.flush()

    def startTest(self, test):
        super().startTest(test)
        self.verdict = ("ok", "")
        self.tell(start=test.id())

    def stopTest(self, test):
        super().stopTest(test)
        self.tell(end=test.id(), status=self.verdict[0], reason=self.verdict[1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.verdict = ("skipped", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.verdict = ("failed", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.verdict = ("error", self.errors[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.verdict = ("failed", self._exc_info_to_string(err, test))

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.verdict = ("failed", "expected to fail")


def load(folder, modules):
    """The suite's package without its own loading of every module, then these modules."""
    sys.path.insert(0, folder)
    importlib.import_module("args_parser").parser.parse_args()
    package = importlib.util.module_from_spec(importlib.util.spec_from_loader("tests", loader=None))
    package.__path__ = [folder]
    sys.modules["tests"] = package
    return [importlib.import_module(f"tests.{module}") for module in modules]


def each_test(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from each_test(item)
        else:
            yield item


def main():
    folder, pipe_fd, device, gid, modules, *patterns = sys.argv[1:]
    sys.argv[1:] = ["--dev", device, "--gid", gid]
    os.set_inheritable(int(pipe_fd), False)
    multiprocessing.set_start_method("fork")  # the suite counts on it; Python 3.14 has another one
    with os.fdopen(int(pipe_fd), "w", encoding="utf-8") as pipe:
        result = Teller(pipe)
        loaded = map(unittest.defaultTestLoader.loadTestsFromModule, load(folder, modules.split(",")))
        wanted = [
            test
            for test in each_test(loaded)
            if not patterns or any(re.search(p, test.id()) for p in patterns)
        ]
        for test in wanted:
            result.tell(test=test.id())
        unittest.TestSuite(wanted).run(result)


main()
