# SPDX-License-Identifier: BSD-2-Clause
"""Runs functions as test cases, and says how each ended: TAP."""


class Skip(Exception):
    """A case cannot be run here."""


def expect(found, wanted):
    assert found == wanted, f"{found} instead of {wanted}"


def run_cases(cases):
    """The exit status."""
    failed = 0
    print(f"1..{len(cases)}", flush=True)
    for number, function in enumerate(cases, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}", flush=True)
        except Skip as reason:
            print(f"ok {number} - {function.__name__} # SKIP {reason}", flush=True)
        except (AssertionError, OSError) as reason:
            failed += 1
            print(f"not ok {number} - {function.__name__}\n# {reason}", flush=True)
    return 1 if failed else 0
