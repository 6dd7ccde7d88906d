#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Peers on another host that are killed without a word: who is connected to one is told, whether the host has
other processes of ours or none, whether something is outstanding or nothing. And peers that only seem to be:
stopped ones, one whose host hands the port over to another user, one of whom somebody lies.

usage: killed.py BUILD_DIR [--check] [PATTERN...]
"""
import os
import re
import select
import signal
import subprocess
import sys
import time

import hosts
import paths  # noqa: F401
import harness
import suite

PORT = 7471
LIMIT_S = 20.0
DEATH_S = 5.0  # to notice a death: two seconds, and what a busy machine takes
LONG_ENOUGH_S = 4.0  # to be taken for dead
USERS = (54321, 54322)
MANY = 200
CLIENTS = 6


class Failed(Exception):
    """What a program has not done."""


class Peer:
    """killed.c on a host. With a user: as that user."""

    def __init__(self, build, host, words, user=None):
        prefix = host.endpoint(build, user=user).prefix
        command = [
            *prefix,
            os.path.join(build, "verbatim"),
            "run",
            os.path.join(build, "tests", "net", "killed"),
            *words,
        ]
        self.name = f"{words[0]} on {host.name}"
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
        self.said = ""

    def tell(self, word):
        self.process.stdin.write(f"{word}\n".encode())

    def signal(self, number):
        self.process.send_signal(number)

    def listen(self, seconds):
        """Takes what it says within this time, or a part of it; False: nothing more comes."""
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return True
        text = self.process.stdout.read(4096).decode(errors="replace")
        self.said += text
        return bool(text)

    def expect(self, word, seconds=LIMIT_S):
        """Returns when it has said a word, that and what was before being forgotten."""
        limit = harness.Limit(seconds)
        while not (found := re.search(rf"^{word}$", self.said, re.MULTILINE)):
            if not limit.left() or not self.listen(limit.left()):
                raise Failed(f'{self.name} has not said "{word}", but "{self.said}"')
        self.said = self.said[found.end() :]

    def expect_nothing(self, seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self.listen(left):
            pass
        if self.said.strip():
            raise Failed(f'{self.name} has said "{self.said}"')

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Killed(suite.Suite):
    NAME = "killed"
    QUICK = (r".",)

    def parts(self):
        return (self.between_two_hosts,)

    def between_two_hosts(self):
        with hosts.Network() as network:
            self.a, self.b = network.host("a"), network.host("b")
            network.join(self.a, self.b)
            for work in ("", "hang", "stream"):
                with_work = {
                    "": "idle",
                    "hang": "with one request open",
                    "stream": "in the middle of a stream",
                }[work]
                for role in ("server", "client"):
                    self.case(f"a {role} that is alone, {with_work}", self.killed, role, work, ())
                    self.case(
                        f"a {role} beside a holder of the port, {with_work}",
                        self.killed,
                        role,
                        work,
                        ("before",),
                    )
                    self.case(
                        f"a {role} that holds the port first, {with_work}",
                        self.killed,
                        role,
                        work,
                        ("after",),
                    )
            self.case("a server that is alone, over IPv6", self.killed, "server", "", (), ipv6=True)
            self.case(
                f"a server with {MANY} connections that is alone",
                self.killed,
                "server",
                "",
                (),
                connections=MANY,
            )
            self.case(
                f"a server with {MANY} connections beside another process",
                self.killed,
                "server",
                "",
                ("before",),
                connections=MANY,
            )
            for beside in ((), ("before",)):
                self.case(f"a server that is stopped, {'not ' * bool(beside)}alone", self.stopped, beside)
            self.case("clients of a host with a stopped process", self.beside_a_stopped_one)
            name = "another user's process takes the port"
            self.guarded(name, lambda: self.case(name, self.handed_over))
            self.case("messages of a living peer that come back", self.slandered)

    def case(self, name, function, *args, **options):
        if not self.selected(name):
            return
        self.peers = []
        started = time.monotonic()
        try:
            function(*args, **options)
            reason = ""
        except Failed as failed:
            reason = str(failed)
        finally:
            for peer in self.peers:
                peer.end()
        self.add(name, reason)
        print(f"# {time.monotonic() - started:.2f} s")

    def start(self, host, *words, user=None):
        self.peers.append(Peer(self.build, host, [str(word) for word in words], user))
        return self.peers[-1]

    def bystander(self, host, user=None):
        """A process of ours that has nothing to do with it."""
        host_address = host.interfaces[0].v4
        self.start(host, "serve", host_address, PORT + len(self.peers) + 1, user=user).expect("ready")

    def pair(self, server_host, connections=1, ipv6=False, user=None):
        """A server on one host, its client on the other: connected."""
        client_host = self.b if server_host is self.a else self.a
        interface = server_host.interfaces[0]
        words = (interface.v6 if ipv6 else interface.v4, PORT, connections)
        server = self.start(server_host, "serve", *words, user=user)
        server.expect("ready")
        client = self.start(client_host, "connect", *words)
        server.expect("connected")
        client.expect("connected")
        return server, client

    def killed(self, role, work, beside, connections=1, ipv6=False):
        """The victim is on host a."""
        if "before" in beside:
            self.bystander(self.a)
        server, client = self.pair(self.a if role == "server" else self.b, connections, ipv6)
        victim, survivor = (server, client) if role == "server" else (client, server)
        if "after" in beside:
            self.bystander(self.a)
        if work:
            survivor.tell(work)
            time.sleep(0.2)
        victim.signal(signal.SIGKILL)
        started = time.monotonic()
        survivor.expect("disconnected", DEATH_S)
        print(f"# told after {time.monotonic() - started:.2f} s")
        survivor.expect("flushed")

    def stopped(self, beside):
        if beside:
            self.bystander(self.a)
        server, client = self.pair(self.a)
        server.signal(signal.SIGSTOP)
        client.expect_nothing(LONG_ENOUGH_S)
        server.signal(signal.SIGCONT)
        self.must_work(server, client)

    def beside_a_stopped_one(self):
        """Requests go to any process that has the port. The stopped one gets some and passes none on."""
        self.bystander(self.a)
        self.peers[0].signal(signal.SIGSTOP)
        address = self.a.interfaces[0].v4
        server = self.start(self.a, "serve", address, PORT, CLIENTS)
        server.expect("ready")
        clients = [self.start(self.b, "connect", address, PORT) for _ in range(CLIENTS)]
        for peer in (server, *clients):
            peer.expect("connected")
        self.must_work(server, *clients)

    def must_work(self, *peers):
        for peer in peers:
            peer.tell("write")
            peer.expect("written")

    def handed_over(self):
        """The server's user gets the port when the one who has it is gone."""
        hosts.needs_user(self.build, USERS[0])
        self.bystander(self.a, user=USERS[0])
        server, client = self.pair(self.a, user=USERS[1])
        self.must_work(server, client)
        self.peers[0].signal(signal.SIGKILL)
        client.expect_nothing(LONG_ENOUGH_S)
        self.must_work(server, client)

    def slandered(self):
        """Each message of the connection manager to the server is said to have found nobody. So the
        connection is made before."""
        server, client = self.pair(self.a)
        liar = self.a.popen(
            [
                sys.executable,
                os.path.join(os.path.dirname(__file__), "liar.py"),
                self.a.interfaces[0].name,
                self.a.interfaces[0].v4,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            for peer in (client, server):
                peer.expect_nothing(LONG_ENOUGH_S)
            self.must_work(server, client)
        finally:
            liar.terminate()
            lies = len(liar.communicate()[0].splitlines())
        self.add("lies were told", "" if lies > 3 else f"only {lies}")


if __name__ == "__main__":
    sys.exit(suite.run(Killed, __doc__))
