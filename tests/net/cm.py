#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Connections between two hosts whose switch loses or doubles single messages of the connection manager;
destinations that are nowhere.

usage: cm.py BUILD_DIR [--check] [PATTERN...]
A pattern is a regular expression over the names of cases; logs stay in BUILD_DIR/apps-logs/cm.
"""
import re
import sys

import hosts
import paths  # noqa: F401
import suite
from harness import Case
from programs import perftest, rping, ucmatose_case, udaddy_case
from suite import Item

# Attribute ids, at their place behind UDP header, BTH, DETH and the first 16 bytes of the MAD.
MESSAGES = {
    "REQ": 0x10,
    "REP": 0x13,
    "RTU": 0x14,
    "DREQ": 0x15,
    "DREP": 0x16,
    "SIDR_REQ": 0x17,
    "SIDR_REP": 0x18,
}
ATTRIBUTE_ID = f"@th,{(8 + 12 + 8 + 16) * 8},16"
MAD_UDP_BYTES = 8 + 12 + 8 + 256 + 4
NOWHERE_ON_LINK = "10.77.1.77"
NOWHERE = "192.0.2.77"


def of_kind(message):
    return f"udp dport 4791 udp length {MAD_UDP_BYTES} {ATTRIBUTE_ID} {MESSAGES[message]}"


def make_rules(switch, rule):
    """One rule of nftables before all is forwarded, in both directions; {there} is the other port."""
    chains = [
        f"chain from_{here} {{\ntype filter hook ingress device {here} priority 0\n{rule.format(there=there)}\n"
        f"fwd to {there}\n}}"
        for here, there in zip(switch.PORTS, reversed(switch.PORTS))
    ]
    switch.run(
        "nft",
        "-f",
        "-",
        input="table netdev harm\ndelete table netdev harm\ntable netdev harm {\n"
        + "\n".join(chains)
        + "\n}\n",
    )


def times(switch):
    """How many packets the rule has met."""
    return sum(int(n) for n in re.findall(r"counter packets (\d+)", switch.run("nft", "list", "ruleset")))


class Cm(suite.Suite):
    NAME = "cm"
    QUICK = (
        r"(REP|SIDR_REQ) lost$",
        r"all messages twice$",
        r"no neighbour nowhere$",
        r"of two MTUs, from the larger$",
    )

    def parts(self):
        return self.messages, self.nowhere, self.two_mtus, self.link_local

    def messages(self):
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            switch = network.join_by_switch(a, b)
            for message in MESSAGES:
                datagrams = message.startswith("SIDR")
                item = Item(udaddy_case("-c 1") if datagrams else rping("-C 3"), ())
                # The first, the third and so on: what is repeated comes through.
                self.harmed(
                    f"{message} lost",
                    f"{of_kind(message)} numgen inc mod 2 < 1 counter drop",
                    item,
                    a,
                    b,
                    switch,
                )
                self.harmed(
                    f"{message} twice", f"{of_kind(message)} counter dup to {{there}}", item, a, b, switch
                )
            # Its server's listener is gone when the client repeats its REQ.
            self.harmed(
                "two REPs of three lost",
                f"{of_kind('REP')} numgen inc mod 3 < 2 counter drop",
                Item(perftest("ib_write_bw", "-R", iterations=20), ()),
                a,
                b,
                switch,
            )
            everything = f"udp dport 4791 udp length {MAD_UDP_BYTES} counter dup to {{there}}"
            self.harmed("all messages twice", everything, Item(ucmatose_case("-c 20"), ()), a, b, switch)

    def harmed(self, topic, rule, item, a, b, switch):
        if not self.selected(f"{item.name} {topic}"):
            return
        make_rules(switch, rule)
        self.run_items(topic, a, b, [item])
        self.add(f"the switch has done harm: {topic}", "" if times(switch) else "the rule has met no packet")

    def nowhere(self):
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            network.join(a, b)
            self.run_items(
                "nowhere",
                a,
                b,
                [
                    Item(
                        Case(
                            "rping, no neighbour",
                            client=f"rping -c -a {NOWHERE_ON_LINK} -C 1",
                            client_exit=255,
                            client_shows=(r"RDMA_CM_EVENT_ADDR_ERROR, error -110",),
                        ),
                        (),
                    ),
                    Item(
                        Case(
                            "rping, no route",
                            client=f"rping -c -a {NOWHERE} -C 1",
                            client_exit=255,
                            client_shows=(r"rdma_resolve_addr: Network is unreachable",),
                        ),
                        (),
                    ),
                ],
            )

    def link_local(self):
        """A link-local address means something on its interface alone, to this host too."""
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            network.join(a, b)
            found = re.search(r"inet6 (fe80:\S+)/", a.run("ip", "-6", "-o", "address", "show", "dev", "eth0"))
            if not found:
                raise hosts.NotHere("no link-local address on eth0")
            for client in (a, b):
                self.run_items(
                    f"link-local from {client.name}",
                    a,
                    client,
                    [Item(rping("-C 3", addr=f"{found[1]}%eth0"), ())],
                )

    def two_mtus(self):
        """Who has the smaller MTU can connect, and cannot be connected to: each end must cut messages
        alike."""
        with hosts.Network() as network:
            small, large = network.host("small"), network.host("large")
            network.join(small, large)
            for host in (small, large):
                host.offloads(hosts.SEGMENT_EARLY)
            large.run("ip", "link", "set", "eth0", "mtu", "4200")
            self.run_items("of two MTUs, from the smaller", large, small, [Item(rping("-C 3 -S 5000"), ())])
            self.run_items(
                "of two MTUs, from the larger",
                small,
                large,
                [
                    Item(
                        Case(
                            "rping",
                            server="rping -s -a {addr} -p {port}",
                            client="rping -c -a {addr} -p {port} -C 1",
                            client_exit=255,
                            client_shows=(r"RDMA_CM_EVENT_REJECTED, error 26",),
                            server_stays=True,
                        ),
                        (),
                    )
                ],
            )


if __name__ == "__main__":
    sys.exit(suite.run(Cm, __doc__))
