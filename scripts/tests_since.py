#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Prints the tests that depend on what has changed since a revision, one by line, as `meson test` takes them.

Changed is what is committed since then, staged, edited, or new and not ignored. A test depends on
- what its program and the targets among its arguments and `depends` are built of, headers included, as ninja
  has it; with the command come the libraries, which it loads;
- files and folders among its arguments;
- if it is a script: what lies in its own folder, and in folders that it or a script in one of these names; in
  folders of tests neither what is compiled nor another test's script that none of these imports or names;
- if it is a script that gets the build root: what is installed, and what is built in these folders of tests;
- if it is a script that gets the source root and names no folder: everything.
How tests are built and run (meson.build, EVERY_TEST) concerns every test. In doubt a test is among them.

Build first: the headers that ninja knows are those of the last build.
PATTERN: only tests of such names, as in 'rc_*'.
usage: tests_since.py BUILD_DIR REV [--no-suite SUITE]... [PATTERN...]
"""
import argparse
import collections
import fnmatch
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

EVERY_TEST = ("meson_options.txt", "scripts/check.sh", "tests/isolated.sh", "tests/tsan.supp")
LIBRARY_PATHS = ("LD_LIBRARY_PATH", "PATH")  # meson's, for libraries that a program is linked with anyway
# All in these is compiled or an argument of a test; what nobody knows there is newer than the build, or gone.
BUILT_FOLDERS = ("src", "include", "lib", "tools")
# Folders of tests and programs, each for itself; besides them there are those in tests/.
SUITES = ("bench", "scripts")
SCRIPTS = (".py", ".sh")

WORD = re.compile(r"""(?<=["'/])[\w-]+(?=["'/])""")  # a quoted word or part of a path
QUOTED = re.compile(r"""(?<=["'])[\w-]+(?=["'])""")
SUITE_PATH = re.compile(r"\btests/([\w-]+)")
IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+([\w., \t]+)", re.MULTILINE)
FILE_NAME = re.compile(r"[\w-]+\.(?:py|sh)\b")
FINDS_SOURCES = re.compile(r"__file__|\$0|BASH_SOURCE")
INSTALLS = re.compile(r"\bmeson\W+install\b")


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def home(path):
    """The folder that a file belongs to: tests/NAME, or that in the source root, "" for files of the root."""
    parts = path.split("/")[:-1]
    return "/".join(parts[:2] if parts[:1] == ["tests"] else parts[:1])


class Ninja:
    """What ninja knows of a build directory."""

    def __init__(self, build, relative):
        self.build, self.relative = build, relative
        self.inputs = collections.defaultdict(list)
        self.unbuilt = set()  # objects whose headers are not known
        self._read_graph()
        self._read_headers()
        self.known = {relative(path) for inputs in self.inputs.values() for path in inputs}

    def _lines(self, *arguments):
        return output_of("ninja", "-C", self.build, *arguments).splitlines()

    def _read_graph(self):
        rules = dict(line.rsplit(": ", 1) for line in self._lines("-t", "targets", "all") if ": " in line)
        target, into = None, None
        for line in self._lines("-t", "query", *rules):
            if not line.startswith(" "):
                target = line.rstrip(":")
            elif not line.startswith("    "):
                into = self.inputs[target] if line.startswith("  input:") else None
            elif into is not None:
                into.append(re.sub(r"^\|\|? ", "", line[4:]))
        self.unbuilt = {target for target, rule in rules.items() if "_COMPILER" in rule}

    def _read_headers(self):
        target = None
        for line in self._lines("-t", "deps"):
            if line.startswith("    "):
                self.inputs[target].append(line[4:])
            elif line:
                target = line.split(": #deps")[0]
                self.unbuilt.discard(target)

    @functools.lru_cache(maxsize=None)
    def made_of(self, target):
        """All files of the source tree that a target is made of; None if it is not known."""
        found, seen, waiting = set(), {target}, [target]
        while waiting:
            path = waiting.pop()
            if path in self.unbuilt:
                return None
            for needed in self.inputs.get(path, ()):
                if needed not in seen:
                    seen.add(needed)
                    waiting.append(needed)
                    found.add(self.relative(needed))
        return found


class Script:
    """What the text of a script says about other files."""

    def __init__(self, text):
        self.modules = {word for line in IMPORT.findall(text) for word in re.findall(r"\w+", line)}
        self.file_names = set(FILE_NAME.findall(text))
        self.words = set(WORD.findall(text))
        self.suites = set(SUITE_PATH.findall(text)) | set(QUOTED.findall(text))
        self.finds_sources = bool(FINDS_SOURCES.search(text))
        self.installs = bool(INSTALLS.search(text))

    def mentions(self, path):
        name = os.path.basename(path)
        return name in self.file_names or os.path.splitext(name)[0] in self.modules


class Needs:
    """What one test depends on."""

    def __init__(self):
        self.everything = False
        self.files = set()
        self.folders = set()  # all of them
        self.suites = set()  # in these what is neither compiled nor a script of another test
        self.used = set()  # scripts

    def add_target(self, files):
        if files is None:
            self.everything = True
        else:
            self.files |= files


class Project:
    def __init__(self, build):
        self.build = build
        folders = self._info("meson-info")["directories"]
        self.source, self.build = folders["source"], folders["build"]
        self.tests = self._info("intro-tests")
        self.targets = {target["id"]: target for target in self._info("intro-targets")}
        self.build_files = {self.relative(path) for path in self._info("intro-buildsystem_files")}
        self.ninja = Ninja(self.build, self.relative)
        self.own_scripts = {self._script_of(test) for test in self.tests}
        top = {path.name for path in pathlib.Path(self.source).iterdir() if path.is_dir()}
        self.top_folders = top.difference(SUITES, ["tests"])

    def _info(self, name):
        with open(os.path.join(self.build, "meson-info", name + ".json"), encoding="utf-8") as file:
            return json.load(file)

    @functools.lru_cache(maxsize=None)
    def relative(self, path):
        """A path of meson's or ninja's from the source root on; absolute if it is built or not in there."""
        path = os.path.normpath(os.path.join(self.build, path))
        outside = self._inside(self.build, path) or not self._inside(self.source, path)
        return path if outside else os.path.relpath(path, self.source)

    def _full(self, path):
        return os.path.join(self.source, path)

    def _is_folder(self, path):
        return os.path.isdir(self._full(path))

    @staticmethod
    def _inside(folder, path):
        return path == folder or path.startswith(folder + os.sep)

    def _words_of(self, test):
        """The words of a test's command and environment that are files or folders of either tree."""
        settings = [value for name, value in test["env"].items() if name not in LIBRARY_PATHS]
        words = [self.relative(word) for word in [*test["cmd"], *settings] if word]
        return [word for word in words if os.path.exists(self._full(word))]

    def _script_of(self, test):
        scripts = (word for word in self._words_of(test) if word.endswith(SCRIPTS))
        return next((script for script in scripts if not os.path.isabs(script)), None)

    @functools.lru_cache(maxsize=None)
    def _read(self, script):
        return Script(pathlib.Path(self.source, script).read_text(encoding="utf-8", errors="replace"))

    @functools.lru_cache(maxsize=None)
    def _scripts_in(self, folder):
        found = pathlib.Path(self.source, folder).rglob("*") if folder else ()
        paths = {str(path.relative_to(self.source)) for path in found if path.suffix in SCRIPTS}
        return {path for path in paths if home(path) == folder}

    def _suites_named(self, told):
        named = ["tests/" + word for word in told.suites]
        return told.words.intersection(SUITES).union(filter(self._is_folder, named))

    def _is_used(self, script, users):
        return script not in self.own_scripts or any(self._read(user).mentions(script) for user in users)

    def _add_script(self, needs, script, has_source_root):
        """The scripts and folders that a script uses, and those that these use."""
        more = {script}
        while not more <= needs.used:
            needs.used |= more
            needs.suites.update(map(home, more))
            for told in (self._read(user) for user in more):
                if told.finds_sources or has_source_root and told is self._read(script):
                    needs.suites |= self._suites_named(told)
                    needs.folders |= told.words & self.top_folders
            near = set().union(*map(self._scripts_in, needs.suites))
            more = {path for path in near if self._is_used(path, needs.used)}

    def _add_target(self, needs, target):
        for name in target["filename"]:
            needs.add_target(self.ninja.made_of(os.path.relpath(name, self.build)))
        if target["installed"] and target["type"] == "executable":
            self._add_installed(needs)

    def _add_installed(self, needs):
        for target in self.targets.values():
            if target["installed"] and target["type"] != "executable":
                self._add_target(needs, target)

    def _add_build_root(self, needs):
        for target in self.targets.values():
            if target["installed"] or home(self.relative(target["defined_in"])) in needs.suites:
                self._add_target(needs, target)
        if any(self._read(script).installs for script in needs.used):
            for path in map(self.relative, self._info("intro-installed")):
                self._add_path(needs, path)

    def _add_path(self, needs, path):
        (needs.folders if self._is_folder(path) else needs.files).add(path)

    def _add_word(self, needs, word):
        """An argument: a folder or file of the source tree, or a target or folder of the build tree."""
        if word == ".":
            needs.everything |= not needs.folders
        elif word == self.build:
            self._add_build_root(needs)
        elif not os.path.isabs(word):
            self._add_path(needs, word)
        else:
            for target in self.targets.values():
                if any(self._inside(word, name) for name in target["filename"]):
                    self._add_target(needs, target)

    def needs_of(self, test):
        needs, words, script = Needs(), self._words_of(test), self._script_of(test)
        if script:
            self._add_script(needs, script, "." in words)
        for word in words:
            self._add_word(needs, word)
        for name in test["depends"]:
            if name in self.targets:
                self._add_target(needs, self.targets[name])
        return needs

    def every_test_needs(self, path):
        if path in self.build_files or path in EVERY_TEST or os.path.basename(path) == "meson.build":
            return True
        known = path in self.ninja.known or path in self.named_by_tests
        return home(path) in BUILT_FOLDERS and not known

    @functools.cached_property
    def named_by_tests(self):
        return {word for test in self.tests for word in self._words_of(test)}

    def depends(self, needs, path):
        if needs.everything or path in needs.files or path in needs.used:
            return True
        if any(path.startswith(folder + "/") for folder in needs.folders):
            return True
        return home(path) in needs.suites and path not in self.ninja.known and path not in self.own_scripts

    def depends_on_any(self, needs, paths):
        return any(self.depends(needs, path) for path in paths)

    def tests_for(self, changed):
        """The tests that any changed path concerns."""
        if any(self.every_test_needs(path) for path in changed):
            return self.tests
        return [test for test in self.tests if changed and self.depends_on_any(self.needs_of(test), changed)]


def changed_since(source, revision):
    """Paths as seen from the source root, the old ones of what was moved among them."""
    tracked = ["diff", "--name-only", "--no-renames", "--relative", "-z", revision, "--"]
    untracked = ["ls-files", "--others", "--exclude-standard", "-z"]
    paths = set()
    for command in (tracked, untracked):
        paths.update(filter(None, output_of("git", "-C", source, *command).split("\0")))
    return paths


def is_wanted(test, options):
    if any(suite.split(":")[-1] in options.no_suite for suite in test["suite"]):
        return False
    return not options.patterns or any(fnmatch.fnmatch(test["name"], pattern) for pattern in options.patterns)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[-1].removeprefix("usage: "))
    parser.add_argument("build")
    parser.add_argument("revision")
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--no-suite", action="append", default=[])
    parser.add_argument("--changed", nargs="+", help=argparse.SUPPRESS)  # these files, whatever git says
    options = parser.parse_intermixed_args()
    try:
        project = Project(options.build)
        tests = project.tests_for(options.changed or changed_since(project.source, options.revision))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    # Meson would run a test twice whose name it got twice.
    for name in dict.fromkeys(test["name"] for test in tests if is_wanted(test, options)):
        print(name)
    return 0


sys.exit(main())
