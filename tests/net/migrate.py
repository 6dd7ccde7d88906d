#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
""" A virtual machine moves from one QEMU to another over RDMA: the firmware runs for a while, is stopped, and
the memory of both is compared. Prints one line when it is the same.

usage: migrate.py ADDRESS:PORT FOLDER FROM... -- TO...
FROM and TO: what starts a program on either host.
"""
import json
import pathlib
import socket
import subprocess
import sys
import time

MEMORY_MIB = 32
MACHINE = [
    "qemu-system-x86_64",
    "-machine",
    "pc,accel=tcg",
    "-cpu",
    "qemu64",
    "-m",
    str(MEMORY_MIB),
    "-nodefaults",
    "-display",
    "none",
]
LIMIT_S = 60


class Machine:
    def __init__(self, prefix, folder, name, *options):
        self.memory = folder / f"{name}.memory"
        path = folder / f"{name}.qmp"
        path.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [*prefix, *MACHINE, "-qmp", f"unix:{path},server=on,wait=off", *options]
        )
        connection = socket.socket(socket.AF_UNIX)
        self.wait_for(lambda: path.exists() and connection.connect_ex(str(path)) == 0)
        self.channel = connection.makefile("rw")
        self.channel.readline()
        self.ask("qmp_capabilities")

    def wait_for(self, condition):
        end = time.monotonic() + LIMIT_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"{self.memory.stem}: it ended, or took too long")
            time.sleep(0.1)

    def ask(self, command, **arguments):
        self.channel.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.channel.flush()
        while True:
            said = json.loads(self.channel.readline())
            if "error" in said:
                sys.exit(f"{command}: {said['error']['desc']}")
            if "return" in said:
                return said["return"]

    def save_memory(self):
        self.ask("pmemsave", val=0, size=MEMORY_MIB << 20, filename=str(self.memory))
        return self.memory.read_bytes()

    def end(self):
        self.channel.write('{"execute": "quit"}\n')
        self.channel.flush()
        return self.process.wait(LIMIT_S)


def main():
    place, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    between = sys.argv.index("--")
    target = Machine(sys.argv[between + 1 :], folder, "target", "-incoming", f"rdma:{place}")
    source = Machine(sys.argv[3:between], folder, "source", "-S")
    source.ask("cont")
    time.sleep(1)  # some firmware: whatever it has written by then is compared
    source.ask("stop")
    before = source.save_memory()
    source.ask("migrate", uri=f"rdma:{place}")
    source.wait_for(lambda: source.ask("query-migrate").get("status") in ("completed", "failed"))
    if (
        source.ask("query-migrate")["status"] != "completed"
        or target.save_memory() != before
        or not any(before)
    ):
        sys.exit("the memory has not moved")
    if source.end() or target.end():
        sys.exit("QEMU did not end well")
    print(f"{MEMORY_MIB} MiB moved")


if __name__ == "__main__":
    main()
