#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""scripts/release.py: where it looks for what it downloads, how it unpacks that, and the sums that it writes.
Archives are a table here. Speaks TAP.

usage: release_test.py PATH_OF_RELEASE
"""
import contextlib
import hashlib
import importlib.util
import io
import lzma
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest.mock
import urllib.error

from cases import expect, run_cases

CASES = []
GOOD, BAD = b"what it was", b"something else"
PATH = "g/glibc/libc6.deb"
SUMS = hashlib.sha1(GOOD).hexdigest(), hashlib.sha256(GOOD).hexdigest()
POOL = f"http://deb.debian.org/debian/pool/main/{PATH}"
SNAPSHOT = f"https://snapshot.debian.org/file/{SUMS[0]}"
OLD = f"http://archive.debian.org/debian/pool/main/{PATH}"


def load(path):
    spec = importlib.util.spec_from_file_location("release", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load(sys.argv[1])


def case(function):
    CASES.append(function)
    return function


def fetched(archives, before=None):
    """What fetch leaves, or its last words, and the addresses that it asked, where archives have these files;
    before: what is in the folder already."""
    asked = []

    def download(url):
        asked.append(url)
        if url not in archives:
            raise urllib.error.HTTPError(url, 404, "Not Found", None, None)
        return archives[url]

    release.download = download
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "libc6.deb"
        if before:
            file.write_bytes(before)
        try:
            expect(release.fetch(pathlib.Path(folder), PATH, *SUMS), file)
            return file.read_bytes(), asked
        except SystemExit as last:
            assert not file.exists(), "it left a file"
            return last.code, asked


@case
def fetch__asks_the_pool_alone():
    expect(fetched({POOL: GOOD, SNAPSHOT: GOOD, OLD: GOOD}), (GOOD, [POOL]))


@case
def fetch__asks_for_what_the_pool_has_no_more():
    expect(fetched({SNAPSHOT: GOOD, OLD: GOOD}), (GOOD, [POOL, SNAPSHOT]))
    expect(fetched({OLD: GOOD}), (GOOD, [POOL, SNAPSHOT, OLD]))


@case
def fetch__takes_nothing_else():
    expect(fetched({POOL: BAD, SNAPSHOT: GOOD}), (GOOD, [POOL, SNAPSHOT]))


@case
def fetch__fails_in_a_line():
    said, asked = fetched({SNAPSHOT: BAD})
    expect(asked, [POOL, SNAPSHOT, OLD])
    reasons = f"{POOL}: HTTP Error 404: Not Found; {SNAPSHOT}: it is not what it was; {OLD}: HTTP Error 404"
    assert "libc6.deb cannot be had" in said and reasons in said, said
    assert "\n" not in said, said


@case
def fetch__keeps_what_is_there():
    expect(fetched({}, before=GOOD), (GOOD, []))
    expect(fetched({POOL: GOOD}, before=BAD), (GOOD, [POOL]))


@case
def downloads__are_described():
    for path, sha1, sha256 in [release.ISAL, *sum(release.DOWNLOADS.values(), [])]:
        expect((len(bytes.fromhex(sha1)), len(bytes.fromhex(sha256))), (20, 32))
        assert path.count("/") == 2, path


@contextlib.contextmanager
def careful_python():
    """Archives are unpacked as Python 3.14 does it, where this Python can."""
    before = getattr(tarfile.TarFile, "extraction_filter", None)
    if hasattr(tarfile, "data_filter"):
        tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    try:
        yield
    finally:
        tarfile.TarFile.extraction_filter = before


@case
def packages__have_absolute_links():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        link = tarfile.TarInfo("usr/lib/libm.so")
        link.type, link.linkname = tarfile.SYMTYPE, "/lib/libm.so.6"
        archive.addfile(link)
    packed = lzma.compress(data.getvalue())
    with tempfile.TemporaryDirectory() as folder, careful_python():
        package = pathlib.Path(folder) / "libc6-dev.deb"
        package.write_bytes(b"!<arch>\n" + f"{'data.tar.xz':48}{len(packed):<10}`\n".encode() + packed)
        release.unpack_package(package, pathlib.Path(folder) / "sysroot")
        expect(os.readlink(f"{folder}/sysroot/usr/lib/libm.so"), "/lib/libm.so.6")


@case
def sums__are_of_all_releases():
    with tempfile.TemporaryDirectory() as folder:
        for arch in ("x86_64", "aarch64"):
            (pathlib.Path(folder) / f"verbatim-1-linux-{arch}.tar.gz").write_bytes(arch.encode())
        release.write_sums(pathlib.Path(folder))
        said = subprocess.run(
            ["sha256sum", "--check", "--strict", "SHA256SUMS"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        expect(said.stdout, "verbatim-1-linux-aarch64.tar.gz: OK\nverbatim-1-linux-x86_64.tar.gz: OK\n")


@case
def time__is_that_of_the_commit_in_an_archive_too():
    patch = unittest.mock.patch
    with tempfile.TemporaryDirectory() as folder, patch.object(release, "ROOT", pathlib.Path(folder)):
        (release.ROOT / "meson.build").touch()
        os.utime(release.ROOT / "meson.build", (1234567890, 1234567890))
        with patch.dict(os.environ):
            os.environ.pop("SOURCE_DATE_EPOCH", None)
            expect(release.time_of_sources(), 1234567890)
            os.environ["SOURCE_DATE_EPOCH"] = "7"
            expect(release.time_of_sources(), 7)


if __name__ == "__main__":
    sys.exit(run_cases(CASES))
