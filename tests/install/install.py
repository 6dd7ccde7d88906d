#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The Debian package in a fresh Debian 12, a release in a home directory, and a prebuilt release in fresh
Debians. Speaks TAP; `make check-install`.

Needs root (chroot), the network at its first run (packages are kept in BUILD_DIR/install/cache), debootstrap,
debhelper. What is missing is said, and what needs it is skipped. Everything is made in BUILD_DIR/install;
nothing else of the machine changes.

usage: install.py BUILD_DIR
"""
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
PROGRAMS = "rdmacm-utils,perftest,ibverbs-utils,iproute2"
NEEDED = "libisal2,libncursesw6"  # by the package
PREBUILT_FOR = ("bullseye", "bookworm", "trixie")
ORDINARY = 65534
LIMIT_S = 600
# Two programs in a namespace of their own, where the loopback is the only interface; "$1" starts each.
PAIRS = """set -e
ip link set lo up 2>/dev/null || true
$1 rping -s -a 127.0.0.1 -p 7500 -V -C 50 & server=$!
until grep -q '@verbatim/port' /proc/net/unix; do sleep 0.1; done
$1 rping -c -a 127.0.0.1 -p 7500 -V -C 50; wait $server
$1 ib_send_bw -F -d vb_lo -x 0 -n 100 -p 7600 >/dev/null & server=$!
until grep -q ':1DB0 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done
$1 ib_send_bw -F -d vb_lo -x 0 -n 100 -p 7600 127.0.0.1; wait $server
$1 rstream -b 127.0.0.1 -p 7700 -S 4096 -C 100 >/dev/null & server=$!
until grep -q '@verbatim/port' /proc/net/unix; do sleep 0.1; done
$1 rstream -s 127.0.0.1 -p 7700 -S 4096 -C 100; wait $server
"""


class Missing(Exception):
    """What a part needs and this machine has not."""


class Failed(Exception):
    """A command that ended badly; says with what words."""


def run(*command, **options):
    """What it says. If it does not end in time, or we are to end, all that it has started ends."""
    with subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        **options,
    ) as process:
        try:
            said = process.communicate(timeout=LIMIT_S)[0]
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise Failed(
            f"{' '.join(map(str, command))[:200]}: ended with {process.returncode}\n{said[-3000:]}"
        )
    return said


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Missing(f"{program} is not installed")


def files_of(root):
    """All that is in a system but what runs at all times changes: the package manager's own books."""
    books = re.compile(r"^(var/(lib|cache|log)/|etc/ld\.so\.cache|tmp/|proc/|sys/|dev/|run/)")
    found = run("find", root, "-xdev", "-printf", "%P\n").splitlines()
    return {name for name in found if not books.match(name)}


