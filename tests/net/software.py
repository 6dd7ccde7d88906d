#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Software that people use on RDMA, unmodified from Debian, three ways: two processes of one host through
shared memory, the same over the wire (VERBATIM_LOCAL=off), and between two hosts.

usage: software.py BUILD_DIR [--check] [PATTERN...]
A pattern is a regular expression over the names of cases; logs stay in BUILD_DIR/apps-logs/software.
"""
import dataclasses
import errno
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import hosts
import paths  # noqa: F401
import harness
import suite
from harness import Case
from programs import QPERF_MISTAKES

FOLDER = pathlib.Path(__file__).resolve().parent
LIMIT_S = 120.0
RANKS = 4
WAYS = ("local", "wire", "between")
UCX_TESTS = {
    "tag_lat": 1000,
    "tag_bw": 100000,
    "ucp_put_lat": 4000,
    "ucp_put_bw": 65536,
    "ucp_get": 4000,
    "ucp_add": 8,
    "ucp_fadd": 8,
    "ucp_swap": 8,
    "ucp_cswap": 8,
    "stream_bw": 4000,
}
# Its last put says by a byte of the buffer that it is the last: that is set while puts of the same buffer are
# under way.
UCX_MISTAKES = {"ucp_put_bw": "send-buffer: "}
# Before 1.13 UCX wants devices of PCI, and says this beside rdma_rxe, too.
UCX_TROUBLE = ("ERROR", r"WARN(?!.*could not read device/vendor id from sysfs)")
# Its rdma engine closes in this order: completion queue, completion channel, protection domain, each of which
# is still in use by the queue pair.
FIO_MISTAKES = r"call: ibv_(destroy_cq|dealloc_pd|destroy_comp_channel): .* still use it"
QPERF_TESTS = (
    "rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_poll_lat rc_rdma_write_bw "
    "rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add"
)


def ucx_cases():
    """ucx_info names the transports; ucx_perftest's protocols over them (rc needs ud to meet its peer)."""
    yield Case(
        "ucx_info",
        client="ucx_info -d",
        client_shows=(r"Transport: rc_verbs\n#\s+Device: {dev}:1", r"Transport: ud_verbs\n"),
    )
    for transports in ("rc_verbs,ud_verbs", "ud_verbs"):
        for test, size in UCX_TESTS.items():
            command = (
                f"env UCX_TLS={transports} UCX_NET_DEVICES={{dev}}:1 {harness.ucx_perftest()} -p {{port}}"
            )
            yield Case(
                f"ucx_perftest {transports} {test}",
                server=command,
                client=f"{command} {{addr}} -t {test} -s {size} -n 500 -w 50",
                client_shows=(r"^Final:\s+500\s",),
                never_shows=(*UCX_TROUBLE, "Fatal"),
                mistakes=UCX_MISTAKES.get(test, ""),
                limit_s=LIMIT_S,
            )


def libfabric_cases(tolerant):
    """ fi_pingpong compares what it receives (-c). With ofi_rxm, libfabric closes an endpoint when the other
    has said goodbye, and polls afterwards: the queue pair's last completions are gone then, as with most
    adapters. Whichever side is slow to look, therefore ends with ECANCELED, or never. tolerant: runs a
    program that may end so. """
    for provider, endpoint in (
        ("verbs", "msg"),
        ("verbs", "dgram"),
        ("verbs;ofi_rxm", "rdm"),
        ("verbs;ofi_rxd", "rdm"),
    ):
        command = f"fi_pingpong -p {provider} -e {endpoint} -c -I 5 -S 1024"
        each_shows, one_shows, never = (r"^1k\s+5\s+=5",), (), ("error", "mismatch")
        if "rxm" in provider:
            command, never = f"{tolerant} {command}", ("mismatch",)
            each_shows, one_shows = (), each_shows
        yield Case(
            f"fi_pingpong {provider} {endpoint}",
            server=f"{command} -B {{port}}",
            client=f"{command} -P {{port}} {{addr}}",
            client_shows=each_shows,
            server_shows=each_shows,
            one_shows=one_shows,
            never_shows=never,
            one_may_wait="rxm" in provider,
            limit_s=LIMIT_S,
        )


