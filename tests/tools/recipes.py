#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""docs/cluster.md: what people run on clusters, in scenarios of verbatim lab: MPI on four hosts, also while the
network is parted, UCX, libfabric and fio between two, Ceph on three, Slurm on four.

usage: recipes.py BUILD_DIR [PATTERN]
"""
import json
import os
import shutil
import sys
import tempfile

import paths  # noqa: F401
import harness
import hosts
import software
from look import expect, run_cases
from scenarios import GOT, event, program, run, says, skip_where_impossible

CASES = []
LIMIT_S = 400.0
TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
EXAMPLES = os.path.join(TESTS, "..", "examples")
VARIABLES = {
    "UCX_TLS": "rc_verbs,ud_verbs,self",
    "UCX_NET_DEVICES": "vb_eth0:1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
ENVIRONMENT = "environment = { " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in VARIABLES.items()) + " }"
OPENMPI = (
    "mpirun.openmpi --host {} --bind-to none --mca pml ucx --mca osc ucx --mca pml_ucx_tls any "
    "--mca pml_ucx_devices any"
)
FOUR = "h1,h2,h3,h4"
EIGHT = "h1,h2,h3,h4,h5,h6,h7,h8"
MPICH = "mpirun.mpich -hosts {} -np 4"
HEAD = f'limit = "{LIMIT_S - 20:.0f}s"\n'


def case(function):
    CASES.append(function)
    return function


def mpi(library, command, names=FOUR, source="mpi.c", head="", more=""):
    """A rank on each of the hosts; they compare what they exchange; with links and events besides."""
    if missing := harness.missing_programs(f"mpicc.{library}", f"mpirun.{library}"):
        return f"{missing[0]} is not installed"
    if not harness.ucx_has_verbs():
        return "UCX's libuct_ib is not installed"
    ranks = len(names.split(","))
    with tempfile.TemporaryDirectory() as folder:
        hosts.run(f"mpicc.{library}", "-O1", "-o", f"{folder}/mpi", os.path.join(TESTS, "net", source))
        if library == "mpich" and software.needs_pmix(f"{folder}/mpi"):
            return "MPICH's library asks for PMIx, and its mpirun offers PMI"
        said = run(
            f"hosts = {ranks}\n{HEAD}{head}"
            + program("mpi", "h1", ["verbatim", "run", *command.format(names).split(), "./mpi"], ENVIRONMENT,
                      f'output = "^{ranks} ranks agree$"', 'absent = ["ERROR", "WARN"]')  # fmt: skip
            + more,
            cwd=folder,
            timeout=LIMIT_S,
        )
    says(said, "held: all")
    expect("did not happen" in said, False, f"events that did not happen in {said}")
    return None


@case
def open_mpi():
    return mpi("openmpi", OPENMPI)


@case
def open_mpi_benchmark():
    """Messages between two ranks and all collectives, over eight hosts."""
    return mpi("openmpi", OPENMPI, EIGHT, "mpi_bench.c")


@case
def mpich():
    return mpi("mpich", MPICH)


@case
def open_mpi_parted():
    parted = program("middle", "h4", GOT.format(5000000))  # of 18 million
    parted += event('after = { ends = "middle" }', 'link = "h1,h2-h3,h4 down"')
    parted += event('after = { ends = "middle" }', 'at = "1s"', 'link = "h1,h2-h3,h4 up"')
    head = 'seed = 3\nlinks = "hosts rate 100mbit loss 0.1%"\n'
    return mpi("openmpi", OPENMPI, head=head, more=parted) or mpi("openmpi", OPENMPI, head=head, more=parted)


def two(server, client, shows):
    """A server and a client, which tries until the server is there."""
    if missing := harness.missing_programs(server):
        return f"{missing[0]} is not installed"
    # fio ends well without a server, too
    again = f"until verbatim run {client} 2>&1 | tee /tmp/out && grep -Eq '{shows}' /tmp/out; do sleep 0.5; done"
    run(
        f"hosts = 2\n{HEAD}"
        + program("server", "h1", f"verbatim run {server}", ENVIRONMENT)
        + program("client", "h2", again, ENVIRONMENT, 'after = { starts = "server" }', f"output = '{shows}'"),
        timeout=LIMIT_S,
    )
    return None


@case
def ucx():
    command = harness.ucx_perftest()
    return two(command, f"{command} h1 -t tag_lat -n 1000", "^Final:")


@case
def libfabric():
    command = "fi_pingpong -p verbs -e msg -I 5 -S 1024"
    return two(command, f"{command} h1", "^1k ")


@case
def fio():
    job = "fio --thread --name=job --ioengine=rdma --port=7777 --bs=16k --size=1m"
    return two(f"{job} --rw=read --iodepth=16", f"{job} --hostname=h1 --verb=write --rw=write --iodepth=1", "err= 0")


def run_example(name, folder):
    shutil.copy(os.path.join(EXAMPLES, f"{name}.sh"), folder)
    with open(os.path.join(EXAMPLES, f"{name}.toml"), encoding="utf-8") as scenario:
        says(run(scenario.read(), cwd=folder, timeout=LIMIT_S), "held: all")


@case
def ceph():
    """A monitor, an object store and a client on three hosts."""
    if missing := harness.missing_programs("ceph-mon", "ceph-osd", "ceph", "rados"):
        return f"{missing[0]} is not installed"
    with tempfile.TemporaryDirectory() as folder:
        run_example("ceph", folder)
    return None


@case
def slurm():
    """srun starts an MPI program on four hosts."""
    if missing := harness.missing_programs("slurmctld", "slurmd", "srun", "mpicc.openmpi"):
        return f"{missing[0]} is not installed"
    if not harness.ucx_has_verbs():
        return "UCX's libuct_ib is not installed"
    with tempfile.TemporaryDirectory() as folder:
        hosts.run("mpicc.openmpi", "-O1", "-o", f"{folder}/mpi", os.path.join(TESTS, "net", "mpi.c"))
        run_example("slurm", folder)
    return None


if __name__ == "__main__":
    harness.isolate()
    skip_where_impossible()
    sys.exit(run_cases(CASES))
