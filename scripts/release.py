#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes releases that run anywhere: verbatim-VERSION-linux-ARCH.tar.gz, with libraries, command, headers,
pages and documents, which need nothing but glibc 2.31 or newer and are used where they are unpacked:
bin/verbatim run PROGRAM.

What is built sees the headers and libraries of Debian 11's glibc. It has ISA-L, toml++ and Debian 11's
ncurses and C++ library linked in. They are downloaded (DOWNLOADS), and are what they were when this was
written, by their SHA-256. The same commit and compiler give the same bytes. SHA256SUMS beside the releases
has their sums.

usage: release.py BUILD_DIR [--isal] [ARCH...]
  ARCH: x86_64, aarch64; by default this machine's. Releases are left in BUILD_DIR/release.
  --isal: ISA-L alone, for builds by hand; where it is, is printed.
"""
import gzip
import hashlib
import http.client
import io
import lzma
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Where Debian's files are. The first has them until newer versions take their places or the release is no
# longer supported, the second for ever, the third those of old releases.
ARCHIVES = (
    "http://deb.debian.org/debian/pool/main/{path}",
    "https://snapshot.debian.org/file/{sha1}",
    "http://archive.debian.org/debian/pool/main/{path}",
)
LIMIT_S = 60.0  # that an archive may say nothing
GLIBC = (2, 31)
ISAL = (
    "libi/libisal/libisal_2.30.0.orig.tar.xz",
    "5f2dbb03060e58911e2f923cf184925f5b11c29b",
    "f363f1be3d657d5676cef5253ee2233e60116e2fa9c9de86881185bf81e0e4b8",
)
# Each by its path, SHA-1 and SHA-256. What a program links here: the libraries of C, of C++ and of its
# compiler, ncurses and its licence, toml++, and headers of a newer kernel.
DOWNLOADS = {
    "x86_64": [
        (
            "g/glibc/libc6_2.31-13+deb11u11_amd64.deb",
            "84c5fd1eeabd70587ec248cd834edf6a59e8cc22",
            "05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282",
        ),
        (
            "g/glibc/libc6-dev_2.31-13+deb11u11_amd64.deb",
            "093848befe7de904c77d6b3db37a4d0d810e8110",
            "e7f7b45d9c5cfcf37609f0b6efd3c645272c812144703af89dfd32218fcb0fd3",
        ),
        (
            "n/ncurses/libtinfo6_6.2+20201114-2+deb11u2_amd64.deb",
            "ae1b7e29d4a2227d933bfb9cdee841166a407ef6",
            "96ed58b8fd656521e08549c763cd18da6cff1b7801a3a22f29678701a95d7e7b",
        ),
        (
            "n/ncurses/libncurses-dev_6.2+20201114-2+deb11u2_amd64.deb",
            "0869df8ea55aa84cd900e4e9b7e29ad71b397baa",
            "b3311f7a07bde218d0cc381e67f23e4a856c99a8a3008b351b2f12e743d8e883",
        ),
        (
            "g/gcc-10/libgcc-10-dev_10.2.1-6_amd64.deb",
            "05e07b275ad1178684b09859821539acb980a083",
            "3b711374092b84e732c4e73cf33e02cff02e34a5f105eb6467de8d9038e4cd9d",
        ),
        (
            "g/gcc-10/libstdc++-10-dev_10.2.1-6_amd64.deb",
            "275a115b3af7f2199d603dfe438dda40eb85441b",
            "20b1f56863dcc5f187d6cb53b2aa6149bd013be4ec67e10c2c31a22fda619a01",
        ),
        (
            "t/tomlplusplus/libtomlplusplus-dev_3.3.0+ds-1_amd64.deb",
            "7e4a58dc6177c462d451db8ecebec4584a45fd51",
            "2779cce0001466dcf60eb6262ff68a888d49f9e30aee80c499d1d4f6f9f6e12e",
        ),
        (
            "l/linux/linux-libc-dev_6.1.176-1_amd64.deb",
            "c3fd80759d1d4960ded82b89e02c433664d72959",
            "8bb258735b9dffbb111da778ebdd024750878e435ffd9dfcadcb6762ede6b4cf",
        ),
    ],
    "aarch64": [
        (
            "g/glibc/libc6_2.31-13+deb11u11_arm64.deb",
            "6c1252c2a72ea873bcd2835dd51ec2db6c5104de",
            "baaa9aa184e2f21738c5819055e6740cc5b22f198e3f416e33f82b40ff6933d8",
        ),
        (
            "g/glibc/libc6-dev_2.31-13+deb11u11_arm64.deb",
            "28cff7ec49eef2b662d4900a78e73d4bae9cb224",
            "28d478134722dcd4b0bd2045a199301d18713bf95947b9fce66634e7aeacab2e",
        ),
        (
            "n/ncurses/libtinfo6_6.2+20201114-2+deb11u2_arm64.deb",
            "f1a0ea9eeff11b781025d1d023d58aaae1ab09d6",
            "58027c991756930a2abb2f87a829393d3fdbfb76f4eca9795ef38ea2b0510e27",
        ),
        (
            "n/ncurses/libncurses-dev_6.2+20201114-2+deb11u2_arm64.deb",
            "ac46a32238451222789dd0c6ce849d4d86574b0e",
            "3893ab19f98544661b91a844f1b230f6c71afc6067d5354a12660492012bac47",
        ),
        (
            "g/gcc-10/libgcc-10-dev_10.2.1-6_arm64.deb",
            "a5934f8d021099350fedccfe0705b1f4af13acfc",
            "80fc73d339ada2e194175afe83cd89014565242153b6e3c2128849d8817da367",
        ),
        (
            "g/gcc-10/libstdc++-10-dev_10.2.1-6_arm64.deb",
            "0d12b4d0f27a047768e914e37c33893343680e42",
            "cee7ca63613b50a8a51cc670db385c7e6d1181b72c94148fc8b7992e4570782d",
        ),
        (
            "t/tomlplusplus/libtomlplusplus-dev_3.3.0+ds-1_arm64.deb",
            "e232ece96e0af6a76bd1417234f7f4105ace1297",
            "b4617341a8c8e73006eb1bb3bb06f40cad853e1969fff0241244b61bf780a605",
        ),
        (
            "l/linux/linux-libc-dev_6.1.176-1_arm64.deb",
            "c528c4707fe2bdd73f1b66ed82d5eb62305508b6",
            "eeca5ec13bed7206f8171fab9a48e84119dcc20cc79557f104628447a524ad10",
        ),
    ],
}


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    if done.returncode:
        sys.exit(f"{' '.join(str(word) for word in command)} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def download(url):
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
        return answer.read()


def fetch(folder, path, sha1, sha256):
    """A file of Debian's, from the folder if it is there already, else from the first archive that has it."""
    file = folder / pathlib.Path(path).name
    if file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() == sha256:
        return file
    reasons = []
    for archive in ARCHIVES:
        url = archive.format(path=path, sha1=sha1)
        try:
            data = download(url)
        except (OSError, http.client.HTTPException) as reason:
            reasons.append(f"{url}: {reason}")
            continue
        if hashlib.sha256(data).hexdigest() == sha256:
            file.write_bytes(data)
            return file
        reasons.append(f"{url}: it is not what it was")
    sys.exit(f"release.py: {file.name} cannot be had. {'; '.join(reasons)}")


