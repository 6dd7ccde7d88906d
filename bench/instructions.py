# SPDX-License-Identifier: BSD-2-Clause
"""Instructions that callgrind counts for posting, receiving and polling 8 bytes, on both sides, and for the
patterns in which programs send (patterns.c), beside those that were accepted.

instructions.json holds the accepted ones, with the compiler's version: another one gives other numbers.
"""
import json
import os
import pathlib
import re
import statistics
import subprocess

import harness
import patterns
import report
from experiment import Failed

ACCEPTED = pathlib.Path(__file__).with_name("instructions.json")
TOLERANCE = 0.03
LIST = 64  # as in instructions.c, and the messages of a dump of patterns.c
IN_VAIN = "poll_cq, empty"  # as many of them are counted together
LIMIT_S = 300
# by what stands before the names: the program, and its environment
RUNS = {
    "local": ("instructions", {}),
    "wire": ("instructions", {"VERBATIM_LOCAL": "off"}),
    "pattern": ("patterns", {}),
}


def measure(tools, accept):
    """The entry of the file of figures; prints the table."""
    if missing := harness.missing_programs("valgrind"):
        return {"not_measured": say(f"{missing[0]} is not installed")}
    if not all(os.path.exists(tools.own(program)) for program, _ in RUNS.values()):
        return {"not_measured": say("valgrind's headers were not there when this was built")}
    try:
        found = {"compiler": compiler(tools.build), "counts": counts(tools)}
    except Failed as reason:
        return {"failed": say(f"FAILED: {reason}")}
    accepted = (
        json.loads(ACCEPTED.read_text(encoding="utf-8"))
        if ACCEPTED.exists()
        else {"counts": {}, "compiler": ""}
    )
    changed = changes(found, accepted)
    show(found, accepted, changed)
    print("", *patterns.table(found["counts"]), sep="\n")
    if accept:
        ACCEPTED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        say(f"\n{ACCEPTED} is written anew.")
    return {**found, "accepted": accepted, "changes": changed}


def say(sentence):
    print(sentence, flush=True)
    return sentence


def compiler(build):
    about = json.loads(report.output_of("meson", "introspect", "--compilers", build) or "{}")
    return about.get("host", {}).get("c", {}).get("full_version", "")


def counts(tools):
    """{name: instructions for one message, the call's own overhead of being counted taken off}"""
    found = {}
    for label, (program, environment) in RUNS.items():
        samples = dumps(tools, program, label, environment)
        overheads = {
            kind: statistics.median(samples.pop((kind, name)))
            for kind, name in list(samples)
            if name == "nothing"
        }
        for (kind, name), values in samples.items():
            calls = LIST if kind in ("list", "patterns") or name == IN_VAIN else 1
            full = f"{label}, {'list of 64, ' if kind == 'list' else ''}{name}"
            overhead = overheads[kind if kind in overheads else ""]
            found[full] = round((statistics.median(values) - overhead) / calls, 1)
    return found


def dumps(tools, program, label, environment):
    """{(what the program said that begins, name): [totals]} of a run."""
    directory = pathlib.Path(tools.log_dir) / f"callgrind-{label}"
    directory.mkdir()
    command = [
        "valgrind",
        "-q",
        "--tool=callgrind",
        "--collect-atstart=no",
        "--compress-strings=no",
        f"--callgrind-out-file={directory}/%p",
        tools.own(program),
    ]
    with open(directory / "log", "wb") as log:
        try:
            done = subprocess.run(
                command,
                stdout=log,
                stderr=log,
                timeout=LIMIT_S,
                check=False,
                env={**os.environ, **environment},
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"no end in {LIMIT_S} s, see {directory}/log") from None
    if done.returncode:
        raise Failed(f"ended with {done.returncode}, see {directory}/log")
    samples = {}
    for process in sorted({path.stem for path in directory.glob("*.*")}, key=int):
        kind = ""
        for path in sorted(directory.glob(f"{process}.*"), key=lambda path: int(path.suffix[1:])):
            text = path.read_text(encoding="utf-8")
            trigger = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            if trigger and trigger.group(1).startswith("begin "):
                kind = trigger.group(1).split()[1]
            elif trigger:
                total = int(re.search(r"^totals: (\d+)", text, re.MULTILINE).group(1))
                samples.setdefault((kind, trigger.group(1)), []).append(total)
    return samples


def changes(found, accepted):
    """{name: share} of what has changed by more than the tolerance."""
    shares = {
        name: now / accepted["counts"][name] - 1
        for name, now in found["counts"].items()
        if accepted["counts"].get(name)
    }
    return {name: round(share, 4) for name, share in shares.items() if abs(share) > TOLERANCE}


def show(found, accepted, changed):
    print("| instructions for one message | now | accepted | |\n| --- | --- | --- | --- |")
    for name, now in sorted(found["counts"].items()):
        share = changed.get(name)
        word = f"**{'ROSE' if share > 0 else 'fell'} by {abs(share):.1%}**" if share else ""
        print(f"| {name} | {now:g} | {accepted['counts'].get(name, '')} | {word} |")
    if changed:
        print(
            f"\n*** {len(changed)} COUNTS HAVE CHANGED BY MORE THAN {TOLERANCE:.0%}. "
            "If that is meant: bench.py … instructions --accept ***"
        )
    if accepted["compiler"] not in ("", found["compiler"]):
        print(
            f"\nAccepted were counts of another compiler: {accepted['compiler']}; this is {found['compiler']}."
        )
