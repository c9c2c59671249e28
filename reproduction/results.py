"""Result files: one JSON file per run, made from run directories, with mean and standard deviation over the seeds."""

import json
import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plogicnet.config import Config
from plogicnet.evaluation.seeds import mean, sd
from plogicnet.support.errors import InputError
from plogicnet.support.files import locked, write_text
from reproduction.tables import Paper, Run, preset

log = logging.getLogger(__name__)
Json = dict[str, Any]
DECIMALS = 6


def entry_of(folder: Path) -> Json:
    """The entry of one seed, from the settings, history and timings of a run directory."""
    lines, made = _history(folder)
    timings = folder / "timings.json"
    return {
        "seed": Config().with_file(folder / "config.yaml").seed,
        "commit": made.get("commit"),
        "device": made.get("device"),
        "seconds": json.loads(timings.read_text(encoding="utf-8")) if timings.is_file() else {},
        "iterations": [_iteration(line) for line in lines],
    }


def _history(folder: Path) -> tuple[list[Json], Json]:
    """The lines of a run's history, and where they were made: commit, device and graph."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    return lines, next((line["made"] for line in lines if "made" in line), {})


def _iteration(line: Mapping[str, Any]) -> Json:
    about = {key: line[key] for key in ("iteration", "accepted", "hidden")}
    about |= {"precision": line["accepted_precision"], "lambda": line["lambda"]}
    if "test" in line:
        about["metrics"] = over([line["test"]], lambda values: round(values[0], DECIMALS))
    return about


def collected(place: Path, paper: Paper) -> tuple[Run, list[Json]]:
    """The run and the entries of a run directory, or of a result file made elsewhere.

    The run of a directory is the one with its settings; seed, device and threads do not matter.
    """
    if place.suffix == ".json":
        content = _read_result(place)
        config, graph, entries = _config_of(content), content["dataset"], content["by_seed"]
        named = paper.runs.get(str(content["run"]))  # runs may have equal settings
        if named is not None and is_of(content, named):
            return named, entries
    else:
        config = Config().with_file(place / "config.yaml")
        graph, entries = _history(place)[1].get("graph"), [entry_of(place)]
    for run in paper.runs.values():
        if graph in (None, run.dataset, Path(run.dataset).name) and _bare(run.config()) == _bare(config):
            return run, entries
    where = "" if graph is None else f" on {graph}"
    raise InputError(
        f"{place}: no row of the paper's tables has these settings{where}; `python -m reproduction --list`"
    )


def _config_of(content: Mapping[str, Any]) -> Config:
    return preset(content["preset"]).with_values(content["settings"])


def is_of(content: Mapping[str, Any], run: Run) -> bool:
    """Whether a result has the graph and the settings of this run.

    Example:
        >>> is_of({"dataset": "umls"}, Run("a", "wn18", "paper/wn18-transe", {}))
        False
    """
    return bool(content["dataset"] == run.dataset) and _bare(_config_of(content)) == _bare(run.config())


def _bare(config: Config) -> Config:
    """The settings that decide the figures of an iteration; a shorter training is the beginning of a longer one."""
    free = {"seed": 0, "device": "auto", "threads": 0, "evaluation.batch_memory_mb": 0, "em.iterations": 1}
    return config.with_values(free).completed


def measured(entry: Mapping[str, Any]) -> int:
    """How many iterations of an entry have test figures.

    Example:
        >>> measured({"iterations": [{"iteration": 1, "metrics": {}}, {"iteration": 2}]})
        1
    """
    return sum("metrics" in line for line in entry["iterations"])


def iterations_of(config: Config) -> int:
    """How many EM iterations a training has: one, where it has no rules or no neural model.

    Example:
        >>> iterations_of(Config().with_values({"em.rules": False}))
        1
    """
    return config.em.iterations if config.em.rules and config.em.neural else 1


def result_of(run: Run, entries: Sequence[Mapping[str, Any]], paper: Paper) -> Json:
    """The content of a run's result file: its settings, mean and standard deviation over its seeds, and each entry.

    `metrics` are those of EM iteration `iteration`, the last of the preset's own.
    """
    entries = sorted(entries, key=lambda entry: int(entry["seed"]))
    seeds = [entry["seed"] for entry in entries]
    rows = paper.rows_of(run.name)
    shown = min(iterations_of(run.config()), preset(run.preset).em.iterations)
    iterations = iterations_over(entries)
    at: Mapping[str, Any] = next((line for line in iterations if line["iteration"] == shown), {})
    reached = {"em.iterations": len(iterations)} if "em.iterations" in run.settings else {}
    return {
        "table": list(dict.fromkeys(row.table for row in rows)),
        "row": list(dict.fromkeys(row.name for row in rows)),
        "run": run.name,
        "dataset": run.dataset,
        "preset": run.preset,
        "settings": {**run.settings, **reached},
        "seeds": seeds,
        "command": _command(run, seeds, paper),
        **{key: _agreed(entry[key] for entry in entries) for key in ("commit", "device")},
        "seconds": over([entry["seconds"] for entry in entries], mean),
        "iteration": shown,
        "metrics": at.get("metrics", {}),
        "sd": at.get("sd", {}),
        "iterations": [{key: value for key, value in line.items() if key != "sd"} for line in iterations],
        "by_seed": entries,
    }


def _command(run: Run, seeds: Sequence[int], paper: Paper) -> str:
    """The command that makes this result again."""
    command = ["python", "-m", "reproduction", "train", "--only", run.name, "--seeds", ",".join(map(str, seeds))]
    own = paper.own[run.name]
    command += ["--graph", run.dataset] if run.dataset != own.dataset else []
    for key, value in run.settings.items():
        if own.settings.get(key) != value:
            command += ["--set", f"{key}={json.dumps(value)}"]
    return shlex.join(command)


def _agreed(values: Any) -> Any:
    distinct = list(dict.fromkeys(value for value in values if value is not None))
    return distinct[0] if len(distinct) == 1 else distinct or None


def iterations_over(entries: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Each iteration over the seeds that reached it: mean and standard deviation over those that have figures.

    Example:
        >>> iterations_over([{"iterations": [{"iteration": 1, "accepted": 3}]}])
        [{'iteration': 1, 'accepted': 3}]
    """
    every = [line for entry in entries for line in entry["iterations"]]
    found = []
    for number in sorted({line["iteration"] for line in every}):
        lines = [line for line in every if line["iteration"] == number]
        measured = [line["metrics"] for line in lines if "metrics" in line]
        counts = [{k: v for k, v in line.items() if k not in ("metrics", "iteration")} for line in lines]
        merged: Json = {"iteration": number, **over(counts, mean)}
        if measured:
            by_system = {s: [m[s] for m in measured if s in m] for s in dict.fromkeys(s for m in measured for s in m)}
            merged["seeds"] = {system: len(figures) for system, figures in by_system.items()}
            merged["metrics"] = {system: over(figures, mean) for system, figures in by_system.items()}
            merged["sd"] = {system: over(figures, sd) for system, figures in by_system.items()}
        found.append(merged)
    return found