def extract(archive, to):
    """All of it, absolute links too: Python from 3.14 on refuses them unless it is told otherwise."""
    archive.extraction_filter = lambda member, path: member
    archive.extractall(to)


def unpack_package(file, to):
    """A Debian package's files: an archive of ar(1) with a compressed data.tar in it."""
    data, at = file.read_bytes(), 8
    while at < len(data):
        name, size = data[at : at + 16].decode().strip(), int(data[at + 48 : at + 58])
        if name.startswith("data.tar.xz"):
            with tarfile.open(fileobj=io.BytesIO(lzma.decompress(data[at + 60 : at + 60 + size]))) as archive:
                extract(archive, to)
        at += 60 + size + size % 2


def tool(arch, name):
    return name if arch == platform.machine() else f"{arch}-linux-gnu-{name}"


def make_sysroot(arch, cache, work):
    sysroot = work / "sysroot"
    for package in DOWNLOADS[arch]:
        unpack_package(fetch(cache, *package), sysroot)
    for link in sysroot.rglob("*"):
        if link.is_symlink() and os.path.isabs(target := os.readlink(link)):
            link.unlink()
            link.symlink_to(os.path.relpath(f"{sysroot}{target}", link.parent))
    # Without these names of shared libraries the linker takes the static ones.
    for name in ("libncurses*.so", "libtinfo.so"):
        for file in sysroot.glob(f"usr/lib/*/{name}"):
            file.unlink()
    return sysroot


