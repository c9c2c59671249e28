"""Writer of docs/reliability.md, from docs/results/reliability.json and docs/results/fuzzing.json."""

import json
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
RESULTS, FUZZING = (ROOT / "docs" / "results" / name for name in ("reliability.json", "fuzzing.json"))
PAGE = ROOT / "docs" / "reliability.md"
FAULTS = {
    "tests/cli/test_faults.py": (
        "Disks, files and processes",
        "damaged files and checkpoints, edited settings, runs of older versions, a run directory that is removed or"
        " replaced, a second process, full and read-only disks",
    ),
    "tests/cli/test_memory_limit.py": ("Memory", "`--memory-limit` in mining, training, evaluation and completion"),
    "tests/cli/test_hostile_input.py": (
        "Hostile input",
        "small files that expand to gigabytes, invalid Parquet, pipes and devices, long lines, deep nesting, malicious"
        " settings, rules, names, queries and runs, links out of a run directory",
    ),
    "tests/web/test_security.py": (
        "Server: access",
        "security headers, host names, cross-site requests, malformed requests, path traversal, tokens",
    ),
    "tests/web/test_pressure.py": (
        "Server: load",
        "a thousand idle connections or simultaneous requests, huge bodies, slow clients",
    ),
}
"""Tests of faults other than kills: file, then title and content."""
RENAMED = {"tests/web/test_gate.py": "tests/web/test_security.py"}
"""Names of tests in older results, and their present names."""
SIGNALS = {"kill": "SIGKILL", "term": "SIGTERM", "int": "SIGINT (Ctrl-C)"}
PLACES = {"moment": "at a random moment", "operation": "before a random file operation"}
SETTINGS = {
    "sampled": "`train`: `sampled`, sampled premises",
    "softmax": "`train --rules`: `one_vs_all`, warm start, early stopping in E-step and EM",
    "rules alone": "`train --rules`: rules alone",
    "explicit negatives": "`train --rules`: rejected triples as negatives",
    "one iteration more": "`resume --set em.iterations=3` of a complete run",
    "refit": "`refit --rules` of a complete run",
    "save": "`PLogicNet.save` over a complete run",
    "revert": "`runs revert` of a complete run",
}
OPENED = {
    "old": "the old state",
    "new": "the new state",
    "message": "no run yet: a message says how to continue",
}
"""What a reader finds after a power cut."""
OPENING = """<!-- made by `make torture`, and from docs/results/*.json by `python torture/reliability.py` -->
# Reliability

This page shows what happens to a run when a command is interrupted or a fault occurs, and how this is tested.

```
plogicnet resume RUN      # continue an interrupted training
make torture              # repeat the tests and write this page
```

**After any interruption, a complete run is readable and has its old state or its new state, never a mixture. Once a
checkpoint exists, `plogicnet resume RUN` produces the same snapshot, byte for byte, as an uninterrupted training** (on
a CPU).

- A run contains snapshots, whose files never change, and the file `CURRENT`, which names one of them. A command writes
  a complete new snapshot, and then replaces `CURRENT`. Readers need no lock.
- After an interrupted `refit`, `save` or `runs revert`, repeat the command.
- After an interrupted training, use `resume`. Ctrl-C and SIGTERM finish the current training step, save, and print how
  to continue. No training step is repeated.
- A kill or a crash loses at most the work since the last checkpoint. An E-step saves one every minute, and each EM
  iteration saves one at its end.
- If nothing is saved yet, `resume` reports this, and `train` starts again in the same directory.
- The next command that writes removes the temporary files of a killed one.
- Commands that only read (`evaluate`, `rules`) need a complete run. Otherwise they print how to complete it.
"""
KILLS = """## Kills

`make torture` runs the real program on a small graph and kills it

- at a random moment after it first changed the run directory;
- before a random file operation in the run directory;
- or while a file is being written, which leaves it truncated at a random length. If a complete directory is about to
  get its name, one of its new files is truncated.

Most kills hit `refit`, `PLogicNet.save` and `runs revert` on a complete run with two snapshots. Others hit training.

After each kill it checks that

- `evaluate`, `rules` and `runs list` succeed on a complete run, and otherwise say how to complete it;
- the files of the current snapshot and the output of these commands are exactly those of the old state or of the new
  one, and the run does not go back from the new state to the old one;
- after SIGTERM or Ctrl-C, a training printed how to continue;
- no saved EM iteration is repeated.

It then resumes the training or repeats the command, as if an hour had passed, and sometimes kills it again. Finally it
compares the current snapshot with that of an uninterrupted run, file by file, and checks that

- every other snapshot is intact;
- the old state still exists, so that `runs revert` can go back to it;
- no temporary files are left.

*Lost* means that a run could not be read or continued. *Different* means other bytes, a missing snapshot or an
additional file. In these tests, an E-step saves a checkpoint every 20 steps, so that kills also occur between
checkpoints. `python torture/kills.py --only KIND:SEED` repeats a run.
"""
CRASH_STATES = """## Power cuts

A power cut can also lose writes that the program made but that the disk has not stored. `python
torture/crash_states.py` records the file operations of the real commands, computes the states that a power cut can
leave on the disk after each of them, and opens every state. It must be the old state, the new state, or a directory
without a run.
"""


