# SPDX-License-Identifier: BSD-2-Clause
"""Hosts to test between: network namespaces, joined by veth pairs, directly or through a switch that
misbehaves.

            ┌ a ────────┐                     ┌ b ────────┐
            │ eth0      │─────── direct ──────│ eth0      │
            └───────────┘                     └───────────┘
            ┌ a ────────┐   ┌ switch ─────┐   ┌ b ────────┐
            │ eth0      │───│ a0       b0 │───│ eth0      │
            └───────────┘   │ d0 ─delay─ d1│   └───────────┘
                            └─────────────┘
       ┌ b ────────┐   ┌ a, forwards IP ─┐   ┌ c ────────┐
       │ eth0      │───│ eth0       eth1 │───│ eth0      │
       └───────────┘   └─────────────────┘   └───────────┘

A namespace has no name: a process of ours holds it, which ends when its standard input does, that is, with
us. So nothing of the machine is touched, any number of runs go side by side, and nothing can be left behind.
An ordinary user must be root of a user namespace (harness.isolate).

Link number N has 10.77.N.0/24 and fd77:N::/64; hosts have the last byte 1 or 2.
"""
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time

import paths  # noqa: F401
import harness

CARRIER_LIMIT_S = 10.0
HELD = "echo held && exec cat"
# Segments leave a host one by one, so that a switch loses packets and a capture holds them, not whole
# batches.
SEGMENT_EARLY = "tx-udp-segmentation off tso off gro off tx off"

os.environ["PATH"] += ":/usr/sbin:/sbin"  # of nft, ethtool


class NotHere(Exception):
    """This machine cannot do what a test needs; says what."""


def run(*command, **options):
    """Runs a command; NotHere with what it said if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    except FileNotFoundError:
        raise NotHere(f"{command[0]} is not installed") from None
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"ended with {done.returncode}"
        raise NotHere(f"{' '.join(command)}: {said[:200]}")
    return done.stdout


def as_user(user):
    """The command that runs another as a user id."""
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")


def needs_user(build, user):
    """NotHere where programs cannot run as this user id, or not with the library: its folder may be closed to
    others."""
    if os.environ[harness.ISOLATED_BY] not in ("root", "network"):
        raise NotHere("to be a second user takes root")
    library = os.path.join(build, "lib", "libibverbs.so.1")
    if subprocess.run([*as_user(user), "test", "-r", library], check=False).returncode:
        raise NotHere(f"other users cannot read {library}")


def gid_index(table, addr):
    """The index of an address in what ibv_devinfo -v has shown of a device."""
    wanted = addr if ":" in addr else f"::ffff:{addr}"
    for index, gid in re.findall(r"GID\[ *(\d+)\]:\s+(\S+), RoCE v2", table):
        if gid == wanted:
            return int(index)
    raise AssertionError(f"{wanted} is not in the GID table:\n{table}")


@dataclasses.dataclass
class Interface:
    name: str
    v4: str
    v6: str
    link: int


class Host:
    """A network namespace. `prefix` runs a command in it, which ends when this process does."""

    def __init__(self, name):
        self.name = name
        self.interfaces = []
        self.holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", HELD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self.holder.stdout.readline() != "held\n":
            raise NotHere(f"no network namespace: {self.holder.communicate()[1].strip()}")
        self.prefix = ("setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{self.holder.pid}/ns/net")
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command, **options):
        return run("nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *command, **options)

    def sysctl(self, name, value):
        self.run("sh", "-c", f"echo {value} >/proc/sys/net/{name}")

    def popen(self, command, **options):
        return subprocess.Popen([*self.prefix, *command], **options)

    def add_interface(self, link, mtu):
        """Prepares the interface that a link has brought here."""
        last = 1 + link.hosts.index(self)
        interface = Interface(
            f"eth{len(self.interfaces)}",
            f"10.77.{link.number}.{last}",
            f"fd77:{link.number}::{last}",
            link.number,
        )
        self.run("ip", "link", "set", link.end_of(self), "name", interface.name)
        # No duplicate address detection: addresses are there at once.
        self.sysctl(f"ipv6/conf/{interface.name}/accept_dad", 0)
        self.run("ip", "address", "add", f"{interface.v4}/24", "dev", interface.name)
        self.run("ip", "address", "add", f"{interface.v6}/64", "dev", interface.name, "nodad")
        self.run("ip", "link", "set", interface.name, "mtu", str(mtu), "up")
        # The kernel makes the route to it a while later.
        while not self.run("ip", "-6", "route", "show", "table", "local", interface.v6):
            time.sleep(0.01)
        self.interfaces.append(interface)

    def route_through(self, router):
        """All else goes to the router's end of the first link."""
        link = self.interfaces[0].link
        end = next(interface for interface in router.interfaces if interface.link == link)
        self.run("ip", "route", "add", "default", "via", end.v4)
        self.run("ip", "-6", "route", "add", "default", "via", end.v6)

    def await_carrier(self):
        """The kernel tells of a link's other end after a moment; until then ports are down."""
        limit = harness.Limit(CARRIER_LIMIT_S)
        for interface in self.interfaces:
            while " UP " not in self.run("ip", "-brief", "link", "show", interface.name):
                if not limit.left():
                    raise AssertionError(f"{self.name}: {interface.name} does not come up")
                time.sleep(0.01)

    def offloads(self, settings):
        for interface in self.interfaces:
            self.run("ethtool", "-K", interface.name, *settings.split())

    def endpoint(self, build, number=0, ipv6=False, user=None):
        """An Endpoint on one of its interfaces; programs run as a user id of their own if one is given."""
        interface = self.interfaces[number]
        addr = interface.v6 if ipv6 else interface.v4
        prefix = self.prefix
        if user is not None:
            prefix = (*prefix, *as_user(user), "--pdeathsig", "KILL")
        return harness.Endpoint(
            self.name, f"vb_{interface.name}", addr, self._gid_index(build, interface, addr), prefix
        )

    def _gid_index(self, build, interface, addr):
        """The index of an address in the device's GID table, as ibv_devinfo shows it. Where that fails, the
        library is broken."""
        if harness.missing_programs("ibv_devinfo"):
            raise NotHere("ibv_devinfo is not installed")
        verbatim = os.path.join(build, "verbatim")
        try:
            table = self.run(verbatim, "run", "ibv_devinfo", "-v", "-d", f"vb_{interface.name}")
        except NotHere as failure:
            raise AssertionError(str(failure)) from None
        return gid_index(table, addr)

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()
        self.holder.stderr.close()