def over(trees: Sequence[Any], figure: Callable[[Sequence[float]], float]) -> Any:
    """Applies a function to the numbers at the same place of several trees; returns a tree of the same shape.

    Example:
        >>> over([{"mrr": 1.0}, {"mrr": 2.0}], mean)
        {'mrr': 1.5}
    """
    first = trees[0]
    if isinstance(first, Mapping):
        shared = [key for key in first if all(key in tree for tree in trees)]
        return {key: over([tree[key] for tree in trees], figure) for key in shared}
    numbers = [value for value in trees if value is not None]
    if not numbers:
        return None
    return numbers[0] if all(isinstance(n, int) and n == numbers[0] for n in numbers) else figure(numbers)


def read_results(directory: Path) -> dict[str, Json]:
    """The result files of a directory by run; none where there is no directory.

    Example:
        >>> read_results(Path("nowhere"))
        {}
    """
    return {content["run"]: content for content in map(_read_result, sorted(directory.glob("*.json")))}


def _read_result(file: Path) -> Json:
    try:
        content: Json = json.loads(file.read_text(encoding="utf-8"))
        if not all(content[key] for key in ("run", "by_seed", "dataset", "preset")):
            raise KeyError
        for entry in content["by_seed"]:
            _ = content["settings"], entry["seed"], [line["iteration"] for line in entry["iterations"]]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{file}: not a result file of `python -m reproduction`") from None
    return content


def add_entry(directory: Path, run: Run, entry: Mapping[str, Any], paper: Paper) -> Path:
    """Adds a seed's entry to a run's result file, and returns the file; safe beside other processes.

    An entry of the same seed is replaced unless it has figures of more iterations.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{run.name}.json"
    with locked(directory, wait=True):
        old = _read_result(file) if file.is_file() else None
        if old is not None and not is_of(old, run):
            raise InputError(f"{file}: holds results of another graph or of other settings; name another --results")
        entries = {other["seed"]: other for other in old["by_seed"]} if old else {}
        if measured(entries.get(entry["seed"], entry)) > measured(entry):
            log.warning("%s: seed %s is not replaced: it has figures of more EM iterations", file, entry["seed"])
            return file
        entries[entry["seed"]] = entry
        write_text(file, dumps(result_of(run, list(entries.values()), paper)) + "\n")
    return file


def dumps(value: object, indent: str = "") -> str:
    """JSON with a line for each object or list that holds no other.

    Example:
        >>> print(dumps({"mrr": 0.5, "rules": {"mr": 1.0, "mrr": 0.5}}))
        {
         "mrr": 0.5,
         "rules": {"mr": 1.0, "mrr": 0.5}
        }
    """
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(part, dict | list) for part in parts):
        return json.dumps(value, ensure_ascii=False)
    inner = [dumps(part, indent + " ") for part in parts]
    if isinstance(value, dict):
        inner = [f"{json.dumps(key, ensure_ascii=False)}: {text}" for key, text in zip(value, inner, strict=True)]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return start + ",".join(f"\n{indent} {text}" for text in inner) + f"\n{indent}{end}"
