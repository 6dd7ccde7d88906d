#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The files that others build or install verbatim by: ci/, and `make clean`. Nothing is installed: stand-ins
take the place of the commands that would. Speaks TAP.

usage: packaging_test.py SOURCE_DIRECTORY
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
FEATURE = SOURCE / "ci" / "devcontainer" / "verbatim"
CASES = []


def case(function):
    CASES.append(function)
    return function


def expect(found, wanted):
    assert found == wanted, f"{found} instead of {wanted}"


def read(path):
    return (SOURCE / path).read_text(encoding="utf-8")


class Stands:
    """A folder with stand-ins for commands, first on the PATH of what runs there."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        (self.path / "bin").mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def put(self, name, script):
        file = self.path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def run(self, *command, **variables):
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.path,
            env={**os.environ, "PATH": f"{self.path}/bin:{os.environ['PATH']}", **variables},
            capture_output=True,
            text=True,
            check=False,
        )


# ---- the image ----


@case
def image__has_the_packages_of_the_debian_package():
    build, run = read("ci/Dockerfile").split("\nFROM ")[1:]
    needed = re.search(r"(?ms)^Build-Depends: (.*?)^\S", read("debian/control"))[1]
    for package in re.sub(r"\(.*?\)", "", needed).replace(",", " ").split():
        if not package.startswith("debhelper"):
            assert re.search(rf"\s{package}\s", build), f"the image is built without {package}"
    for package in re.search(r'(?m)^NEEDED = "(.*?)"', read("tests/install/install.py"))[1].split(","):
        assert re.search(rf"\s{package}\s", run), f"the image has no {package}"


@case
def image__is_sent_no_builds():
    left_out = read(".dockerignore").splitlines()
    for name in (".git", "build", "build-*"):
        assert name in left_out, f"{name} is sent"


# ---- the development container ----


@case
def feature__bears_its_id():
    feature = json.loads((FEATURE / "devcontainer-feature.json").read_text(encoding="utf-8"))
    expect(feature["id"], FEATURE.name)


def url_that_is_fetched(archive):
    with Stands() as stands:
        stands.put("curl", f'for word; do :; done; echo "$word" >{stands.path}/url')
        stands.put("uname", "echo m68k")
        for name in ("mkdir", "tar"):
            stands.put(name, "cat </dev/null")
        stands.run("sh", FEATURE / "install.sh", ARCHIVE=archive)
        return (stands.path / "url").read_text(encoding="utf-8").strip()


@case
def feature__replaces_the_architecture_alone():
    host = "https://SEARCH.example/ARCHIVE"
    expect(
        url_that_is_fetched(f"{host}/verbatim-1-linux-ARCH.tar.gz?ARCH=1"),
        f"{host}/verbatim-1-linux-m68k.tar.gz?ARCH=1",
    )
    expect(url_that_is_fetched(f"{host}/verbatim.tar.gz"), f"{host}/verbatim.tar.gz")


# ---- make clean ----


@case
def clean__removes_what_make_makes():
    with Stands() as stands:
        said = stands.run("make", "-n", "-C", SOURCE, "clean", "BUILD=b").stdout
    for name in set(re.findall(r"\$\(BUILD\)[-\w]*", read("Makefile"))):
        assert name.replace("$(BUILD)", "b") in said.split(), f"{name} is left"


def main():
    failed = 0
    print(f"1..{len(CASES)}")
    for number, function in enumerate(CASES, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}")
        except (AssertionError, OSError) as reason:
            failed += 1
            print(f"not ok {number} - {function.__name__}\n# {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