def faults(files: Mapping[str, object] = FAULTS) -> dict[str, dict[str, dict[str, int]]]:
    """Run the tests of these files and count the outcomes of each. Missing files are skipped.

    Example:
        >>> faults({"tests/nowhere.py": "nothing"})
        {}
    """
    there = [name for name in files if (ROOT / name).is_file()]
    counts: dict[str, dict[str, dict[str, int]]] = {name: {} for name in there}
    if not there:
        return counts
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ("-q", "-o", "junit_family=xunit1", f"--junitxml={report}")
        subprocess.run([sys.executable, "-m", "pytest", *options, *there], cwd=ROOT, check=False)
        cases = list(ElementTree.parse(report).iter("testcase"))
    for case in cases:
        outcomes = {part.tag for part in case}
        if "skipped" in outcomes:
            continue
        name = case.attrib["name"].split("[")[0].removeprefix("test_").replace("_", " ")
        count = counts[case.attrib["file"]].setdefault(name, {"tried": 0, "survived": 0, "lost": 0})
        count["tried"] += 1
        count["lost" if outcomes & {"failure", "error"} else "survived"] += 1
    return counts


def page(results: Mapping[str, Any], fuzzing: Mapping[str, Any]) -> str:
    """Return the page in Markdown."""
    kills = results["kills"]
    measured = f"Measured by `{results['command']}` at commit {results['commit']}"
    sums = {key: sum(kind[key] for kind in kills["kinds"].values()) for key in next(iter(kills["kinds"].values()))}
    rows = [(_kind(kind), *of.values()) for kind, of in kills["kinds"].items()]
    parts = [
        OPENING,
        f"{KILLS}\n{measured}:\n{kills['kills']:,} kills of {kills['runs']:,} runs, seeds from {kills['seed']}, in"
        f" {kills['minutes']:g} minutes.\n",
        _table(
            ("kind of fault", "tried", "survived", "lost", "different", "tried after another kill"), rows, sums.values()
        ),
        _table(("killed command", "kills"), [(SETTINGS[name], count) for name, count in kills["settings"].items()]),
        _table(("state after the kill", "kills"), list(kills["left"].items())),
    ]
    if "crash_states" in results:
        parts += _crash_states(results["crash_states"])
    if results["faults"]:
        parts += _other_faults({RENAMED.get(file, file): tests for file, tests in results["faults"].items()})
    if fuzzing:
        rows = [
            (f"`fuzz/{name}.py`", *(f[k] for k in ("executions", "minutes", "findings", "fixed")))
            for name, f in fuzzing.items()
        ]
        parts.append(
            "## Fuzzing\n\n`make fuzz` runs coverage-guided fuzzing (atheris). `make test` also replays its corpus.\n"
        )
        parts.append(_table(("target", "executions", "minutes", "open findings", "fixed findings"), rows))
    return "\n".join(parts)


