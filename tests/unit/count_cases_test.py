#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""scripts/count_cases.py on made-up logs; speaks TAP.
usage: count_cases_test.py PATH_OF_COUNT_CASES
"""
import json
import re
import subprocess
import sys
import tempfile

CHATTER = "".join(f"# line {n}\n" for n in range(40))

# name: (tests of the log as (result, stdout, stderr), meson's exit status, last lines of the output)
EXPECTED = {
    "sums_cases": (
        [("OK", "1..2\nok 1 - a\nok 2 - b # SKIP absent\n", ""), ("OK", "", "")],
        0,
        ["skipped: t0: b: absent", "2 passed, 0 failed, 1 skipped"],
    ),
    "failures_come_last_with_what_was_said": (
        [
            ("FAIL", "not ok 1 - a\n# why\n# where\nok 2 - b\n# b is fine\n1..2\n", ""),
            ("SKIP", "1..0 # SKIP nothing here\n", ""),
        ],
        1,
        [
            "skipped: t1: SKIP: 1..0 # SKIP nothing here",
            "failed: t0: a",
            "    # why",
            "    # where",
            "    AGAIN t0",
            "1 passed, 1 failed, 1 skipped",
        ],
    ),
    "standard_error_by_name": (
        [("FAIL", "ok 1 - a\nnot ok 2 - b\n1..2\n", "# a: fine\n# b: broken\n# c: fine\n")],
        1,
        ["failed: t0: b", "    # b: broken", "    AGAIN t0", "1 passed, 1 failed, 0 skipped"],
    ),
    "standard_error_without_name": (
        [("FAIL", "not ok 1 - a\n", "oh\n\n(test program exited with status code 1)\n")],
        1,
        ["failed: t0: a", "    oh", "    AGAIN t0", "0 passed, 1 failed, 0 skipped"],
    ),
    "long_stories_are_cut": (
        [("FAIL", "not ok 1 - a\n" + CHATTER, "oh\n")],
        1,
        [
            "failed: t0: a",
            *(f"    # line {n}" for n in range(28, 40)),
            "    AGAIN t0",
            "0 passed, 1 failed, 0 skipped",
        ],
    ),
    "bad_end_of_good_cases": (
        [("TIMEOUT", "ok 1 - a\n# going on\n", "stuck\n")],
        1,
        [
            "failed: t0: ended with TIMEOUT",
            "    stuck",
            "    ok 1 - a",
            "    # going on",
            "    AGAIN t0",
            "1 passed, 1 failed, 0 skipped",
        ],
    ),
    "crash_without_a_word": (
        [("FAIL", "", "")],
        1,
        ["failed: t0: FAIL", "    AGAIN t0", "0 passed, 1 failed, 0 skipped"],
    ),
    "cases_say_how_to_run_them_again": (
        [("FAIL", "not ok 1 - a\n# why\n# again: test a\n# seed 7\n", "")],
        1,
        [
            "failed: t0: a",
            "    # why",
            "    # again: test a",
            "    # seed 7",
            "0 passed, 1 failed, 0 skipped",
        ],
    ),
    "what_is_said_twice_counts_once": (
        [("FAIL", "not ok 1 - a\n# why\n", "not ok 1 - a\n# why\n")],
        1,
        ["failed: t0: a", "    # why", "    AGAIN t0", "0 passed, 1 failed, 0 skipped"],
    ),
    "skipped_by_itself": (
        [("OK", "ok 1 - a\nok 2 - b\n", "# b: skipped: no root\n")],
        0,
        ["skipped: t0: b: no root", "1 passed, 0 failed, 1 skipped"],
    ),
    "meson_alone_fails": (
        [("OK", "ok 1 - a\n", "")],
        3,
        ["failed: meson test ended with 3", "1 passed, 1 failed, 0 skipped"],
    ),
}


def run(program, log, status, *more):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        for number, (result, stdout, stderr) in enumerate(log):
            test = {
                "name": f"suite - verbatim:t{number}" if number % 2 else f"verbatim:suite / t{number}",
                "result": result,
                "stdout": stdout,
                "stderr": stderr,
            }
            file.write(json.dumps(test) + "\n")
        file.flush()
        return subprocess.run(
            [sys.executable, program, file.name, str(status), *more],
            capture_output=True,
            text=True,
            check=False,
        )


def main():
    failed = 0
    for number, (name, (log, status, last)) in enumerate(EXPECTED.items(), 1):
        done = run(sys.argv[1], log, status)
        lines = [re.sub("# again: meson test -C \\S*", "AGAIN", line) for line in done.stdout.splitlines()]
        good = lines[-len(last) :] == last and done.returncode == ("0 failed" not in last[-1])
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - count_cases__{name}")
        if not good:
            print(
                "\n".join(
                    f"# {line}" for line in [*lines, *done.stderr.splitlines(), f"status {done.returncode}"]
                )
            )
    done = run(sys.argv[1], EXPECTED["sums_cases"][0], 0, "/nonexistent.json", "0")
    good = (
        done.stdout.splitlines()[-2:]
        == ["failed: no test log /nonexistent.json", "2 passed, 1 failed, 1 skipped"]
        and done.returncode == 1
    )
    failed += not good
    print(
        f"{'ok' if good else 'not ok'} {len(EXPECTED) + 1} - count_cases__several_logs\n1..{len(EXPECTED) + 1}"
    )
    return 1 if failed else 0


sys.exit(main())
