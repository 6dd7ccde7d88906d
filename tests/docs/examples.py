#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The programs in examples/ and of docs/tutorial.md: each is compiled against our headers and libraries and
against rdma-core's, and run with what it was built for, through shared memory, over the wire, and under
VERBATIM_CHECK, which finds nothing in them. What goes wrong they name, and end with 1.

usage: examples.py BUILD_DIR SOURCE_DIR [PATTERN...]
"""
import dataclasses
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "apps"))

import harness  # noqa: E402
from harness import Case  # noqa: E402

FLAGS = ["-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror"]
HEADERS = ("ours", "rdma-core")
WAYS = {"local": "VERBATIM_LOCAL=on", "wire": "VERBATIM_LOCAL=off", "checked": "VERBATIM_CHECK=1"}
LIMIT_S = 60.0
# A ring of four and three clients at once, by a shell that fails if any of them does.
RING = 'for r in 0 1 2 3; do {program} {port} {addr} $r 4 & pids="$pids $!"; done; for p in $pids; do wait $p || exit 1; done'
LOCK = "{program} {port} {addr} 1 & a=$!; {program} {port} {addr} 2 & b=$!; {program} {port} {addr} 3 && wait $a && wait $b"


def cases(name, program, work):
    """Of one program; work: a folder for its files."""
    program, files = shlex.quote(program), shlex.quote(str(work))
    pair = {"server": f"{program} {{port}}", "client": f"{program} {{port}} {{addr}}"}
    if name == "ping":
        yield Case(
            name,
            **pair,
            client_shows=("^1000 messages came back",),
            server_shows=("^answered 1000 messages$",),
        )
    elif name == "kv":
        yield Case(name, **pair, client_shows=("^1000 keys found$",), server_shows=("^served 1000 keys$",))
    elif name == "copy":
        yield Case(
            name,
            server=f"{program} {{port}} {files}/copied",
            client=f"{program} {{port}} {files}/original {{addr}}",
            client_shows=("^sent 5000001 bytes$",),
            server_shows=("^received 5000001 bytes$",),
        )
    elif name == "allreduce":
        yield Case(
            name,
            client=script(work, name, RING.replace("{program}", program)),
            client_shows=tuple(f"^rank {rank} of 4 has the sums$" for rank in range(4)),
        )
    elif name == "lock":
        yield Case(
            name,
            server=f"{program} {{port}} 3",
            client=script(work, name, LOCK.replace("{program}", program)),
            server_shows=("^3 clients added 300$",),
        )
    elif name == "tutorial":
        yield Case(
            name,
            **pair,
            client_shows=(
                "^the server had: hello from the client$",
                "^the server has now: WRITTEN BY THE CLIENT$",
            ),
            server_shows=("^my memory says: WRITTEN BY THE CLIENT$",),
        )
    else:
        raise AssertionError(f"no case for examples/{name}.c")


def failures(program, work):
    """Of programs by their names: (what goes wrong, a case that fails as it should)."""
    (pathlib.Path(work) / "empty").touch()
    fails = f"VERBATIM_FAULTS='complete read REM_ACCESS_ERR #10' {program('kv')} {{port}} {{addr}}"
    unknown = f"{program('ping')} {{port}} no.such.host.invalid"
    yield "client_fails", Case(
        "kv",
        server=f"{program('kv')} {{port}}",
        client=script(work, "kv", fails),
        client_exit=1,
        client_shows=("^read: remote access error$",),
        server_exit=1,
        server_shows=("^the client's goodbye: Work Request Flushed Error$",),
    )
    yield "unknown_host", Case(
        "ping", client=unknown, client_exit=1, client_shows=("^rdma_getaddrinfo: .*[Nn]ame",)
    )
    yield "empty_file", Case(
        "copy",
        client=f"{program('copy')} {{port}} {shlex.quote(str(work))}/empty {{addr}}",
        client_exit=1,
        client_shows=("/empty: it is empty$",),
    )
    yield "no_number", Case(
        "lock", client=f"{program('lock')} {{port}} x", client_exit=1, client_shows=("^CLIENTS: a number from",)
    )


def script(work, name, text):
    path = pathlib.Path(work) / f"{name}.sh"
    path.write_text(text.replace("{port}", "$1").replace("{addr}", "$2") + "\n", encoding="utf-8")
    return f"sh {shlex.quote(str(path))} {{port}} {{addr}}"


def tutorial(source):
    """The tutorial's program is all its C blocks, one behind the other."""
    text = (source / "docs" / "tutorial.md").read_text(encoding="utf-8")
    return "".join(re.findall(r"(?ms)^```c\n(.*?)^```", text))


def compile_command(headers, source, build, code, program):
    if headers == "ours":
        return [
            "cc",
            *FLAGS,
            f"-I{source}/include",
            code,
            "-o",
            program,
            f"-L{build}/lib",
            "-lrdmacm",
            "-libverbs",
            f"-Wl,-rpath-link,{build}/lib",
        ]
    return ["cc", *FLAGS, code, "-o", program, "-lrdmacm", "-libverbs"]


def main():
    harness.isolate()
    build, source = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    patterns = sys.argv[3:]
    report = harness.Report()
    log_dir = harness.log_directory(str(build), "examples")
    endpoint = harness.endpoints()[0]
    programs = {path.stem: path for path in sorted((source / "examples").glob("*.c"))}
    programs["tutorial"] = pathlib.Path(log_dir) / "tutorial.c"
    programs["tutorial"].write_text(tutorial(source), encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=log_dir) as work:
        (pathlib.Path(work) / "original").write_bytes(os.urandom(5000001))
        for name, code in programs.items():
            for headers in HEADERS:
                title = f"{name} built for {headers}"
                if patterns and not any(re.search(pattern, title) for pattern in patterns):
                    continue
                if headers == "rdma-core" and not os.path.exists("/usr/include/rdma/rdma_verbs.h"):
                    report.add(title, harness.Outcome("skip", "librdmacm-dev is not installed"))
                    continue
                program = os.path.join(work, f"{name}.{headers}")
                done = subprocess.run(
                    list(map(str, compile_command(headers, source, build, code, program))),
                    capture_output=True,
                    text=True,
                    check=False,
                )
                report.add(
                    f"{title}__compiles",
                    harness.Outcome("FAIL" if done.returncode else "ok", done.stderr[:2000]),
                )
                if done.returncode:
                    continue
                for way, setting in WAYS.items():
                    end = dataclasses.replace(endpoint, label=f"{headers}.{way}", prefix=("env", setting))
                    for case in cases(name, program, work):
                        case = dataclasses.replace(
                            harness.checked(case) if way == "checked" else case, limit_s=LIMIT_S
                        )
                        outcome = harness.run_case(str(build), case, end, log_dir)
                        if name == "copy" and outcome.status == "ok":
                            outcome = compared(work)
                        report.add(f"{title}__runs_{way}", outcome)
        for what, case in failures(lambda name: shlex.quote(f"{work}/{name}.{HEADERS[0]}"), work):
            title = f"{case.name}__{what}"
            if os.path.exists(f"{work}/{case.name}.{HEADERS[0]}"):
                case = dataclasses.replace(case, limit_s=LIMIT_S)
                report.add(title, harness.run_case(str(build), case, endpoint, log_dir))
    return report.finish()


def compared(work):
    same = (pathlib.Path(work) / "copied").read_bytes() == (pathlib.Path(work) / "original").read_bytes()
    return harness.Outcome("ok") if same else harness.Outcome("FAIL", "the copy differs")


if __name__ == "__main__":
    sys.exit(main())