class Switch(Host):
    """Forwards frames between two ports and does harm to RoCE packets on the way, in both directions
    alike."""

    PORTS = ("a0", "b0")
    DETOUR = ("d0", "d1")

    def __init__(self):
        super().__init__("switch")
        self.sysctl("ipv6/conf/all/disable_ipv6", 1)
        self.sysctl("ipv6/conf/default/disable_ipv6", 1)
        self.delay = None

    def misbehave(self, loss=0.0, duplicates=0.0, late=0.0):
        """Shares of packets (0 to 1) that are lost, come twice, come late."""
        chains = [
            self._chain(way, loss, duplicates, late)
            for way in zip(self.PORTS, reversed(self.PORTS), self.DETOUR)
        ]
        self.run(
            "nft",
            "-f",
            "-",
            input="table netdev harm\ndelete table netdev harm\n"
            "table netdev harm {\n" + "\n".join(chains) + "\n}\n",
        )
        if late and not self.delay:
            self._start_delay()

    @staticmethod
    def _chain(way, loss, duplicates, late):
        here, there, detour = way
        rules = [
            f"udp dport 4791 numgen random mod 100000 < {round(share * 100000)} counter {verdict} comment {kind}"
            for kind, share, verdict in (
                ("loss", loss, "drop"),
                ("duplicates", duplicates, f"dup to {there}"),
                ("late", late, f"fwd to {detour}"),
            )
            if share
        ]
        lines = "\n".join([f"type filter hook ingress device {here} priority 0", *rules, f"fwd to {there}"])
        return f"chain from_{here} {{\n{lines}\n}}"

    def harm_done(self):
        """{kind: packets} since misbehave() was called, of both directions."""
        done = {}
        for count, kind in re.findall(
            r'counter packets (\d+) .* comment "(\w+)"', self.run("nft", "list", "ruleset")
        ):
            done[kind] = done.get(kind, 0) + int(count)
        return done

    def _start_delay(self):
        ways = [f"{self.DETOUR[1]}:{self.PORTS[1]}", f"{self.DETOUR[0]}:{self.PORTS[0]}"]
        self.delay = self.popen(
            [sys.executable, pathlib.Path(__file__).with_name("delay.py"), *ways],
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.delay.stdout.readline() != "ready\n":
            raise NotHere("delay.py does not start")

    def close(self):
        if self.delay:
            self.delay.kill()
            self.delay.wait()
            self.delay.stdout.close()
        super().close()


class Link:
    """What a veth pair between two hosts is called while it is being made."""

    def __init__(self, number, hosts):
        self.number = number
        self.hosts = hosts

    def end_of(self, host):
        return f"link{self.number}.{self.hosts.index(host)}"


class Network:
    """Some hosts and what joins them. To be used in a with statement."""

    def __init__(self):
        self.hosts = []
        self.links = 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.close()

    def host(self, name):
        self.hosts.append(Host(name))
        return self.hosts[-1]

    def _veth(self, first, first_name, second, second_name):
        first.run(
            "ip",
            "link",
            "add",
            first_name,
            "type",
            "veth",
            "peer",
            "name",
            second_name,
            "netns",
            str(second.holder.pid),
        )

    def join(self, first, second, mtu=1500):
        """A direct link."""
        link = Link(self.links, (first, second))
        self.links += 1
        self._veth(first, link.end_of(first), second, link.end_of(second))
        self._raise(link, mtu)

    def join_by_switch(self, first, second, mtu=1500):
        """A link through a Switch, which is returned."""
        link = Link(self.links, (first, second))
        self.links += 1
        switch = Switch()
        self.hosts.append(switch)
        for port, host in zip(Switch.PORTS, (first, second)):
            self._veth(host, link.end_of(host), switch, port)
        self._veth(switch, Switch.DETOUR[0], switch, Switch.DETOUR[1])
        for port in (*Switch.PORTS, *Switch.DETOUR):
            switch.run("ip", "link", "set", port, "mtu", str(mtu), "up")
        self._raise(link, mtu)
        for host in (first, second):
            host.offloads(SEGMENT_EARLY)
        switch.misbehave()
        return switch

    @staticmethod
    def _raise(link, mtu):
        for host in link.hosts:
            host.add_interface(link, mtu)
        for host in link.hosts:
            host.await_carrier()
