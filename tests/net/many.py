#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""1,000 connections between two hosts at once: they carry data, they are idle at no cost, they carry data
again.

usage: many.py BUILD_DIR [PATTERN...]
"""
import os
import re
import shlex
import sys

import hosts
import paths  # noqa: F401
import harness
import suite
from programs import ucmatose_case
from suite import Item

CONNECTIONS = 1000
LIMIT_S = 120.0


class Many(suite.Suite):
    NAME = "many"

    def parts(self):
        return (self.connections,)

    def case(self, options=""):
        """many.c on both sides."""
        command = f"{shlex.quote(os.path.join(self.build, 'tests', 'net', 'many'))} -d {{dev}} -g {{gid}} -p {{port}} -n {CONNECTIONS} {options}"
        shows = ("^all data right$",)
        return harness.Case(
            f"{CONNECTIONS} connections",
            server=command,
            client=f"{command} {{addr}}",
            client_shows=shows,
            server_shows=shows,
            limit_s=LIMIT_S,
        )

    def connections(self):
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            switch = network.join_by_switch(a, b)
            for topic, harm in (("between two hosts", {}), ("with 1 % lost", {"loss": 0.01})):
                switch.misbehave(**harm)
                name = f"{CONNECTIONS} connections {topic}"
                if self.selected(name):
                    outcome = self.run_item(Item(self.case(), ()), a, b, topic.replace(" ", "_"))
                    self.report.add(name, outcome)
                    for who, output in (("server", outcome.server_output), ("client", outcome.client_output)):
                        for line in re.findall(r"^\d+ (?:idle )?connections.*$", output, re.MULTILINE):
                            print(f"# {who}: {line}")
            switch.misbehave()
            self.run_items(
                "between two hosts",
                a,
                b,
                [Item(ucmatose_case(f"-c {CONNECTIONS} -C 10 -S 3000", limit_s=LIMIT_S), ())],
            )


if __name__ == "__main__":
    sys.exit(suite.run(Many, __doc__))
