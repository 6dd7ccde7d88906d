# SPDX-License-Identifier: BSD-2-Clause
"""The file of figures: BUILD/bench/figures.json, one entry for each part that was ever run there, with the
machine it ran on; and the same to read, figures.md."""
import datetime
import json
import os
import pathlib
import platform
import subprocess
import textwrap

import lines
import patterns
from experiment import HEADING, line

FILE = "figures.json"
TEXT = "figures.md"
WIDTH = 110  # of lines, as tests/widths.py has it
BUSY = 0.5  # load average from which on figures are not to be trusted
BUILD_OPTIONS = ("buildtype", "optimization", "b_lto")
PACKAGES = ("perftest", "ucx-utils", "iperf3", "valgrind", "qemu-system-x86")


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def field(path, name):
    """The first value of "name: value" in a file of the kernel's."""
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def load():
    return os.getloadavg()[0]


def settings():
    """Of the environment, which change what is measured."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(("VERBATIM_", "UCX_")) and not name.startswith("VERBATIM_TEST")
    }


def show_settings(found):
    return " ".join(f"{name}={value}" for name, value in found.items())


def machine(build):
    release = platform.freedesktop_os_release() if hasattr(platform, "freedesktop_os_release") else {}
    here = pathlib.Path(__file__).resolve().parent
    options = json.loads(output_of("meson", "introspect", "--buildoptions", build) or "[]")
    return {
        "processor": field("/proc/cpuinfo", "model name") or platform.machine(),
        "processors": os.cpu_count(),
        "memory_kib": int(field("/proc/meminfo", "MemTotal").split()[0]),
        "virtualization": output_of("systemd-detect-virt") or "unknown",
        "kernel": platform.release(),
        "system": release.get("PRETTY_NAME", ""),
        "packages": {name: output_of("dpkg-query", "-W", "-f", "${Version}", name) for name in PACKAGES},
        "build": {option["name"]: option["value"] for option in options if option["name"] in BUILD_OPTIONS},
        "settings": settings(),
        "commit": output_of("git", "-C", here, "describe", "--always", "--dirty", "--exclude=*"),
    }


def directory(build):
    path = pathlib.Path(build) / "bench"
    path.mkdir(exist_ok=True)
    return path


def read(build):
    path = directory(build) / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def add_part(build, name, about, found):
    """Writes a part's findings into the file, in the place of its last ones."""
    parts = read(build)
    parts[name] = {
        "when": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "load_before": about["load"],
        "machine": about["machine"],
        **found,
    }
    (directory(build) / FILE).write_text(
        json.dumps(parts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def describe(about):
    versions = ", ".join(f"{name} {version}" for name, version in about["packages"].items() if version)
    under = f"; under {show_settings(about['settings'])}" if about.get("settings") else ""
    return (
        f"{about['processor']}, {about['processors']} processors, {about['memory_kib'] / (1 << 20):.0f} GiB, "
        f"{about['virtualization']}, Linux {about['kernel']}, {about['system']}; {versions}; commit {about['commit']}{under}"
    )


def write_text(build, plots):
    """The tables of all parts and their plots, which are files by part, as markdown; returns the file."""
    text = ["# Figures", "", "Made by `make bench`; [bench.md](../bench.md) says how they are taken."]
    for name, part in read(build).items():
        text += [
            "",
            f"## {name}",
            "",
            textwrap.fill(
                f"{part['when']}, load {part['load_before']:.1f} at the start; {describe(part['machine'])}.",
                WIDTH,
            ),
            "",
        ]
        if part.get("rows"):
            text += [HEADING, *map(line, part["rows"])]
        if part.get("counts"):
            text += ["| instructions for one message | |", "| --- | --- |"]
            text += [f"| {call} | {count:g} |" for call, count in sorted(part["counts"].items())]
            text += ["", *patterns.table(part["counts"])]
        if part.get("lines"):
            text += lines.as_text(part)
        if plots.get(name):
            text += ["", *(f"![{plot.stem}]({plot.name})" for plot in plots[name])]
    path = directory(build) / TEXT
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return path
