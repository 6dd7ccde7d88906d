#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""scripts/tests_since.py on a made-up project: what each kind of change picks, what is a change. Speaks TAP.
usage: tests_since_test.py PATH_OF_TESTS_SINCE
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# In two words: tests_since.py is not to think that this script looks at the folders that it names.
ITSELF = "__" "file__"

PROJECT = {
    "README.md": "",
    ".gitignore": "build\n",
    "meson.build": """
        project('made-up', 'c')
        sources = meson.project_source_root()
        a = shared_library('a', 'src/a.c', install: true)
        command = executable('command', 'tools/command.c', install: true)
        subdir('tests')
        """,
    "src/a.c": '#include "a.h"\n#include "common.h"\nint a(void) { return COMMON; }\n',
    "src/a.h": "int a(void);\n",
    "src/b.c": '#include "common.h"\nint b(void);\nint b(void) { return COMMON; }\n',
    "src/common.h": "#define COMMON 0\n",
    "tools/command.c": "int main(void) { return 0; }\n",
    "man/page.1": "",
    "tests/meson.build": """
        subdir('unit')
        subdir('apps')
        subdir('net')
        test('pages', find_program('pages.sh'), args: sources)
        """,
    "tests/pages.sh": '#!/bin/sh\nls "$1/man"\n',
    "tests/unit/meson.build": """
        b = static_library('b', '../../src/b.c', build_by_default: false)
        test('a', executable('test_a', 'test_a.c', link_with: a))
        test_b = executable('test_b', 'test_b.c', link_with: b)
        test('b', test_b)
        test('b-corpus', test_b, args: meson.current_source_dir() / 'corpus')
        test('twice', test_b)
        """,
    "tests/unit/test_a.c": '#include "../../src/a.h"\nint main(void) { return a(); }\n',
    "tests/unit/test_b.c": "int b(void);\nint main(void) { return b(); }\n",
    "tests/unit/corpus/seed": "",
    "tests/apps/meson.build": """
        helper = executable('helper', 'helper.c')
        foreach name : ['one', 'two']
          test(name, find_program(name + '.py'), args: meson.project_build_root())
        endforeach
        test('alone', find_program('alone.py'))
        test('commanded', find_program('alone.py'), args: command, suite: 'long')
        """,
    "tests/apps/one.py": "#!/usr/bin/env python3\nimport harness\n",
    "tests/apps/two.py": "#!/usr/bin/env python3\nimport one\n",
    "tests/apps/alone.py": "#!/usr/bin/env python3\n",
    "tests/apps/harness.py": "",
    "tests/apps/expected.txt": "",
    "tests/apps/helper.c": "int main(void) { return 0; }\n",
    "tests/net/meson.build": "test('twice', find_program('net.py'), args: meson.project_build_root())\n",
    "tests/net/net.py": "#!/usr/bin/env python3\nimport paths\nimport harness\n",
    "tests/net/paths.py": f'import sys\nsys.path.insert(0, {ITSELF} + "/../../apps")\nfolder = "apps"\n',
}
EVERY = {"a", "b", "b-corpus", "twice", "one", "two", "alone", "commanded", "pages"}
WITH_LIBRARY = {"a", "one", "two", "twice", "commanded"}
SUITE = {"one", "two", "alone", "commanded", "twice"}  # twice: the other of that name is in tests/net

# name: (changed files, tests)
PICKS = {
    "source_of_the_library": (["src/a.c"], WITH_LIBRARY),
    "source_of_one_test": (["tests/unit/test_a.c"], {"a"}),
    "source_of_a_static_library": (["src/b.c"], {"b", "b-corpus", "twice"}),
    "source_of_the_command": (["tools/command.c"], {"one", "two", "twice", "commanded"}),
    "source_of_a_program_for_scripts": (["tests/apps/helper.c"], {"one", "two", "twice"}),
    "header_picks_its_users": (["src/a.h"], WITH_LIBRARY),
    "header_of_all": (["src/common.h"], WITH_LIBRARY | {"b", "b-corpus"}),
    "script_of_one_test": (["tests/net/net.py"], {"twice"}),
    "script_that_another_imports": (["tests/apps/one.py"], {"one", "two"}),
    "script_of_two_tests": (["tests/apps/alone.py"], {"alone", "commanded"}),
    "module_of_scripts": (["tests/apps/harness.py"], SUITE),
    "data_of_scripts": (["tests/apps/expected.txt"], SUITE),
    "data_that_is_gone": (["tests/apps/gone.txt"], SUITE),
    "folder_that_is_an_argument": (["tests/unit/corpus/more"], {"b-corpus"}),
    "folder_of_the_source_root": (["man/page.1"], {"pages"}),
    "definition_of_the_build": (["tests/net/meson.build"], EVERY),
    "wrapper_of_tests": (["tests/isolated.sh"], EVERY),
    "source_that_nobody_knows": (["src/new.h"], EVERY),
    "no_tests_of_it": (["README.md", "debian/rules"], set()),
    "several_changes": (["README.md", "man/page.1", "tests/net/net.py"], {"pages", "twice"}),
}


