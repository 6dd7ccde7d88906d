# SPDX-License-Identifier: BSD-2-Clause
"""A guest with a stock kernel of Debian's, on the tap device of a host of tests/net: one of this machine's
kind with the kernel's rdma_rxe, or an arm64 one, for verbatim itself.

            ┌ host a, a namespace ┐          ┌ guest, in qemu ──────────────┐
            │ verbatim      eth0 ═╪══ tap ═══╪═ eth0  rxe0 (rdma_rxe)       │
            │                     │          │ Debian's programs, libraries │
            │ qemu, this process ─┼─ port ───┼─ agent.py                    │
            └─────────────────────┘          └──────────────────────────────┘

The processor is emulated, unless another accelerator is asked for: no module and no virtualisation of this
machine is used. The guest's root is this machine's, or for arm64 a folder of it, read-only, with a layer of
memory over it, so nothing is installed anywhere and nothing is left. Its end is that of this process.
kernel.sh prepares what it boots, arm64_root.sh the folder. """
import dataclasses
import json
import os
import signal
import socket
import subprocess

import paths  # noqa: F401
import harness
from hosts import Interface, NotHere, run

BOOT_LIMIT_S = 300
ANSWER_LIMIT_S = 300  # beyond what a request waits for by itself
MEMORY_MIB = 1536
MTU = 1500
MAC = "52:54:00:77:00:{:02x}"
EMULATED = "tcg,thread=multi"