def _crash_states(results: Mapping[str, Any]) -> list[str]:
    """Return the part about power cuts: the recorded commands, what readers found, and the failures."""
    states = results.get("by_command", {})
    recorded = [(f"`{command}`", count, states.get(command, "")) for command, count in results["recorded"].items()]
    opened = [(OPENED.get(name, name), count) for name, count in results["opened"].items()]
    failed = [(f"`{f['command']}`: {f['message']}", f["states"]) for f in results.get("failures", ())]
    parts = [
        CRASH_STATES,
        _table(
            ("command", "file operations", "states"), recorded, (sum(results["recorded"].values()), results["states"])
        ),
        _table(("a reader finds", "states"), opened),
    ]
    return [*parts, _table(("failure", "states"), failed)] if failed else parts


def _other_faults(results: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[str]:
    """Return the part about other faults: a row per file, then the content of each, then the failed tests."""
    keys = ("tried", "survived", "lost")
    counts = {file: [sum(test[key] for test in tests.values()) for key in keys] for file, tests in results.items()}
    rows = [(FAULTS[file][0], f"`{file}`", *count) for file, count in counts.items()]
    sums = ("", *(sum(column) for column in zip(*counts.values(), strict=True)))
    failed = [(name, *test.values()) for tests in results.values() for name, test in tests.items() if test["lost"]]
    parts = [
        "## Other faults\n\n`make torture` also runs these tests of the real commands and the real server. A test"
        " passes if the\nmessage is clear and no saved data is lost."
        " [results/reliability.json](results/reliability.json) lists every test.\n",
        _table(("area", "tests", *keys), rows, sums),
        "".join(_wrapped(f"- **{FAULTS[file][0]}**: {FAULTS[file][1]}.") for file in results),
    ]
    return [*parts, _table(("failed test", *keys), failed)] if failed else parts


def _wrapped(item: str) -> str:
    return textwrap.fill(item, 120, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def _kind(kind: str) -> str:
    name, _, place = kind.partition("-")
    return f"{SIGNALS[name]} {PLACES[place]}" if place in PLACES else "SIGKILL, current file truncated"


def _table(titles: tuple[str, ...], rows: list[tuple[Any, ...]], sums: Any = ()) -> str:
    lines = [titles, ("---", *("--:",) * (len(titles) - 1)), *rows]
    if sums:
        lines.append(("**all**", *(f"**{value:,}**" if isinstance(value, int) else value for value in sums)))
    return "".join(f"| {' | '.join(f'{v:,}' if isinstance(v, int) else str(v) for v in line)} |\n" for line in lines)


def read(file: Path) -> dict[str, Any]:
    """Return the content of a file of results, or {} if it does not exist."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return content


def write(kills: Mapping[str, Any]) -> bool:
    """Run the tests of other faults, write the results and the page, and return whether all tests passed."""
    from results import save

    tested = faults()
    others = {key: value for key, value in read(RESULTS).items() if key == "crash_states"}
    save("reliability", {"kills": {k: v for k, v in kills.items() if k != "stopped"}, **others, "faults": tested})
    main()
    return not any(count["lost"] for tests in tested.values() for count in tests.values())


def write_crash_states(states: Mapping[str, Any]) -> None:
    """Add the result of `crash_states.py` to the results, and write the page."""
    results = read(RESULTS) | {"crash_states": dict(states)}
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    main()


def main() -> None:
    """Write the page from the saved results."""
    PAGE.write_text(page(read(RESULTS), read(FUZZING)), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