class Project:
    """The made-up project in a folder, with git and a build directory."""

    def __init__(self, folder, tests_since):
        self.folder, self.tests_since = pathlib.Path(folder).resolve(), tests_since
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.environment |= {"HOME": folder, "GIT_CONFIG_NOSYSTEM": "1"}
        for path, text in PROJECT.items():
            self.write(path, text)

    def write(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [line.removeprefix(" " * 8) for line in text.splitlines()]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        file.chmod(0o755)

    def run(self, *command):
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )

    def must(self, *command):
        done = self.run(*command)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    def git(self, *arguments):
        self.must("git", "-c", "user.name=t", "-c", "user.email=t@example", *arguments)

    def picked(self, *arguments):
        """The names in order; None if it failed."""
        done = self.run(sys.executable, self.tests_since, "build", *arguments)
        return done.stdout.splitlines() if done.returncode == 0 else None


class Report:
    def __init__(self):
        self.count = self.failed = 0

    def check(self, name, got, wanted):
        good = got is not None and sorted(got) == sorted(wanted)
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - tests_since__{name}")
        if not good:
            print(f"# got {got}\n# not {sorted(wanted)}")


def check_git(project, report):
    """Each kind of change in turn; the ones before it stay."""
    report.check("nothing_changed", project.picked("HEAD"), [])
    project.write("build/file", "")
    report.check("ignored", project.picked("HEAD"), [])
    project.write("man/new page.1", "")
    report.check("untracked", project.picked("HEAD"), {"pages"})
    project.git("add", "man")
    report.check("staged", project.picked("HEAD"), {"pages"})
    project.git("commit", "-q", "-m", "second")
    report.check("committed_before", project.picked("HEAD"), [])
    report.check("committed_since", project.picked("HEAD~1"), {"pages"})
    project.write("src/b.c", PROJECT["src/b.c"] + "// more\n")
    report.check("edited", project.picked("HEAD"), {"b", "b-corpus", "twice"})
    report.check("committed_and_edited", project.picked("HEAD~1"), {"pages", "b", "b-corpus", "twice"})
    report.check("patterns", project.picked("HEAD~1", "b*", "page?"), {"pages", "b", "b-corpus"})
    project.write("tests/apps/alone.py", PROJECT["tests/apps/alone.py"] + "# more")
    report.check("without_a_suite", project.picked("HEAD", "--no-suite", "long", "alone", "comm*"), {"alone"})
    project.git("mv", "tests/apps/expected.txt", "man/expected.txt")
    report.check("moved_from", project.picked("HEAD", "one"), {"one"})
    failed = project.run(sys.executable, project.tests_since, "build", "no-such-revision")
    report.check("no_such_revision", [failed.stdout, str(failed.returncode)], ["", "2"])


def check_all(project, report):
    project.git("init", "-q")
    project.git("add", ".")
    project.git("commit", "-q", "-m", "first")
    project.must("meson", "setup", "build")
    report.check("not_built", project.picked("HEAD", "--changed", "src/b.c"), EVERY - {"alone", "pages"})
    project.must("ninja", "-C", "build")
    for name, (changed, tests) in PICKS.items():
        report.check(name, project.picked("HEAD", "--changed", *changed), tests)
    check_git(project, report)


def main():
    missing = [program for program in ("git", "meson", "ninja") if not shutil.which(program)]
    if missing:
        print(f"1..0 # SKIP without {' '.join(missing)}")
        return 0
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        check_all(Project(folder, os.path.abspath(sys.argv[1])), report)
    print(f"1..{report.count}")
    return 1 if report.failed else 0


sys.exit(main())