class GuestFailure(Exception):
    """The guest died, or does not answer."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """What is emulated: the command, with the machine and its processor, and where that one's kernel says
    what it does."""

    qemu: tuple
    console: str


PC = Machine(("qemu-system-x86_64", "-M", "q35", "-cpu", "max"), "ttyS0")
ARM64 = Machine(("qemu-system-aarch64", "-M", "virt", "-cpu", "neoverse-n1"), "ttyAMA0")


def prepare(directory, machine=PC):
    """What it boots, in a directory of the build tree: for PC a kernel and a ramdisk, for ARM64 what arm64.sh
    says."""
    for program in (
        machine.qemu[0],
        "cpio",
        "depmod",
        "apt-get",
        *(("busybox",) if machine is PC else ("xz",)),
    ):
        run("sh", "-c", f"command -v {program}")
    script = "kernel.sh" if machine is PC else "arm64.sh"
    run(os.path.join(os.path.dirname(os.path.abspath(__file__)), script), directory)


class Guest:
    """A guest that boots; set_up() waits for it. Its cable ends in a tap device of `host`; `number` is its
    last byte of addresses."""

    def __init__(self, directory, host, tap, number=2, accelerator=EMULATED, machine=PC):
        self.machine = machine
        self.v4, self.v6 = f"10.77.1.{number}", f"fd77:1::{number}"
        self.mac = MAC.format(number)
        self.console = os.path.join(directory, f"console{number}.log")
        self._boot(directory, host, tap, accelerator)

    def _boot(self, directory, host, tap, accelerator):
        with open(os.path.join(directory, "version"), encoding="ascii") as version:
            kernel = os.path.join(directory, "kernel", "boot", f"vmlinuz-{version.read().strip()}")
        ours, theirs = socket.socketpair()
        fd = theirs.fileno()
        self.qemu = host.popen(
            [
                *self.machine.qemu,
                "-accel",
                accelerator,
                "-smp",
                "2",
                "-m",
                str(MEMORY_MIB),
                "-nodefaults",
                "-display",
                "none",
                "-monitor",
                "none",
                "-no-reboot",
                "-serial",
                f"file:{self.console}",
                "-kernel",
                kernel,
                "-initrd",
                os.path.join(directory, "initrd.img"),
                "-append",
                f"console={self.machine.console} panic=-1 oops=panic mitigations=off quiet net.ifnames=0 tsc=nowatchdog nowatchdog",
                "-virtfs",
                "local,path=/,mount_tag=machine,security_model=none,readonly=on,multidevs=remap",
                "-device",
                "virtio-serial",
                "-chardev",
                f"socket,id=control,fd={fd}",
                "-device",
                "virtserialport,chardev=control",
                "-netdev",
                f"tap,id=cable,ifname={tap},script=no,downscript=no",
                "-device",
                f"virtio-net-pci,netdev=cable,mac={self.mac}",
            ],
            pass_fds=(fd,),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.control = ours
        self.answers = ours.makefile("rb")

    def set_up(self):
        self.set_up_network()
        for module in ("ib_uverbs", "rdma_ucm"):
            self.run("modprobe", module)
        self.start_rxe()

    def set_up_network(self):
        self.call("run", ["true"], limit_s=BOOT_LIMIT_S)
        self.run("sh", "-c", "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad; ulimit -c 0")
        self.run("ip", "link", "set", "lo", "up")
        self.set_mtu(MTU)
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "address", "add", f"{self.v4}/24", "dev", "eth0")
        self.run("ip", "address", "add", f"{self.v6}/64", "dev", "eth0", "nodad")

    def start_rxe(self):
        self.run("modprobe", "rdma_rxe")
        self.run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")

    def stop_rxe(self):
        """The UDP port is free then: the kernel holds it as long as the module is there."""
        self.run("rdma", "link", "delete", "rxe0")
        self.run("modprobe", "-r", "rdma_rxe")

    def call(self, name, *arguments, limit_s=ANSWER_LIMIT_S):
        """A request to the agent."""
        self.control.settimeout(limit_s)
        try:
            self.control.sendall(json.dumps({"call": name, "arguments": arguments}).encode() + b"\n")
            line = self.answers.readline()
        except OSError as reason:
            raise GuestFailure(f"{name}: {reason}; {self._last_of_console()}") from None
        if not line:
            raise GuestFailure(f"{name}: the guest is gone; {self._last_of_console()}")
        answer = json.loads(line)
        if "failure" in answer:
            raise GuestFailure(f"{name}: {answer['failure']}")
        return answer["result"]

    def _last_of_console(self):
        with open(self.console, encoding="utf-8", errors="replace") as console:
            return "console: " + " | ".join(console.read().splitlines()[-12:])

    def run(self, *command, limit_s=60):
        status, output = self.call("run", command, limit_s, limit_s=limit_s + ANSWER_LIMIT_S)
        if status:
            raise GuestFailure(f"{' '.join(command)}: {output.strip()}")
        return output

    def set_mtu(self, mtu):
        self.run("ip", "link", "set", "eth0", "mtu", str(mtu))

    def endpoint(self, _, ipv6=False):
        """As that of a host, whose programs run on a build of ours."""
        addr = self.v6 if ipv6 else self.v4
        wanted = socket.inet_pton(socket.AF_INET6, addr if ipv6 else f"::ffff:{addr}")
        gids = self.run("sh", "-c", "cd /sys/class/infiniband/rxe0/ports/1/gids && grep . ?")  # the first ten
        for line in gids.splitlines():
            index, gid = line.split(":", 1)
            if socket.inet_pton(socket.AF_INET6, gid) == wanted:
                return GuestEndpoint("kernel", "rxe0", addr, int(index), guest=self)
        raise AssertionError(f"{addr} is not among the GIDs of rxe0:\n{gids}")

    def counters(self):
        """The counters of rxe0 by name."""
        rows = self.run("sh", "-c", "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *")
        return {name: int(value) for name, value in (row.split(":") for row in rows.splitlines())}

    def close(self):
        """It powers off when nobody is at the other end of its port."""
        self.answers.close()
        self.control.close()
        try:
            self.qemu.wait(5)
        except subprocess.TimeoutExpired:
            self.qemu.kill()
            self.qemu.wait()


def add_tap(host):
    """A tap device in a host, as its end of link 1; returns its name."""
    name = f"eth{len(host.interfaces)}"
    host.run("ip", "tuntap", "add", "dev", name, "mode", "tap")
    host.run("ip", "link", "set", name, "address", MAC.format(1))
    host.add_interface(Cable(host, name), MTU)
    return name


@dataclasses.dataclass
class Cable:
    """A link whose one end is a host's."""

    host: object
    tap: str
    number: int = 1

    @property
    def hosts(self):
        return (self.host,)

    def end_of(self, _):
        return self.tap


@dataclasses.dataclass(frozen=True)
class GuestEndpoint(harness.Endpoint):
    guest: object = None

    def start(self, build, command, log_path):
        return GuestProgram(self.guest, command, log_path)


class GuestProgram:
    """A program in the guest, as harness.Program is one here."""

    def __init__(self, guest, command, log_path):
        self.guest = guest
        self.command = command
        self.log_path = log_path
        self.number = guest.call("start", command)

    def wait(self, limit):
        seconds = limit.left()
        return self.guest.call("wait", self.number, seconds, limit_s=seconds + ANSWER_LIMIT_S)

    def ended(self):
        return self.wait(harness.Limit(0))

    def wait_ready(self, shows="", port=0):
        self.guest.call("wait_ready", self.number, shows, port)

    def end(self, how=signal.SIGKILL):
        status = self.guest.call("end", self.number, how)
        with open(self.log_path, "w", encoding="utf-8") as log:
            log.write(f"guest$ {self.command}\n{self.output()}")
        return status

    def output(self):
        return self.guest.call("output", self.number)
