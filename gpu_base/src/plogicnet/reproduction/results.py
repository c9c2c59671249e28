"""Results as data: one JSON file per run, made of run directories, with the mean and the spread over seeds."""

import json
import logging
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plogicnet.config import Config
from plogicnet.errors import InputError
from plogicnet.files import locked, write_text
from plogicnet.reproduction.tables import Paper, Run, preset

log = logging.getLogger(__name__)
Json = dict[str, Any]
DECIMALS = 6


def entry_of(folder: Path) -> Json:
    """What a run directory tells of one seed; only its settings, history and timings are read.

    Example:
        >>> entry_of(Path("runs/paper/wn18rr-transe/seed-0"))["seed"]  # doctest: +SKIP
    """
    lines = [json.loads(line) for line in _text(folder / "history.jsonl").splitlines()]
    timings = folder / "timings.json"
    made: Json = next((line["made"] for line in lines if "made" in line), {})
    return {
        "seed": Config().with_file(folder / "config.yaml").seed,
        "commit": made.get("commit"),
        "device": made.get("device"),
        "seconds": json.loads(_text(timings)) if timings.is_file() else {},
        "iterations": [_iteration(line) for line in lines],
    }


def _iteration(line: Mapping[str, Any]) -> Json:
    about = {"iteration": line["iteration"], "accepted": line["accepted"], "hidden": line["hidden"]}
    about |= {"precision": line["accepted_precision"], "lambda": line["lambda"]}
    rounded = over([line["test"]], lambda values: round(values[0], DECIMALS)) if "test" in line else None
    return about | ({"metrics": rounded} if rounded else {})


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None


def find_run(folder: Path, paper: Paper) -> Run:
    """The run whose settings a run directory has; seed, device and threads do not matter.

    Example:
        >>> find_run(Path("runs/wn18rr"), paper())  # doctest: +SKIP
    """
    config = Config().with_file(folder / "config.yaml")
    lines = [json.loads(line) for line in _text(folder / "history.jsonl").splitlines()]
    graph = next((line["made"].get("graph") for line in lines if "made" in line), None)
    return _run_of(config, graph, folder, paper)


def _run_of(config: Config, graph: str | None, place: Path, paper: Paper) -> Run:
    for run in paper.runs.values():
        if graph in (None, run.dataset, Path(run.dataset).name) and _bare(run.config()) == _bare(config):
            return run
    where = "" if graph is None else f" on {graph}"
    raise InputError(f"{place}: no row of the paper's tables has these settings{where}; `plogicnet reproduce --list`")


def collected(place: Path, paper: Paper) -> tuple[Run, list[Json]]:
    """The run and the seeds' entries of a run directory, or of a result file made elsewhere.

    Example:
        >>> collected(Path("runs/wn18rr"), paper())  # doctest: +SKIP
    """
    if place.suffix != ".json":
        return find_run(place, paper), [entry_of(place)]
    content = _read_result(place)
    named = paper.runs.get(str(content.get("run")))  # of runs with equal settings the one that it names
    if named is None or not is_of(content, named):
        named = _run_of(_config_of(content), content["dataset"], place, paper)
    return named, content["by_seed"]


def _config_of(content: Mapping[str, Any]) -> Config:
    return preset(content["preset"]).with_values(content["settings"])


def is_of(content: Mapping[str, Any], run: Run) -> bool:
    """Whether a result is of this run: of its graph and its settings, not only of its name.

    Example:
        >>> is_of({"dataset": "umls"}, Run("a", "wn18", "paper/wn18-transe", {}))
        False
    """
    return bool(content["dataset"] == run.dataset) and _bare(_config_of(content)) == _bare(run.config())


def _bare(config: Config) -> Config:
    """What a training hangs on; one of fewer EM iterations is the beginning of a longer one."""
    free = {"seed": 0, "device": "auto", "threads": 0, "evaluation.batch_memory_mb": 0, "em.iterations": 1}
    return config.with_values(free)


def is_whole(entry: Mapping[str, Any], iterations: int) -> bool:
    """Whether a seed's entry has test figures of so many iterations.

    Example:
        >>> is_whole({"iterations": [{"iteration": 1, "metrics": {}}]}, 2)
        False
    """
    return _measured(entry) >= iterations


def _measured(entry: Mapping[str, Any] | None) -> int:
    return sum("metrics" in line for line in entry["iterations"]) if entry else 0


def iterations_of(config: Config) -> int:
    """How many EM iterations a training has: one without the one half.

    Example:
        >>> iterations_of(Config().with_values({"em.rules": False}))
        1
    """
    return config.em.iterations if config.em.rules and config.em.embedding else 1