def make_isal(arch, cache, work, sysroot):
    """ISA-L's CRCs, as a static library; its headers in the sysroot, where others of the machine's are not
    seen."""
    with tarfile.open(fetch(cache, *ISAL)) as archive:
        extract(archive, work)
    source = next(work.glob("libisal-*"))
    compiler = f"{tool(arch, 'gcc')} --sysroot={sysroot} -fPIC -ffile-prefix-map={work}=."
    assembler = "nasm" if arch == "x86_64" else f"{compiler} -D__ASSEMBLY__"
    run(
        "make",
        "-C",
        source,
        "-f",
        "Makefile.unx",
        "units=crc",
        f"host_cpu={arch}",
        f"CC={compiler}",
        f"AS={assembler}",
        f"AR={tool(arch, 'ar')}",
        "lib",
    )
    (sysroot / "usr/include/isa-l").symlink_to(source / "include")
    return source / "bin/isa-l.a", source / "LICENSE"


def write_machine_file(arch, path, sysroot):
    # The compiler looks beside itself before it looks into a sysroot.
    options = [
        f"--sysroot={sysroot}",
        f"-B{sysroot}/usr/lib/{arch}-linux-gnu",
        f"-ffile-prefix-map={ROOT}=.",
        f"-ffile-prefix-map={sysroot.parent}=.",
    ]
    # The compiler's own C++ library asks for a newer glibc.
    cpp_library = [
        "-nostdinc++",
        f"-isystem{sysroot}/usr/include/c++/10",
        f"-isystem{sysroot}/usr/include/{arch}-linux-gnu/c++/10",
        f"-L{sysroot}/usr/lib/gcc/{arch}-linux-gnu/10",
    ]
    text = ["[binaries]"]  # a list of Python's is one of Meson's, too
    text += [f"c = {[tool(arch, 'gcc'), *options]}", f"cpp = {[tool(arch, 'g++'), *options, *cpp_library]}"]
    text += [f"{name} = '{tool(arch, name)}'" for name in ("ar", "strip")]
    text += [
        "pkgconfig = 'pkg-config'",
        "[properties]",
        f"pkg_config_libdir = '{sysroot}/usr/lib/{arch}-linux-gnu/pkgconfig'",
        "[host_machine]",
        "system = 'linux'",
        f"cpu_family = '{arch}'",
        f"cpu = '{arch}'",
        "endian = 'little'",
    ]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return path


def build(arch, work, sysroot, isal, top):
    """Installed under top, which is where a release is unpacked."""
    machine = write_machine_file(arch, work / "machine.ini", sysroot)
    run(
        "meson",
        "setup",
        work / "build",
        "--cross-file",
        machine,
        "--prefix=/",
        "-Dtests=false",
        "-Dtoml=enabled",
        "-Dcurses=enabled",
        f"-Disal={isal}",
        "-Dbuildtype=release",
        "--strip",
        cwd=ROOT,
    )
    run("ninja", "-C", work / "build", cwd=ROOT)
    run("meson", "install", "-C", work / "build", "--no-rebuild", "--destdir", top, cwd=ROOT)
    for file in top.rglob("*.pc"):
        up = os.path.relpath(top, file.parent)
        file.write_text(
            re.sub(r"(?m)^prefix=.*", f"prefix=${{pcfiledir}}/{up}", file.read_text(encoding="utf-8")),
            encoding="utf-8",
        )


