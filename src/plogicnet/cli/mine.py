"""The command `mine`: rules, mined and written, what they conclude, and examples of it."""

import sys
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from plogicnet.cli import options, show
from plogicnet.cli.settings import make_config, open_source, print_json, require_folder
from plogicnet.config.shapes import shapes_of
from plogicnet.support.errors import InputError, many
from plogicnet.support.progress import Clock, for_stderr

if TYPE_CHECKING:
    from plogicnet.config import Config
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.inference.examples import Example
    from plogicnet.rules import RuleTable

MinPrecision = Annotated[str | None, Option("--min-precision", help="Thresholds, as composition=0.6,inverse=0.1.")]
MinSupport = Annotated[
    int | None, Option("--min-support", min=1, help="Keep rules that conclude at least so many triples.")
]


def mine(
    graph: options.Graph = None,
    out: Annotated[Path | None, Option("--out", help="Write the rules to this TSV file.")] = None,
    rules: options.RulesFile = None,
    min_precision: MinPrecision = None,
    min_support: MinSupport = None,
    top: Annotated[int, Option("--top", min=0, help="Rules to show of each pattern.")] = 5,
    examples: Annotated[int, Option("--examples", min=0, help="Groundings to show of each shown rule.")] = 0,
    columns: options.Columns = "hrt",
    split: options.SplitShares = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    seed: options.Seed = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Mine rules, and count what they conclude."""
    from plogicnet.grounding.network import Network
    from plogicnet.grounding.rulebook import find_rules
    from plogicnet.inference.examples import examples_of
    from plogicnet.inference.held_out import HeldOut
    from plogicnet.rules import read_statements

    require_folder(out)
    together = precision_assignments(min_precision or "") + (assignments or [])
    together += [f"rules.min_support={min_support}"] if min_support is not None else []
    settings = make_config(preset, config, together, seed, device, threads)
    clock, progress = Clock(), for_stderr()
    with clock("load"):
        opened = open_source(graph, settings, columns, split)
        statements = [] if rules is None else read_statements(rules, opened)
    if settings.rules.mine:
        print(_cost(opened, settings), file=sys.stderr)
    with clock("mine"):
        mined = find_rules(opened, settings, statements, progress)
    with clock("ground"):
        network = Network.of(opened, mined.rules.rules, settings, progress=progress)
        grounded = network.grounded
    if out is not None:
        mined.rules.joined(mined.constraints).write(out)
    shown, found = _surest(mined.rules, top), {}
    if examples:
        held_out, strongest = HeldOut.of(opened), chain.from_iterable(shown.values())
        found = {i: examples_of(opened, network.groundings, i, examples, held_out) for i in strongest}
    counts = show.mined_counts(mined.candidates, mined.rules, mined.constraints, grounded)
    if as_json:
        cost = {"seconds": {part: round(s, 3) for part, s in clock.seconds.items()}, "peak_rss_mb": peak_memory_mb()}
        of_each = [{"rule": str(mined.rules.rules[i])} | e.to_json() for i, own in found.items() for e in own]
        print_json(counts | cost | ({"examples": of_each} if examples else {}))
        return
    _show(counts, mined.rules, shown, found, opened.labels)
    if out is not None:
        print(f"rules written to {out}")


def precision_assignments(text: str) -> list[str]:
    """`composition=0.6,inverse=0.1` as assignments of settings.

    Example:
        >>> precision_assignments("composition=0.6,inverse=0.1")
        ['rules.min_precision.composition=0.6', 'rules.min_precision.inverse=0.1']
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all("=" in part for part in parts):
        raise InputError(f"--min-precision {text}: expected pattern=number pairs, as composition=0.6,inverse=0.1")
    return [f"rules.min_precision.{part}" for part in parts]


def peak_memory_mb() -> int | None:
    """This process's peak memory; None where the system does not tell.

    Example:
        >>> peak_memory_mb() > 1
        True
    """
    if sys.platform == "win32":
        return None
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB here
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def _cost(graph: "KnowledgeGraph", settings: "Config") -> str:
    """What mining will take, in words."""
    from plogicnet.grounding.native.walks import two_step_paths

    paths = int(two_step_paths(graph.observed, len(graph.relations)).sum())
    composed = any(len(shape.steps) > 1 for shape in shapes_of(settings.rules.patterns))
    return (
        f"{graph.name}: {many(len(graph.train), 'training triple')}, {many(len(graph.relations), 'relation')};"
        f" mining counts {many(paths, 'two-step path') if composed else 'no two-step paths'}"
    )


def _surest(rules: "RuleTable", top: int) -> dict[str, list[int]]:
    """Of each pattern that occurs, the rules whose precision is surest to be high."""
    patterns, sureness = rules.patterns, rules.sureness
    rows = {pattern: [i for i, p in enumerate(patterns) if p == pattern] for pattern in rules.counts()}
    return {pattern: sorted(at, key=lambda i: -sureness[i])[:top] for pattern, at in rows.items() if at and top}


def _show(
    counts: dict[str, Any],
    rules: "RuleTable",
    shown: dict[str, list[int]],
    examples: "dict[int, list[Example]]",
    labels: Mapping[str, str],
) -> None:
    screen, rows = show.console(), rules.rows()
    plain = partial(screen.print, markup=False, highlight=False, soft_wrap=True)
    screen.print(show.mined_text(counts))
    for pattern, at in shown.items():
        title = f"{pattern}: the {len(at)} surest of {counts['rules'][pattern]:,}"
        screen.print(show.rules_table(title, [rows[i] for i in at]))
        for i in filter(examples.get, at):
            plain(str(rules.rules[i]))
            for example in examples[i]:
                concluded = show.fact(example.hypothesis, labels) + ("" if example.known else " (not in train)")
                plain(f"  {show.facts(example.premises, labels)}: {concluded}")
