"""Result files: one JSON file per run, built from run directories, with mean and standard deviation over the seeds."""

import json
import logging
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plogicnet.config import Config
from plogicnet.evaluation.seeds import mean, sd
from plogicnet.runs.directory import CONFIG_FILE, HISTORY_FILE, snapshot_folder
from plogicnet.runs.origins import read_origins
from plogicnet.support.errors import InputError
from plogicnet.support.files import lock_directory, write_text
from reproduction.tables import Paper, Run, preset

log = logging.getLogger(__name__)
Json = dict[str, Any]
DECIMALS = 6


def read_entry(run: Path) -> Json:
    """Return the entry of one seed, read from the settings, history and timings of a run directory.

    No checksums are verified, because the other files need not be there.
    """
    lines, made = _read_history(run)
    origin = read_origins(run).get(snapshot_folder(run).name)
    return {
        "seed": _read_config(run).seed,
        "commit": made.get("commit"),
        "device": made.get("device"),
        "seconds": dict(origin.seconds) if origin else {},
        "iterations": [_iteration_entry(line) for line in lines],
    }


def _read_config(run: Path) -> Config:
    return Config().with_file(snapshot_folder(run) / CONFIG_FILE)


def _read_history(run: Path) -> tuple[list[Json], Json]:
    """Return the lines of a run's history, and the commit, device and graph of the run."""
    text = (snapshot_folder(run) / HISTORY_FILE).read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    return lines, next((line["made"] for line in lines if "made" in line), {})


def _iteration_entry(line: Mapping[str, Any]) -> Json:
    about = {key: line[key] for key in ("iteration", "accepted", "hidden")}
    about |= {"precision": line["accepted_precision"], "lambda": line["lambda"]}
    if "test" in line:
        about["metrics"] = reduce_trees([line["test"]], lambda values: round(values[0], DECIMALS))
    return about


def collect_entries(source: Path, paper: Paper) -> tuple[Run, list[Json]]:
    """Return the run and the entries of a run directory, or of a result file from another machine.

    A directory belongs to the run with the same settings. Seed, device and number of threads are ignored.
    """
    if source.suffix == ".json":
        content = _read_result(source)
        config, graph, entries = _result_config(content), content["dataset"], content["by_seed"]
        named = paper.runs.get(str(content["run"]))  # two runs can have equal settings
        if named is not None and matches_run(content, named):
            return named, entries
    else:
        config = _read_config(source)
        graph, entries = _read_history(source)[1].get("graph"), [read_entry(source)]
    for run in paper.runs.values():
        if graph in (None, run.dataset, Path(run.dataset).name) and _comparable(run.config()) == _comparable(config):
            return run, entries
    on_graph = "" if graph is None else f" on {graph}"
    raise InputError(
        f"{source}: no row of the paper's tables has these settings{on_graph}."
        " Run `python -m reproduction --list` to see all rows."
    )


def _result_config(content: Mapping[str, Any]) -> Config:
    return preset(content["preset"]).with_values(content["settings"])


def matches_run(content: Mapping[str, Any], run: Run) -> bool:
    """Return whether a result has the graph and the settings of a run.

    Example:
        >>> matches_run({"dataset": "umls"}, Run("a", "wn18", "paper/wn18-transe", {}))
        False
    """
    return bool(content["dataset"] == run.dataset) and _comparable(_result_config(content)) == _comparable(run.config())


def _comparable(config: Config) -> Config:
    """Return the settings without those that do not change an iteration's metrics.

    The number of iterations is one of them, because a longer training starts with the same iterations.
    """
    ignored = {"seed": 0, "device": "auto", "threads": 0, "evaluation.batch_memory_mb": 0, "em.iterations": 1}
    return config.with_values(ignored).completed


def count_measured(entry: Mapping[str, Any]) -> int:
    """Return the number of iterations of an entry that have test metrics.

    Example:
        >>> count_measured({"iterations": [{"iteration": 1, "metrics": {}}, {"iteration": 2}]})
        1
    """
    return sum("metrics" in line for line in entry["iterations"])


def expected_iterations(config: Config) -> int:
    """Return the number of EM iterations of a training: one if it has no rules or no neural model.

    Example:
        >>> expected_iterations(Config().with_values({"em.rules": False}))
        1
    """
    return config.em.iterations if config.em.rules and config.em.neural else 1


def build_result(run: Run, entries: Sequence[Mapping[str, Any]], paper: Paper) -> Json:
    """Return the content of a run's result file: settings, mean and standard deviation, and the entry of each seed.

    `metrics` are the metrics of EM iteration `iteration`, the last iteration of the preset.
    """
    entries = sorted(entries, key=lambda entry: int(entry["seed"]))
    seeds = [entry["seed"] for entry in entries]
    rows = paper.rows_using(run.name)
    last = min(expected_iterations(run.config()), preset(run.preset).em.iterations)
    iterations = average_iterations(entries)
    at_last: Mapping[str, Any] = next((line for line in iterations if line["iteration"] == last), {})
    completed = {"em.iterations": len(iterations)} if "em.iterations" in run.settings else {}
    return {
        "table": list(dict.fromkeys(row.table for row in rows)),
        "row": list(dict.fromkeys(row.name for row in rows)),
        "run": run.name,
        "dataset": run.dataset,
        "preset": run.preset,
        "settings": {**run.settings, **completed},
        "seeds": seeds,
        "command": _command(run, seeds, paper),
        **{key: _common_value(entry[key] for entry in entries) for key in ("commit", "device")},
        "seconds": reduce_trees([entry["seconds"] for entry in entries], mean),
        "iteration": last,
        "metrics": at_last.get("metrics", {}),
        "sd": at_last.get("sd", {}),
        "iterations": [{key: value for key, value in line.items() if key != "sd"} for line in iterations],
        "by_seed": entries,
    }