def fio_cases():
    """One MiB in 16 KiB blocks. The receiving side of sends has room for all of them: fio allows no RNR
    retry, and may be late to post."""
    common = "fio --thread --name=job --ioengine=rdma --port={port} --bs=16k --size=1m --minimal"
    for verb in ("write", "read", "send"):
        yield Case(
            f"fio rdma {verb}",
            server=f"{common} --rw=read --iodepth=64",
            client=f"{common} --hostname={{addr}} --verb={verb} --rw=write --iodepth=1",
            never_shows=("completion status", "fail"),
            mistakes=FIO_MISTAKES,
            limit_s=LIMIT_S,
        )
    yield Case(
        "fio rdma verify",
        server=f"{common} --rw=read --iodepth=16",
        client=f"{common} --hostname={{addr}} --verb=write --rw=write --iodepth=1 --verify=crc32c --do_verify=1 --verify_state_save=0",
        never_shows=("verify:", "bad"),
        mistakes=FIO_MISTAKES,
        limit_s=LIMIT_S,
    )


def qperf_cases():
    """Over rdma_cm: without, qperf sends no GRH, which RoCE needs. Its server stays."""
    yield Case(
        "qperf",
        server="qperf -lp {port}",
        client=f"qperf -lp {{port}} -t 1 -cm 1 {{addr}} {QPERF_TESTS}",
        client_shows=(r"^rc_lat:", r"^ver_rc_fetch_add:\n\s+msg_rate\s+=\s+[\d.]+"),
        never_shows=("failed", "error"),
        mistakes=QPERF_MISTAKES,
        server_stays=True,
        limit_s=LIMIT_S,
    )


def dapl_crashes(folder):
    """Why DAPL cannot be used, or nothing: Ubuntu 24.04's libdaplofa crashes as soon as it is loaded,
    whatever the device."""
    registry = os.path.join(folder, "nobody.conf")
    pathlib.Path(registry).write_text(
        'nobody u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "nobody 0" ""\n', encoding="ascii"
    )
    if not shutil.which("dtest"):
        return ""
    done = harness.run(
        ["dtest", "-P", "nobody"],
        env={**os.environ, "DAT_OVERRIDE": registry},
        capture_output=True,
        check=False,
        timeout=LIMIT_S,
    )
    return (
        "libdaplofa crashes when it is loaded, without a device" if done.returncode == -signal.SIGSEGV else ""
    )


def dapl_cases(registry, not_here):
    """DAPL's provider for rdma_cm is named in a registry of ours."""
    command = f"env DAT_OVERRIDE={shlex.quote(registry)} dtest -P verbatim"
    for options in ("-b 4096", "-b 4096 -p", "-b 65536 -c"):
        yield Case(
            f"dtest {options}",
            server=f"{command} {options}",
            client=f"{command} {options} -h {{addr}}",
            client_shows=("DAPL Test Complete. PASSED",),
            server_shows=("DAPL Test Complete. PASSED",),
            not_here=not_here,
            limit_s=LIMIT_S,
        )


def qemu_frees_twice():
    """In migration by RDMA QEMU 8.2.0 to 8.2.2 free the name of their host twice."""
    said = subprocess.run(
        ["qemu-system-x86_64", "--version"], stdout=subprocess.PIPE, text=True, check=False
    ).stdout
    return re.search(r"version 8\.2\.[0-2]\b", said)


def qemu_knows_iser():
    said = subprocess.run(["qemu-img", "--help"], stdout=subprocess.PIPE, text=True, check=False).stdout
    return re.search(r"^Supported formats:.* iser\b", said, re.MULTILINE)


def needs_pmix(program):
    """Ubuntu 24.04's MPICH asks for PMIx, which its own mpirun does not offer: each rank is a world of its
    own."""
    needed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=False).stdout
    offered = subprocess.run(
        ["mpirun.mpich", "-np", "1", "env"], stdout=subprocess.PIPE, text=True, check=False
    ).stdout
    return "libpmix" in needed and "PMIX_RANK=" not in offered


