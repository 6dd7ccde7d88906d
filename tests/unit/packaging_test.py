#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The files that others build or install verbatim by: ci/, action.yml, scripts/install-release.sh and
`make clean` and `make uninstall`. Nothing is installed: stand-ins take the place of the commands that would.
Speaks TAP.

usage: packaging_test.py SOURCE_DIRECTORY
"""
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import textwrap

from cases import expect, run_cases

SOURCE = pathlib.Path(sys.argv[1]).resolve()
FEATURE = SOURCE / "ci" / "devcontainer" / "verbatim"
INSTALL = SOURCE / "scripts" / "install-release.sh"
CASES = []


def case(function):
    CASES.append(function)
    return function


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


# ---- releases ----

NAME = "verbatim-1-linux-m68k.tar.gz"
VERBATIM = b"#!/bin/sh\necho verbatim 1\n"


def make_release(folder, sums=None):
    """An archive, and SHA256SUMS with such a line for it."""
    folder.mkdir()
    with tarfile.open(folder / NAME, "w:gz") as archive:
        entry = tarfile.TarInfo("verbatim-1-linux-m68k/bin/verbatim")
        entry.mode, entry.size = 0o755, len(VERBATIM)
        archive.addfile(entry, io.BytesIO(VERBATIM))
    is_sum = hashlib.sha256((folder / NAME).read_bytes()).hexdigest()
    if sums:
        (folder / "SHA256SUMS").write_text(sums.format(sum=is_sum, name=NAME), encoding="ascii")


def installed(sums, is_url):
    """How the installation ends, with these SHA256SUMS, and its last line."""
    with Stands() as stands:
        make_release(stands.path / "releases", sums)
        # Of a URL's folder there is what is in the folder "releases".
        stands.put(
            "curl",
            'for word; do url=$word; done; while [ "$1" != -o ]; do shift; done; '
            f'url=${{url%%\\?*}}; cp "{stands.path}/releases/${{url##*/}}" "$2" 2>/dev/null || exit 22',
        )
        archive = f"https://host.example/v1/{NAME}?key=a/b" if is_url else f"releases/{NAME}"
        done = stands.run("sh", INSTALL, archive, "to", TMPDIR=str(stands.path))
        there = (stands.path / "to" / "bin" / "verbatim").exists()
        expect(there, done.returncode == 0)
        return (done.stderr or done.stdout).splitlines()[-1].replace(archive, "ARCHIVE")


@case
def release__is_checked_by_its_sum():
    wrong = "0" * 64
    for is_url in (False, True):
        for sums, last in (
            (None, "verbatim 1"),
            ("{sum}  {name}\n" + wrong + "  other.tar.gz\n", "verbatim 1"),
            ("{sum} *{name}\n", "verbatim 1"),
            (wrong + "  {name}\n", "install-release.sh: ARCHIVE is not what SHA256SUMS beside it says"),
            (wrong + "  other.tar.gz\n", "verbatim 1"),
        ):
            expect(installed(sums, is_url), last)


@case
def release__that_is_not_there():
    with Stands() as stands:
        stands.put("curl", "exit 22")
        done = stands.run("sh", INSTALL, "https://host.example/x.tar.gz", "to")
        expect(done.stderr, "install-release.sh: https://host.example/x.tar.gz cannot be downloaded\n")
        assert not (stands.path / "to").exists(), "it made the folder"


@case
def release__whose_sums_cannot_be_asked_for():
    with Stands() as stands:
        make_release(stands.path / "releases")
        stands.put(
            "curl",
            'for word; do url=$word; done; [ "${url##*/}" != SHA256SUMS ] || { echo no route >&2; exit 7; }; '
            f'while [ "$1" != -o ]; do shift; done; cp "{stands.path}/releases/{NAME}" "$2"',
        )
        done = stands.run("sh", INSTALL, f"https://host.example/{NAME}", "to", TMPDIR=str(stands.path))
        expect((done.returncode, done.stderr.endswith("cannot be told: no route\n")), (1, True))
        assert not (stands.path / "to").exists(), "it made the folder"


# ---- continuous integration ----


@case
def workflows__give_each_job_a_time_limit():
    for path in sorted((SOURCE / ".github" / "workflows").glob("*.yml")):
        jobs = re.split(r"(?m)^  (\w+):$", path.read_text(encoding="utf-8").split("\njobs:\n")[1])[1:]
        assert jobs, f"{path.name} has no jobs"
        for name, text in zip(jobs[::2], jobs[1::2]):
            assert re.search(r"(?m)^    timeout-minutes: \d+$", text), f"{path.name}: {name} may run for hours"


def act(tag, archive=""):
    """How the action ends, what it says, and the archive that it installs."""
    script = textwrap.dedent(re.search(r"(?ms)^ +run: \|\n(.*)", read("action.yml"))[1])
    with Stands() as stands:
        stands.put("../scripts/install-release.sh", 'echo "$1"')
        stands.put("uname", "echo m68k")
        done = stands.run(
            *("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script),
            TAG=tag,
            ARCHIVE=archive,
            RELEASES="https://host.example/releases/download",
            HERE=str(stands.path),
            RUNNER_TEMP=str(stands.path),
            GITHUB_PATH=str(stands.path / "path"),
        )
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout.strip()


@case
def action__takes_the_release_of_its_tag():
    expect(
        act("v1.2.3"),
        (0, "https://host.example/releases/download/v1.2.3/verbatim-1.2.3-linux-m68k.tar.gz"),
    )
    expect(act("main", "file.tar.gz"), (0, "file.tar.gz"))
    expect(act("", "file.tar.gz"), (0, "file.tar.gz"))


@case
def action__says_what_is_wrong_with_other_names():
    for tag in ("", "main", "v1", "verbatim-1.2"):
        status, said = act(tag)
        expect((status, said.count("\n")), (1, 0))
        assert said.startswith(f"::error::'{tag}' is no tag of a release: write "), said


# ---- make clean ----


@case
def clean__removes_what_make_makes():
    with Stands() as stands:
        said = stands.run("make", "-n", "-C", SOURCE, "clean", "BUILD=b", MAKEFLAGS="").stdout
    for name in set(re.findall(r"\$\(BUILD\)[-\w]*", read("Makefile"))):
        assert name.replace("$(BUILD)", "b") in said.split(), f"{name} is left"


# ---- paths and cmocka ----


@case
def prefix__may_have_spaces_and_be_relative():
    for prefix, absolute in (("/opt/a  b", "/opt/a  b"), ("a b", f"{SOURCE}/a b")):
        with Stands() as stands:
            stands.put("meson", 'printf "<%s>" "$@"; echo')
            stands.put("ninja", "")
            said = stands.run("make", "-C", SOURCE, "install", "BUILD=b", f"PREFIX={prefix}", MAKEFLAGS="").stdout
        assert f"<--prefix><{absolute}>" in said and f"<-Dprefix={absolute}>" in said, said


@case
def check__leaves_a_build_that_can_do_without_cmocka():
    for has_cmocka, last in (("true", "-Dtests=true"), ("false", "-Dtests=false")):
        with Stands() as stands:
            stands.put("meson", f'echo "$@" >>{stands.path}/called')
            stands.put("ninja", "exit 1")
            stands.put("pkg-config", has_cmocka)
            done = stands.run(SOURCE / "scripts" / "check.sh", "b", "quick")
            called = (stands.path / "called").read_text(encoding="utf-8").splitlines()
        expect((done.returncode, done.stdout), (1, "0 passed, 1 failed, 0 skipped\n"))
        expect(called[-1], f"configure b {last}")


@case
def simulations__are_built_where_tests_were_not():
    for has_cmocka in ("true", "false"):
        with Stands() as stands:
            stands.put("meson", 'echo "$@"')
            stands.put("ninja", 'echo "$@"')
            stands.put("pkg-config", has_cmocka)
            for target in ("soak", "mix", "hammer"):
                done = stands.run("make", "-s", "-C", SOURCE, target, "BUILD=b", "sims=", MAKEFLAGS="")
                if has_cmocka == "true":
                    assert "configure b -Dtests=true\n-C b -j" in done.stdout, done.stdout
                else:
                    expect((done.returncode, "need cmocka" in done.stderr), (2, True))


# ---- make uninstall ----


@case
def uninstall__removes_nothing_of_others():
    with Stands() as stands:
        ours = stands.path / "a folder" / "usr" / "lib" / "verbatim" / "libibverbs.so.1"
        others = [stands.path / name / "others" for name in ("a", "a folder", "a folder/usr/lib")]
        for file in [ours, *others]:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        places = f"DESTDIR={stands.path}/a folder", "PREFIX=/usr"
        expect(stands.run("make", "-C", SOURCE, "uninstall", *places, MAKEFLAGS="").returncode, 0)
        assert not ours.parent.exists(), "it is left"
        expect([file.exists() for file in others], [True] * len(others))


if __name__ == "__main__":
    sys.exit(run_cases(CASES))