def _command(run: Run, seeds: Sequence[int], paper: Paper) -> str:
    """Return the command that reproduces a result."""
    command = ["python", "-m", "reproduction", "train", "--only", run.name, "--seeds", ",".join(map(str, seeds))]
    original = paper.original_runs[run.name]
    command += ["--graph", run.dataset] if run.dataset != original.dataset else []
    for key, value in run.settings.items():
        if original.settings.get(key) != value:
            command += ["--set", f"{key}={json.dumps(value)}"]
    return shlex.join(command)


def _common_value(values: Iterable[Any]) -> Any:
    """Return the only value, or a list of the distinct values, or None."""
    distinct = list(dict.fromkeys(value for value in values if value is not None))
    return distinct[0] if len(distinct) == 1 else distinct or None


def average_iterations(entries: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return each iteration with mean and standard deviation over the seeds that have it.

    Example:
        >>> average_iterations([{"iterations": [{"iteration": 1, "accepted": 3}]}])
        [{'iteration': 1, 'accepted': 3}]
    """
    every = [line for entry in entries for line in entry["iterations"]]
    averaged = []
    for number in sorted({line["iteration"] for line in every}):
        lines = [line for line in every if line["iteration"] == number]
        measured = [line["metrics"] for line in lines if "metrics" in line]
        counts = [{k: v for k, v in line.items() if k not in ("metrics", "iteration")} for line in lines]
        merged: Json = {"iteration": number, **reduce_trees(counts, mean)}
        if measured:
            by_system = {s: [m[s] for m in measured if s in m] for s in dict.fromkeys(s for m in measured for s in m)}
            merged["seeds"] = {system: len(metrics) for system, metrics in by_system.items()}
            merged["metrics"] = {system: reduce_trees(metrics, mean) for system, metrics in by_system.items()}
            merged["sd"] = {system: reduce_trees(metrics, sd) for system, metrics in by_system.items()}
        averaged.append(merged)
    return averaged


def reduce_trees(trees: Sequence[Any], function: Callable[[Sequence[float]], float]) -> Any:
    """Apply a function to the numbers with the same key in several nested dicts; return a dict of the same shape.

    Example:
        >>> reduce_trees([{"mrr": 1.0}, {"mrr": 2.0}], mean)
        {'mrr': 1.5}
    """
    first = trees[0]
    if isinstance(first, Mapping):
        shared = [key for key in first if all(key in tree for tree in trees)]
        return {key: reduce_trees([tree[key] for tree in trees], function) for key in shared}
    numbers = [value for value in trees if value is not None]
    if not numbers:
        return None
    return numbers[0] if all(isinstance(n, int) and n == numbers[0] for n in numbers) else function(numbers)


def read_results(directory: Path) -> dict[str, Json]:
    """Return the result files of a directory by run; none if the directory does not exist.

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
    """Add a seed's entry to a run's result file, and return the file. Other processes can do the same meanwhile.

    An existing entry of the same seed is replaced unless it has metrics of more iterations.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{run.name}.json"
    with lock_directory(directory, wait=True):
        old = _read_result(file) if file.is_file() else None
        if old is not None and not matches_run(old, run):
            raise InputError(
                f"{file}: contains results of another graph or of other settings. Use --results with another directory."
            )
        entries = {other["seed"]: other for other in old["by_seed"]} if old else {}
        if count_measured(entries.get(entry["seed"], entry)) > count_measured(entry):
            log.warning("%s: seed %s is not replaced because it has metrics of more EM iterations", file, entry["seed"])
            return file
        entries[entry["seed"]] = entry
        write_text(file, format_json(build_result(run, list(entries.values()), paper)) + "\n")
    return file


def format_json(value: object, indent: str = "") -> str:
    """Return JSON with one line for each innermost object or list.

    Example:
        >>> print(format_json({"mrr": 0.5, "rules": {"mr": 1.0, "mrr": 0.5}}))
        {
         "mrr": 0.5,
         "rules": {"mr": 1.0, "mrr": 0.5}
        }
    """
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(part, dict | list) for part in parts):
        return json.dumps(value, ensure_ascii=False)
    inner = [format_json(part, indent + " ") for part in parts]
    if isinstance(value, dict):
        inner = [f"{json.dumps(key, ensure_ascii=False)}: {text}" for key, text in zip(value, inner, strict=True)]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return start + ",".join(f"\n{indent} {text}" for text in inner) + f"\n{indent}{end}"