class Install:
    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        self.work = self.build / "install"
        self.cache = self.work / "cache"
        self.root = self.work / "debian"
        self.package = self.prebuilt_archive = None
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        self.count = self.failed = 0

    def report(self, name, part):
        self.count += 1
        try:
            part()
            print(f"ok {self.count} - {name}", flush=True)
        except Missing as reason:
            print(f"ok {self.count} - {name} # SKIP {reason}", flush=True)
        except (Failed, AssertionError, subprocess.TimeoutExpired) as reason:
            self.failed += 1
            print(f"not ok {self.count} - {name}", flush=True)
            print("\n".join(f"# {line}" for line in str(reason).splitlines()), flush=True)

    # ---- the release ----

    def release(self):
        need("git", "make")
        shutil.rmtree(self.work / "release", ignore_errors=True)
        (self.work / "release").mkdir(parents=True)
        for earlier in self.work.glob("verbatim-*.tar.gz"):  # maybe of another version
            earlier.unlink()
        run("make", "dist", f"BUILD={self.work}", cwd=ROOT)
        self.archive = next(self.work.glob("verbatim-*.tar.gz"))

    def home(self):
        """An ordinary user unpacks, builds and installs below the home directory, and runs programs from
        there."""
        need("rping", "ib_send_bw", "setpriv", "unshare")
        if os.geteuid():
            raise Missing("to become an ordinary user takes root")
        home = self.work / "home"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        run("tar", "xf", self.archive, "-C", home)
        run("chown", "-R", f"{ORDINARY}:{ORDINARY}", home)
        user = [
            "setpriv",
            f"--reuid={ORDINARY}",
            f"--regid={ORDINARY}",
            "--clear-groups",
            "env",
            f"HOME={home}",
        ]
        try:
            run(*user, "test", "-w", home)
        except Failed:
            raise Missing(f"an ordinary user cannot reach {home}") from None
        source = next(home.glob("verbatim-*/"))
        # As where cmocka is not installed: without the tests, which take several times as long to build.
        run(*user, "make", "-C", source, "install", f"PREFIX={home}/.local", "JOBS=2", "have_cmocka=false")
        run(
            *user,
            "unshare",
            "--user",
            "--map-root-user",
            "--net",
            "sh",
            "-c",
            PAIRS,
            "sh",
            f"{home}/.local/bin/verbatim run",
        )
        run(*user, "make", "-C", source, "uninstall", f"PREFIX={home}/.local")
        left = run("find", home / ".local", "!", "-type", "d")
        assert not left, f"left after uninstall:\n{left}"

    # ---- prebuilt releases ----

    def prebuilt(self):
        """Built twice, in different places: the same bytes."""
        need("nasm", "meson", "ninja", "readelf")
        archives = []
        for name in ("prebuilt", "prebuilt-again"):
            shutil.rmtree(self.work / name, ignore_errors=True)
            (self.work / name).mkdir(parents=True)
            try:
                run(ROOT / "scripts" / "release.py", self.work / name)
            except Failed as reason:
                if "urlopen error" in str(reason) and "HTTP Error" not in str(reason):
                    raise Missing("what a release is built with cannot be downloaded") from None
                raise
            archives += (self.work / name / "release").glob("verbatim-*-linux-*.tar.gz")
        one, other = (file.read_bytes() for file in archives)
        assert one == other, f"{archives[0]} and {archives[1]} differ"
        self.prebuilt_archive = archives[0]

    def prebuilt_in(self, release):
        """An ordinary user unpacks it in a fresh Debian and runs programs."""
        if not self.prebuilt_archive:
            raise Missing("no release was built")
        self.make_root(release, f"{PROGRAMS},{NEEDED}" if release == SUITE else PROGRAMS)
        for file in (self.prebuilt_archive, ROOT / "scripts" / "install-release.sh"):
            shutil.copy(file, self.root / "tmp")
        home = self.root / "home" / "user"
        home.mkdir()
        os.chown(home, ORDINARY, ORDINARY)
        user = f"setpriv --reuid={ORDINARY} --regid={ORDINARY} --clear-groups env HOME=/home/user"
        unpack = f"sh /tmp/install-release.sh /tmp/{self.prebuilt_archive.name} /home/user/verbatim"
        self.inside("sh", "-c", f"ip link set lo up; {user} {unpack}")
        pairs = self.root / "tmp" / "pairs.sh"
        pairs.write_text(PAIRS, encoding="utf-8")
        verbatim = "/home/user/verbatim/bin/verbatim"
        self.inside("sh", "-c", f"ip link set lo up; {user} sh /tmp/pairs.sh '{verbatim} run'")
        scenario = self.root / "tmp" / "scenario.toml"
        scenario.write_text("hosts = [\n", encoding="utf-8")
        said = self.inside("sh", "-c", f"{user} {verbatim} lab run /tmp/scenario.toml 2>&1 || true")
        assert "parsing array" in said, said
        top = f"{user} TERM=xterm script -qec '{verbatim} top' /dev/null"
        said = self.inside("sh", "-c", f"(sleep 1; printf q) | timeout 60 {top}")
        assert "\x1b[?1049h" in said, "top has no screen"

    # ---- the package ----

    def build_package(self):
        need("dpkg-buildpackage", "dh", "meson", "ninja")
        folder = self.work / "package"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run("tar", "xf", self.archive, "-C", folder)
        source = next(folder.glob("verbatim-*/"))
        run(
            "dpkg-buildpackage",
            "-us",
            "-uc",
            "-b",
            cwd=source,
            env=os.environ | {"DEB_BUILD_OPTIONS": "parallel=2"},
        )
        self.package = next(folder.glob("verbatim_*.deb"))

    def lintian(self):
        need("lintian")
        self.have_package()
        said = run("lintian", "--fail-on", "none", *self.package.parent.glob("verbatim_*.changes"))
        errors = [line for line in said.splitlines() if line.startswith("E:")]
        assert not errors, "\n".join(errors)

    def have_package(self):
        if not self.package:
            raise Missing("no package was built")

    # ---- a fresh Debian ----

    def pristine(self, release=SUITE):
        return self.work / f"pristine-{release}"

    def make_root(self, release, packages):
        """debootstrap once; each run starts from a copy of what that left."""
        need("debootstrap", "unshare")
        if os.geteuid():
            raise Missing("a chroot takes root")
        pristine = self.pristine(release)
        if not (pristine / "complete").exists():
            shutil.rmtree(pristine, ignore_errors=True)
            self.cache.mkdir(parents=True, exist_ok=True)
            try:
                run(
                    "debootstrap",
                    "--variant=minbase",
                    f"--cache-dir={self.cache}",
                    f"--include={packages}",
                    release,
                    pristine,
                    MIRROR,
                )
            except Failed as reason:
                if "Couldn't download" in str(reason) or "Failed getting" in str(reason):
                    raise Missing(f"{MIRROR} cannot be reached") from None
                raise
            (pristine / "complete").touch()
        shutil.rmtree(self.root, ignore_errors=True)
        run("cp", "-a", "--reflink=auto", pristine, self.root)

    def fresh(self):
        self.have_package()
        self.make_root(SUITE, f"{PROGRAMS},{NEEDED}")
        shutil.copy(self.package, self.root / "tmp")

    def inside(self, *command):
        """Runs a command in the chroot, in namespaces of its own."""
        if not self.root.exists():
            raise Missing("no chroot")
        prepare = 'root=$1; shift; mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; exec chroot "$root" "$@"'
        return run(
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "sh",
            "-c",
            prepare,
            "sh",
            self.root,
            *command,
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/root",
                "DEBIAN_FRONTEND": "noninteractive",
                "LC_ALL": "C",
            },
        )

    def install(self):
        if not self.root.exists():
            raise Missing("no chroot")
        self.before = files_of(self.root)
        self.inside("dpkg", "-i", f"/tmp/{self.package.name}")
        self.installed = True

    def have_install(self):
        if not getattr(self, "installed", False):
            raise Missing("the package is not installed")

    def programs(self):
        self.have_install()
        self.inside("sh", "-c", PAIRS, "sh", "verbatim run")

    def beside_rdma_core(self):
        """rdma-core's own libraries are what programs get without `verbatim run`."""
        self.have_install()
        said = self.inside("sh", "-c", "ldd /usr/bin/rping; ldconfig -p | grep -c verbatim || true")
        assert "/verbatim/" not in said, said

    def completion(self):
        self.have_install()
        said = self.inside(
            "bash",
            "-c",
            ". /usr/share/bash-completion/completions/verbatim; COMP_WORDS=(verbatim ru); COMP_CWORD=1; "
            "_verbatim; echo ${COMPREPLY[@]}",
        )
        assert said.split() == ["run"], said

    def recipes(self):
        """The commands of docs/ci.md that need nothing of GitHub's or Docker's."""
        self.have_install()
        text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
        blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", text)
        assert blocks, "docs/ci.md has no commands"
        for block in blocks:
            self.inside("bash", "-ec", 'sudo() { "$@"; }\nip link set lo up\ncd /tmp\n' + block)

    def container(self):
        """The Dockerfile of docs/ci.md, as it stands, on an image made of what debootstrap left instead of a
        registry's."""
        self.have_package()
        need("buildah")
        if not (self.pristine() / "complete").exists():
            raise Missing("no Debian to make an image of")
        text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
        place = self.work / "container"
        shutil.rmtree(place, ignore_errors=True)
        (place / "context").mkdir(parents=True)
        (place / "context" / "Dockerfile").write_text(
            re.search(r"(?ms)^```dockerfile\n(.*?)^```", text)[1], encoding="utf-8"
        )
        shutil.copy(self.package, place / "context")
        buildah = ["buildah", "--root", place / "root", "--runroot", place / "run", "--storage-driver", "vfs"]
        try:
            run(*buildah, "from", "--name", "base", "scratch")
            run(*buildah, "add", "base", self.pristine(), "/")
            run(*buildah, "commit", "base", "docker.io/library/debian:12")
            run(
                *buildah,
                "bud",
                "--isolation",
                "chroot",
                "--pull-never",
                "-t",
                "verbatim-recipe",
                place / "context",
            )
            container = run(*buildah, "from", "--pull-never", "localhost/verbatim-recipe").split()[-1]
            said = run(
                *buildah, "run", "--isolation", "chroot", container, "--", "verbatim", "run", "ibv_devices"
            )
            assert "vb_lo" in said, said
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def documents(self):
        """What they refer to is installed, too."""
        self.have_install()
        folder = self.root / "usr/share/doc/verbatim"
        pages = [folder / "README.md", *folder.glob("docs/**/*.md")]
        for page in pages:
            assert page.is_file(), f"{page} is not installed"
        assert len(pages) > 1, "no documents"
        missing = [
            f"{page}: {link}"
            for page in pages
            for link in re.findall(r"\]\(([^):#]+)\)", page.read_text(encoding="utf-8"))
            if not (page.parent / link).exists()
        ]
        assert not missing, "\n".join(missing)

    def remove(self):
        self.have_install()
        self.inside("dpkg", "--purge", "verbatim")
        left = files_of(self.root) ^ self.before
        assert not left, "differs after removal:\n" + "\n".join(sorted(left)[:50])

    def all(self):
        for part in (
            self.release,
            self.home,
            self.prebuilt,
            *(functools.partial(self.prebuilt_in, release) for release in PREBUILT_FOR),
            self.build_package,
            self.lintian,
            self.fresh,
            self.install,
            self.programs,
            self.beside_rdma_core,
            self.completion,
            self.documents,
            self.recipes,
            self.container,
            self.remove,
        ):
            self.report(getattr(part, "__name__", None) or f"prebuilt_in_{part.args[0]}", part)
        print(f"1..{self.count}")
        return 1 if self.failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(Install(sys.argv[1]).all())