def add_documents(top, isal_license, sysroot):
    """Beside what is installed everywhere."""
    shutil.copy(ROOT / "LICENSE", top)
    shutil.copy(isal_license, top / "LICENSE.isa-l")
    for name, package in {"ncurses": "libtinfo6", "toml++": "libtomlplusplus-dev"}.items():
        shutil.copy(sysroot / "usr/share/doc" / package / "copyright", top / f"LICENSE.{name}")
    (top / "README.md").symlink_to("share/doc/verbatim/README.md")


def check(arch, top):
    """What is in it asks for nothing but a glibc that is old enough."""
    for file in [top / "bin/verbatim", *sorted(top.glob("lib/verbatim/*.so*"))]:
        said = run(tool(arch, "readelf"), "--wide", "--dynamic", "--version-info", file)
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said)) - {"libibverbs.so.1", "librdmacm.so.1"}
        foreign = [
            name
            for name in needed
            if not re.match(r"(libc|libpthread|libdl|libm|librt|libgcc_s|ld-linux\S*)\.so", name)
        ]
        newest = max(
            (tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", said)), default=(0,)
        )
        if foreign or newest > GLIBC:
            sys.exit(f"{file} asks for {', '.join(foreign) or 'glibc ' + '.'.join(map(str, newest))}")


def archive(top, file, seconds):
    """Names in order, nobody's, all of one time."""

    def anonymous(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = seconds
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with open(file, "wb") as out, gzip.GzipFile(filename="", fileobj=out, mode="wb", mtime=seconds) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path in [top, *sorted(top.rglob("*"))]:
                tar.add(path, arcname=str(path.relative_to(top.parent)), recursive=False, filter=anonymous)


def make_needed(arch, folder):
    """A fresh folder to work in, and there the sysroot and ISA-L with its licence."""
    cache, work = folder / "downloads", folder / arch
    shutil.rmtree(work, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    work.mkdir()
    sysroot = make_sysroot(arch, cache, work)
    return work, sysroot, *make_isal(arch, cache, work, sysroot)


def release(arch, folder, seconds):
    version = re.search(
        r"^  version: '(.*)'", (ROOT / "meson.build").read_text(encoding="utf-8"), re.MULTILINE
    ).group(1)
    work, sysroot, isal, isal_license = make_needed(arch, folder)
    top = work / f"verbatim-{version}-linux-{arch}"
    build(arch, work, sysroot, isal, top)
    add_documents(top, isal_license, sysroot)
    check(arch, top)
    file = folder / f"{top.name}.tar.gz"
    archive(top, file, seconds)
    print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file}")


def write_sums(folder):
    """Of all releases there, as sha256sum writes and checks them."""
    files = sorted(folder.glob("verbatim-*.tar.gz"))
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="ascii")


def time_of_sources():
    """When they were committed, in seconds. An archive of `make dist` has its files of that time."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(said)
    if (ROOT / ".git").exists():
        return int(run("git", "log", "-1", "--format=%ct", cwd=ROOT))
    return int((ROOT / "meson.build").stat().st_mtime)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve() / "release"
    seconds = time_of_sources()
    os.environ["SOURCE_DATE_EPOCH"] = str(seconds)
    wanted = [word for word in sys.argv[2:] if word != "--isal"] or [platform.machine()]
    for arch in wanted:
        if arch not in DOWNLOADS:
            sys.exit(f"no release for {arch}: {', '.join(DOWNLOADS)}")
        if "--isal" in sys.argv:
            print(make_needed(arch, folder)[2])
        else:
            release(arch, folder, seconds)
            write_sums(folder)


if __name__ == "__main__":
    main()
