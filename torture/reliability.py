"""docs/reliability.md, made of docs/results/reliability.json and the fuzzing figures; run alone, it writes it anew."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
RESULTS, FUZZING = (ROOT / "docs" / "results" / name for name in ("reliability.json", "fuzzing.json"))
PAGE = ROOT / "docs" / "reliability.md"
FAULTS = {
    "tests/cli/test_faults.py": "Disks, files and other processes",
    "tests/cli/test_memory_limit.py": "Memory",
    "tests/cli/test_hostile_input.py": "Hostile input",
    "tests/web/test_gate.py": "The server: who may ask",
    "tests/web/test_pressure.py": "The server: too much, too slow",
}
"""The tests of faults other than kills."""
SIGNALS = {"kill": "SIGKILL", "term": "SIGTERM", "int": "SIGINT (Ctrl-C)"}
PLACES = {"moment": "at a random moment", "operation": "before a random file operation"}
SETTINGS = {
    "sampled": "`train`: sampled negatives, sampled premises",
    "softmax": "`train --rules`: softmax, warm start, patience in E-step and EM",
    "rules alone": "`train --rules`: the rules alone",
    "explicit negatives": "`train --rules`: rejected triples as negatives",
    "one iteration more": "`resume --set em.iterations=3` of a complete run",
    "refit": "`refit --rules` of a complete run",
}
OPENING = """<!-- made by `make torture`, and from docs/results/*.json by `python torture/reliability.py` -->
# Reliability

What is promised of a training that is broken off, by whatever: **its run directory stays readable, and
`plogicnet resume RUN` goes on to the same files, byte for byte, as if nothing had happened** (on a CPU; but for
`timings.json` and `log.txt`).

- Ctrl-C and SIGTERM end the step in hand, save, and say how to go on: no step of an E-step is done again.
- A kill or a crash loses at most the work since the last checkpoint: an E-step keeps its place once a minute, and each
  EM iteration is kept when it is over. What came before is not done again.
- Before anything is saved, `resume` says so, and `train` begins anew in the same directory.
- No half-written file takes a finished one's place, and nothing temporary stays once the run is complete.
- What only reads a run (`evaluate`, `rules`) answers if it is complete, and else says how to complete it.
"""
KILLS = """## Kills

`make torture` runs the real program on a small graph, in a process of its own, and kills it: at a random moment; before
a random one of the file operations in the run directory; or as a finished file is put in its place, with that file cut
to a random length. After each kill the directory must be readable, a stop by SIGTERM or Ctrl-C must have said how to
go on, and no EM iteration that was kept may be done again. Then the run is resumed, perhaps killed again as it resumes,
and at the end compared with the uninterrupted one, file by file. *Lost*: something of this failed; *different*: other
bytes, or a file too many. An E-step keeps its place every 20 steps here, so that kills fall between its checkpoints as
they would in hours of training. Places are drawn from seeds; `python torture/kills.py --only KIND:SEED` repeats a run.
"""


def faults(files: Mapping[str, str] = FAULTS) -> dict[str, dict[str, dict[str, int]]]:
    """How often each test of these files was tried, passed and failed; files that are not there are passed over.

    Example:
        >>> faults({"tests/nowhere.py": "Nothing"})
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
    """The page in Markdown.

    Example:
        >>> page(json.loads(RESULTS.read_text()), {}).splitlines()[1]  # doctest: +SKIP
        '# Reliability'
    """
    kills = results["kills"]
    made = f"Made by `{results['command']}` at commit {results['commit']}"
    sums = {key: sum(kind[key] for kind in kills["kinds"].values()) for key in next(iter(kills["kinds"].values()))}
    rows = [(_kind(kind), *of.values()) for kind, of in kills["kinds"].items()]
    parts = [
        OPENING,
        f"{KILLS}\n{made}: {kills['kills']:,} kills of {kills['runs']:,} runs, seeds from {kills['seed']}, in"
        f" {kills['minutes']:g} minutes.\n",
        _table(("kind of fault", "tried", "survived", "lost", "different", "while resuming"), rows, sums.values()),
        _table(("what was killed", "kills"), [(SETTINGS[name], count) for name, count in kills["settings"].items()]),
        _table(("what a kill left", "kills"), list(kills["left"].items())),
    ]
    if results["faults"]:
        parts.append(
            "## Other faults\n\nEach is a test through the real command or the real server, run by the same command:"
            " a clear message, and nothing lost that was saved.\n"
        )
    for file, tests in results["faults"].items():
        rows = [(name, *count.values()) for name, count in tests.items()]
        sums = {key: sum(count[key] for count in tests.values()) for key in ("tried", "survived", "lost")}
        parts.append(f"### {FAULTS[file]}\n\n`{file}`\n")
        parts.append(_table(("fault", "tried", "survived", "lost"), rows, sums.values()))
    if fuzzing:
        rows = [
            (f"`fuzz/{name}.py`", *(f[k] for k in ("executions", "minutes", "findings", "fixed")))
            for name, f in fuzzing.items()
        ]
        parts.append("## Fuzzing\n\nCoverage-guided (atheris), by `make fuzz`; the corpus is kept and is a test.\n")
        parts.append(_table(("target", "executions", "minutes", "open findings", "fixed ones"), rows))
    return "\n".join(parts)


def _kind(kind: str) -> str:
    name, _, place = kind.partition("-")
    return f"{SIGNALS[name]} {PLACES[place]}" if place in PLACES else "SIGKILL, the file in hand half written"


def _table(titles: tuple[str, ...], rows: list[tuple[Any, ...]], sums: Any = ()) -> str:
    lines = [titles, ("---", *("--:",) * (len(titles) - 1)), *rows]
    if sums:
        lines.append(("**all**", *(f"**{value:,}**" for value in sums)))
    return "".join(f"| {' | '.join(f'{v:,}' if isinstance(v, int) else str(v) for v in line)} |\n" for line in lines)


def read(file: Path) -> dict[str, Any]:
    """A file of results; nothing where there is none."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return content


def write(kills: Mapping[str, Any]) -> bool:
    """Runs the tests of the other faults, writes figures and page; gives whether all of them passed."""
    from results import save

    tested = faults()
    save("reliability", {"kills": {k: v for k, v in kills.items() if k != "stopped"}, "faults": tested})
    main()
    return not any(count["lost"] for tests in tested.values() for count in tests.values())


def main() -> None:
    """Writes the page from the figures as they are."""
    PAGE.write_text(page(read(RESULTS), read(FUZZING)), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