def result_of(run: Run, entries: Sequence[Mapping[str, Any]], paper: Paper) -> Json:
    """A run's result file: what it is of, the means and spreads over its seeds, and each seed's own entry.

    `metrics` are those of EM iteration `iteration`, which is the last of the preset's own.

    Example:
        >>> result_of(run, [entry_of(folder)], paper())  # doctest: +SKIP
    """
    entries = sorted(entries, key=lambda entry: int(entry["seed"]))
    rows = paper.rows_of(run.name)
    shown = min(iterations_of(run.config()), preset(run.preset).em.iterations)
    iterations = iterations_over(entries)
    at: Mapping[str, Any] = next((line for line in iterations if line["iteration"] == shown), {})
    return {
        "table": list(dict.fromkeys(row.table for row in rows)),
        "row": list(dict.fromkeys(row.name for row in rows)),
        "run": run.name,
        "dataset": run.dataset,
        "preset": run.preset,
        "settings": _settings(run, len(iterations)),
        "seeds": [entry["seed"] for entry in entries],
        "command": _command(run, [entry["seed"] for entry in entries], paper),
        **{key: _agreed(entry[key] for entry in entries) for key in ("commit", "device")},
        "seconds": over([entry["seconds"] for entry in entries], statistics.fmean),
        "iteration": shown,
        "metrics": at.get("metrics", {}),
        "sd": at.get("sd", {}),
        "iterations": [{key: value for key, value in line.items() if key != "sd"} for line in iterations],
        "by_seed": list(entries),
    }


def _settings(run: Run, iterations: int) -> Json:
    """The run's settings; where they ask for more EM iterations than there are yet, as many as there are."""
    asked = dict(run.settings)
    return asked | ({"em.iterations": iterations} if "em.iterations" in asked else {})


def _command(run: Run, seeds: Sequence[int], paper: Paper) -> str:
    """What makes this result again."""
    command = ["plogicnet", "reproduce", "--run", "--only", run.name, "--seeds", ",".join(map(str, seeds))]
    if run.dataset != paper.own[run.name].dataset:
        command += ["--graph", run.dataset]
    own = paper.own[run.name].settings
    for key, value in run.settings.items():
        if own.get(key) != value:
            command += ["--set", f"{key}={json.dumps(value)}"]
    return shlex.join(command)


def _agreed(values: Any) -> Any:
    distinct = list(dict.fromkeys(value for value in values if value is not None))
    return distinct[0] if len(distinct) == 1 else distinct or None


def iterations_over(entries: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Each iteration over the seeds that reached it; its figures, with their spread, over those that have them.

    Example:
        >>> iterations_over([{"iterations": [{"iteration": 1, "accepted": 3}]}])
        [{'iteration': 1, 'accepted': 3}]
    """
    numbers = sorted({line["iteration"] for entry in entries for line in entry["iterations"]})
    found = []
    for number in numbers:
        lines = [line for entry in entries for line in entry["iterations"] if line["iteration"] == number]
        measured = [line["metrics"] for line in lines if "metrics" in line]
        counts = [{k: v for k, v in line.items() if k not in ("metrics", "iteration")} for line in lines]
        merged: Json = {"iteration": number, **over(counts, statistics.fmean)}
        if measured:
            by_system = {s: [m[s] for m in measured if s in m] for s in dict.fromkeys(s for m in measured for s in m)}
            merged["seeds"] = {system: len(figures) for system, figures in by_system.items()}
            merged["metrics"] = {system: over(figures, statistics.fmean) for system, figures in by_system.items()}
            merged["sd"] = {system: over(figures, _sd) for system, figures in by_system.items()}
        found.append(merged)
    return found


def _sd(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 of one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def over(trees: Sequence[Any], figure: Callable[[Sequence[float]], float]) -> Any:
    """A figure of numbers that stand at the same place of several trees, in a tree of the same shape.

    Example:
        >>> over([{"mrr": 1.0}, {"mrr": 2.0}], statistics.fmean)
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
        content: Json = json.loads(_text(file))
        if not all(content[key] for key in ("run", "by_seed", "dataset", "preset")):
            raise KeyError
        for entry in content["by_seed"]:
            _ = content["settings"], entry["seed"], [line["iteration"] for line in entry["iterations"]]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{file}: no result of `plogicnet reproduce`") from None
    return content


def add_entry(directory: Path, run: Run, entry: Mapping[str, Any], paper: Paper) -> Path:
    """Adds a seed's entry to a run's result file, in place of one that is no longer; safe beside other processes.

    Example:
        >>> add_entry(Path("docs/results/paper"), run, entry, paper())  # doctest: +SKIP
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{run.name}.json"
    with locked(directory, wait=True):
        old = _read_result(file) if file.is_file() else None
        if old is not None and not is_of(old, run):
            raise InputError(f"{file}: holds results of another graph or of other settings; name another --results")
        entries = {other["seed"]: other for other in (old["by_seed"] if old else [])}
        if _measured(entries.get(entry["seed"])) > _measured(entry):
            log.warning("%s: seed %s is kept, which has figures of more EM iterations", file, entry["seed"])
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
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    parts = value.values() if isinstance(value, dict) else value
    if not any(isinstance(part, dict | list) for part in parts):
        return json.dumps(value, ensure_ascii=False)
    inner = [dumps(part, indent + " ") for part in parts]
    if isinstance(value, dict):
        inner = [f"{json.dumps(key, ensure_ascii=False)}: {text}" for key, text in zip(value, inner, strict=True)]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return start + ",".join(f"\n{indent} {text}" for text in inner) + f"\n{indent}{end}"