class Software(suite.Suite):
    NAME = "software"
    QUICK = (
        r"^ucx_info",
        r"^(ucx_perftest rc_verbs,ud_verbs tag_lat|fi_pingpong verbs(;ofi_rxm)? (msg|rdm)|fio rdma write|dtest -b 4096|libgloo|MPI: \w+) "
        r"(local|between)$",
        r"^(QEMU: migration|iSER: tgt and QEMU) between$",
    )

    def parts(self):
        return (self.all_ways,)

    def all_ways(self):
        with hosts.Network() as network:
            a, b = network.host("a"), network.host("b")
            network.join(a, b)
            registry = os.path.join(self.log_dir, "dat.conf")
            pathlib.Path(registry).write_text(
                'verbatim u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "eth0 0" ""\n', encoding="ascii"
            )
            tolerant = os.path.join(self.log_dir, "tolerant.sh")
            pathlib.Path(tolerant).write_text(f'"$@" || [ $? = {errno.ECANCELED} ]\n', encoding="ascii")
            cases = [
                *ucx_cases(),
                *libfabric_cases(f"sh {shlex.quote(tolerant)}"),
                *fio_cases(),
                *qperf_cases(),
                *dapl_cases(registry, dapl_crashes(self.log_dir)),
            ]
            for way in WAYS:
                for case in cases:
                    if case.server or way != "between":
                        self.one(case, way, a, b)
                self.guarded(f"QEMU: migration {way}", lambda: self.migration(way, a, b))
                self.guarded(f"iSER: tgt and QEMU {way}", lambda: self.iser(way, a, b))
                self.guarded(f"libgloo {way}", lambda: self.gloo(way, a, b))
                for library in ("openmpi", "mpich"):
                    self.guarded(f"MPI: {library} {way}", lambda: self.mpi(library, way, a, b))

    def one(self, case, way, a, b):
        name = f"{case.name} {way}"
        if not self.selected(name):
            return
        server, client = a.endpoint(self.build), (b if way == "between" else a).endpoint(self.build)
        prefix = ("env", "VERBATIM_LOCAL=off") if way == "wire" else ()
        server, client = (
            dataclasses.replace(end, label=way, prefix=(*end.prefix, *prefix)) for end in (server, client)
        )
        self.report.add(name, harness.run_case(self.build, case, server, self.log_dir, client))

    def migration(self, way, a, b):
        """From this host to itself or to the other."""
        name = f"QEMU: migration {way}"
        if not self.selected(name):
            return
        if harness.missing_programs("qemu-system-x86_64"):
            raise hosts.NotHere("qemu-system-x86_64 is not installed")
        if qemu_frees_twice():
            raise hosts.NotHere("QEMU 8.2.0 to 8.2.2 free the name of their host twice")
        self.by_script("migrate.py", 4444, r"^\d+ MiB moved$", name, way, a, b)

    def iser(self, way, a, b):
        """The target on this host or the other."""
        name = f"iSER: tgt and QEMU {way}"
        if not self.selected(name):
            return
        if missing := harness.missing_programs("tgtd", "tgtadm", "qemu-img"):
            raise hosts.NotHere(f"{missing[0]} is not installed")
        if not qemu_knows_iser():
            raise hosts.NotHere("QEMU's module for iSCSI is not installed, or knows no iSER")
        self.by_script("iser.py", 3260, r"^\d+ MiB went to the target and back$", name, way, a, b)

    def by_script(self, script, port, shows, name, way, a, b):
        """SCRIPT ADDRESS:PORT FOLDER HERE... -- THERE...: what starts programs on host a, and on the host
        with the address: b, or a again."""
        there = b if way == "between" else a
        here = ["env", f"VERBATIM_LOCAL={'off' if way == 'wire' else 'on'}"]
        command = [
            sys.executable,
            str(FOLDER / script),
            f"{there.interfaces[0].v4}:{port}",
            self.log_dir,
            *here,
            "--",
            *here,
            "nsenter",
            f"--net=/proc/{there.holder.pid}/ns/net",
        ]
        case = Case(name, client=shlex.join(command), client_shows=(shows,), limit_s=LIMIT_S)
        end = dataclasses.replace(a.endpoint(self.build), label=way)
        self.report.add(name, harness.run_case(self.build, case, end, self.log_dir))

    def gloo(self, way, a, b):
        """Its ranks, those of the second half on the other host, meet in a directory."""
        name = f"libgloo {way}"
        if not self.selected(name):
            return
        if not os.path.exists("/usr/include/gloo/config.h") or harness.missing_programs("g++"):
            raise hosts.NotHere("libgloo-dev or g++ is not installed")
        program = os.path.join(self.log_dir, "gloo")
        if not os.path.exists(program):
            hosts.run(
                "g++", "-O1", "-std=gnu++17", "-o", program, str(FOLDER / "gloo.cc"), "-lgloo", "-libverbs"
            )
        directory = os.path.join(self.log_dir, f"gloo.{way}.ranks")
        os.mkdir(directory)
        starts = []
        for rank in range(RANKS):
            host = b if way == "between" and rank >= RANKS // 2 else a
            starts.append(
                f'nsenter --net=/proc/{host.holder.pid}/ns/net {shlex.quote(program)} {rank} {RANKS} {shlex.quote(directory)} vb_eth0 & pids="$pids $!"'
            )
        script = os.path.join(self.log_dir, f"gloo.{way}.sh")
        pathlib.Path(script).write_text(
            "\n".join([*starts, "for p in $pids; do wait $p || exit 1; done\n"]), encoding="utf-8"
        )
        case = Case(
            name,
            client=f"env VERBATIM_LOCAL={'off' if way == 'wire' else 'on'} sh {shlex.quote(script)}",
            limit_s=LIMIT_S,
            client_shows=tuple(f"^rank {rank} of {RANKS} has all numbers$" for rank in range(RANKS)),
        )
        self.report.add(
            name,
            harness.run_case(
                self.build, case, dataclasses.replace(a.endpoint(self.build), label=way), self.log_dir
            ),
        )

    def mpi(self, library, way, a, b):
        """Four ranks, on one host or two on each."""
        name = f"MPI: {library} {way}"
        if not self.selected(name):
            return
        if missing := harness.missing_programs(f"mpicc.{library}", f"mpirun.{library}"):
            raise hosts.NotHere(f"{missing[0]} is not installed")
        program = os.path.join(self.log_dir, f"mpi.{library}")
        if not harness.ucx_has_verbs():
            raise hosts.NotHere("UCX's libuct_ib is not installed")
        hosts.run(f"mpicc.{library}", "-O1", "-o", program, str(FOLDER / "mpi.c"))
        if library == "mpich" and needs_pmix(program):
            raise hosts.NotHere("MPICH's library asks for PMIx, and its mpirun offers PMI")
        command = self.mpi_command(library, way, a, b) + [program]
        case = Case(
            name,
            client=shlex.join(command),
            client_shows=(f"^{RANKS} ranks agree$",),
            never_shows=UCX_TROUBLE,
            limit_s=LIMIT_S,
        )
        end = a.endpoint(self.build)
        self.report.add(
            name, harness.run_case(self.build, case, dataclasses.replace(end, label=way), self.log_dir)
        )

    def mpi_command(self, library, way, a, b):
        """Whatever is below runs under `verbatim run`, by inheritance; on the other host by an agent of ours,
        which enters it. There the host has another name: Open MPI 5 sums up wrongly on two hosts of one name,
        over TCP, too."""
        env = [
            "env",
            "UCX_TLS=rc_verbs,ud_verbs,self",
            "UCX_NET_DEVICES=vb_eth0:1",
            "OMPI_ALLOW_RUN_AS_ROOT=1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
            f"VERBATIM_LOCAL={'off' if way == 'wire' else 'on'}",
        ]
        two = [a, b] if way == "between" else [a]
        addresses = [host.interfaces[0].v4 for host in two]
        agent = os.path.join(self.log_dir, "agent.sh")
        lines = [
            f"{host.interfaces[0].v4}) ns=/proc/{host.holder.pid}/ns/net name=host-{host.name} ;;"
            for host in two
        ]
        pathlib.Path(agent).write_text(
            "#!/bin/sh\n# The remote shell: HOST COMMAND..., options before them.\n"
            'while [ "${1#-}" != "$1" ]; do shift; done\ncase $1 in\n'
            + "\n".join(lines)
            + "\nesac\nshift\n"
            + 'exec nsenter --net=$ns unshare --uts sh -c "hostname $name; $*"\n',
            encoding="ascii",
        )
        os.chmod(agent, 0o755)
        if library == "mpich":
            each = RANKS // len(two)
            return [
                *env,
                "mpirun.mpich",
                "-launcher",
                "ssh",
                "-launcher-exec",
                agent,
                "-hosts",
                ",".join(f"{address}:{each}" for address in addresses),
                "-np",
                str(RANKS),
            ]
        return [
            *env,
            "mpirun.openmpi",
            "--oversubscribe",
            "--bind-to",
            "none",
            "--mca",
            "pml",
            "ucx",
            "--mca",
            "osc",
            "ucx",
            "--mca",
            "pml_ucx_tls",
            "any",
            "--mca",
            "pml_ucx_devices",
            "any",
            "--mca",
            "plm_rsh_agent",
            agent,
            "--mca",
            "orte_keep_fqdn_hostnames",
            "1",
            "-x",
            "LD_LIBRARY_PATH",
            "-x",
            "LD_PRELOAD",
            "-x",
            "UCX_TLS",
            "-x",
            "UCX_NET_DEVICES",
            "-x",
            "VERBATIM_LOCAL",
            "--host",
            ",".join(f"{address}:{RANKS // len(two)}" for address in addresses),
            "-np",
            str(RANKS),
        ]


if __name__ == "__main__":
    sys.exit(suite.run(Software, __doc__))
