#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's unmodified programs between two hosts whose switch loses, doubles and delays RoCE packets: all
data must be right.

usage: loss.py BUILD_DIR [PATTERN...] A pattern is a regular expression over the names of cases; logs and
captures stay in BUILD_DIR/apps-logs/loss. Only programs that use reliable connections: others have a right to
what a switch does to them. """
import sys

import hosts
import paths  # noqa: F401
import figures
import suite
from programs import perftest, pingpong, rping, ucmatose_case
from suite import Item

BANDWIDTH_BYTES = 65536
LIMIT_S = 60.0


def items(share):
    """The programs, with the fewer rounds the more is lost."""
    few, some, many = (2, 5, 20) if share > 0.1 else (5, 20, 60)
    return [
        Item(case, ())
        for case in (
            rping(f"-C {many} -S 3000", limit_s=LIMIT_S),
            rping(f"-C {some} -S 65535", limit_s=LIMIT_S),
            pingpong("ibv_rc_pingpong", f"-c -n {2 * many}", limit_s=LIMIT_S),
            pingpong("ibv_rc_pingpong", f"-c -s 100001 -n {some}", limit_s=LIMIT_S),
            pingpong("ibv_srq_pingpong", f"-c -n {some}", limit_s=LIMIT_S),
            ucmatose_case(f"-c {few} -C 10 -S 5000", limit_s=LIMIT_S),
            *(
                perftest(f"ib_{operation}_bw", iterations=2 * some, limit_s=LIMIT_S)
                for operation in ("send", "write", "read", "atomic")
            ),
            perftest("ib_write_bw", "-R", iterations=2 * some, limit_s=LIMIT_S),
        )
    ]


class Loss(suite.Suite):
    NAME = "loss"
    QUICK = (r"^(?!.*IPv6).*\b5 % lost$",)
    HARM = {
        "1 % lost": {"loss": 0.01},
        "5 % lost": {"loss": 0.05},
        "20 % lost": {"loss": 0.2},
        "1 % twice": {"duplicates": 0.01},
        "5 % late": {"late": 0.05},
        "all of it": {"loss": 0.01, "duplicates": 0.01, "late": 0.03},
    }

    def parts(self):
        return self.programs, self.bandwidth

    def programs(self):
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            switch = network.join_by_switch(a, b)
            for topic, harm in self.HARM.items():
                switch.misbehave(**harm)
                if topic == "all of it":
                    self.captured(topic, a, b, items(0.0))
                else:
                    self.run_items(topic, a, b, items(harm.get("loss", 0.0)))
                self.judge_switch(topic, switch, harm)
            switch.misbehave(loss=0.05)
            self.run_items("5 % lost", a, b, [Item(item.case, (), ipv6=True) for item in items(0.0)[:2]])

    def judge_switch(self, topic, switch, harm):
        """The switch must have done what it was told to."""
        name = f"the switch has done harm: {topic}"
        if self.options.patterns or not self.selected(name):
            return
        done = switch.harm_done()
        print(f"# {topic}: {', '.join(f'{count} {kind}' for kind, count in done.items()) or 'nothing'}")
        missing = [kind for kind in harm if not done.get(kind)]
        self.add(name, f"nothing of {', '.join(missing)}" if missing else "")

    def bandwidth(self):
        """How much of a link's bandwidth ib_write_bw keeps. Nothing about it is asserted but that it runs."""
        for mtu in (1500, 4200):
            with hosts.Network() as network:
                a, b = network.host("a"), network.host("b")
                switch = network.join_by_switch(a, b, mtu=mtu)
                case = perftest("ib_write_bw", f"-s {BANDWIDTH_BYTES}", iterations=5000, limit_s=LIMIT_S)
                rates = []
                for loss in (0.0, 0.01):
                    switch.misbehave(loss=loss)
                    topic = f"MTU {mtu}, {loss * 100:.0f} % lost"
                    if not self.selected(f"{case.name} {topic}"):
                        continue
                    outcome = self.run_item(Item(case, ()), a, b, topic)
                    self.report.add(f"{case.name} {topic}", outcome)
                    rates.append(figures.bandwidth_bytes(outcome.client_output, BANDWIDTH_BYTES))
                if len(rates) == 2 and all(rates):
                    print(
                        f"# ib_write_bw, MTU {mtu}: {figures.show_rate(rates[0])} without loss, "
                        f"{figures.show_rate(rates[1])} with 1 % lost: {rates[1] / rates[0]:.0%}"
                    )


if __name__ == "__main__":
    sys.exit(suite.run(Loss, __doc__))
