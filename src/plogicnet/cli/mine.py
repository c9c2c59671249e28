"""The command `mine`: rules, mined and written, what they conclude, and examples of it."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plogicnet.cli.settings import (
    Assignments,
    Columns,
    ConfigFile,
    Device,
    Graph,
    Json,
    MemoryLimit,
    Preset,
    RulesFile,
    Seed,
    SplitShares,
    Threads,
    make_config,
    open_source,
    peak_memory_mb,
    precision_assignments,
    print_json,
    require_folder,
)
from plogicnet.support.errors import many
from plogicnet.support.memory import limit_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plogicnet.config import Config
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.grounding.engine import Mined
    from plogicnet.grounding.network import Network
    from plogicnet.inference.examples import Example
    from plogicnet.rules import RuleTable, Statement
    from plogicnet.support.progress import Clock


Support = Annotated[
    int | None, typer.Option("--min-support", min=1, help="Keep rules that conclude at least so many triples.")
]


def mine(
    graph: Graph = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the rules to this TSV file.")] = None,
    rules: RulesFile = None,
    min_precision: Annotated[
        str | None, typer.Option("--min-precision", help="Thresholds, as composition=0.6,inverse=0.1.")
    ] = None,
    min_support: Support = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Rules to show of each pattern.")] = 5,
    examples: Annotated[int, typer.Option("--examples", min=0, help="Groundings to show of each shown rule.")] = 0,
    columns: Columns = "hrt",
    split: SplitShares = None,
    preset: Preset = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """Mine rules, and count what they conclude."""
    limit_memory(memory_limit)
    from plogicnet.rules import read_statements
    from plogicnet.support.progress import Clock

    require_folder(out)
    together = precision_assignments(min_precision) + (assignments or [])
    together += [f"rules.min_support={min_support}"] if min_support is not None else []
    settings = make_config(preset, config, together, seed, device, threads)
    clock = Clock()
    with clock("load"):
        opened = open_source(graph, settings, columns, split)
        statements = [] if rules is None else read_statements(rules, opened)
    if settings.rules.mine:
        print(_cost(opened, settings), file=sys.stderr)
    mined, network = _mined(opened, settings, statements, clock)
    if out is not None:
        mined.rules.joined(mined.constraints).write(out)
    counts = _counts(mined, network, clock)
    shown = _surest(mined.rules, top)
    found = _examples(network, [i for rows in shown.values() for i in rows], examples)
    if as_json:
        of_each = [{"rule": str(mined.rules.rules[i])} | e.to_json() for i, own in found.items() for e in own]
        print_json(counts | ({"examples": of_each} if examples else {}))
        return
    _show(counts, mined.rules, shown, found, opened.labels)
    if out is not None:
        print(f"rules written to {out}")


def _mined(
    graph: "KnowledgeGraph", settings: "Config", statements: "list[Statement]", clock: "Clock"
) -> "tuple[Mined, Network]":
    """The rules, and the network they are grounded in."""
    from plogicnet.grounding.network import Network
    from plogicnet.grounding.rulebook import find_rules
    from plogicnet.support.progress import for_stderr

    progress = for_stderr()
    with clock("mine"):
        mined = find_rules(graph, settings, statements, progress)
    with clock("ground"):
        network = Network.of(graph, mined.rules.rules, settings, progress=progress)
        network.grounded  # noqa: B018 - grounded here, so that the clock measures it
    return mined, network


def _counts(mined: "Mined", network: "Network", clock: "Clock") -> dict[str, Any]:
    """What was found, in numbers."""
    grounded = network.grounded
    return {
        "candidates": mined.candidates,
        "rules": mined.rules.counts(),
        "irreflexive": len(mined.constraints),
        "hidden": len(grounded.hidden),
        "groundings": grounded.size,
        "seconds": {part: round(clock.seconds[part], 3) for part in ("load", "mine", "ground")},
        "peak_rss_mb": peak_memory_mb(),
    }


def _cost(graph: "KnowledgeGraph", settings: "Config") -> str:
    """What mining will take, in words."""
    from plogicnet.config.shapes import shapes_of
    from plogicnet.grounding.native.walks import two_step_paths

    paths = int(two_step_paths(graph.observed, len(graph.relations)).sum())
    longest = max((len(shape.steps) for shape in shapes_of(settings.rules.patterns)), default=0)
    composed = many(paths, "two-step path") if longest > 1 else "no two-step paths"
    return (
        f"{graph.name}: {many(len(graph.train), 'training triple')}, {many(len(graph.relations), 'relation')};"
        f" mining counts {composed}"
    )


def _surest(rules: "RuleTable", top: int) -> dict[str, list[int]]:
    """Of each pattern that occurs, the rules whose precision is surest to be high."""
    patterns, sureness = rules.patterns, rules.sureness
    rows: dict[str, list[int]] = {}
    for pattern in rules.counts():
        of_pattern = [i for i, p in enumerate(patterns) if p == pattern]
        rows[pattern] = sorted(of_pattern, key=lambda i: (-sureness[i], i))[:top]
    return {pattern: at for pattern, at in rows.items() if at}


def _examples(network: "Network", rules: list[int], most: int) -> "dict[int, list[Example]]":
    """Some groundings of each of these rules."""
    from plogicnet.inference.examples import examples_of
    from plogicnet.inference.held_out import HeldOut

    if not most:
        return {}
    graph, held_out = network.graph, HeldOut.of(network.graph)
    return {i: examples_of(graph, network.groundings, i, most, held_out) for i in rules}


def _show(
    counts: dict[str, Any],
    rules: "RuleTable",
    shown: dict[str, list[int]],
    examples: "dict[int, list[Example]]",
    labels: "Mapping[str, str]",
) -> None:
    from plogicnet.cli.show import console, fact, facts, mined_text, rules_table

    screen, rows = console(), rules.rows()
    plain = partial(screen.print, markup=False, highlight=False, soft_wrap=True)
    screen.print(mined_text(counts))
    for pattern, at in shown.items():
        title = f"{pattern}: the {len(at)} surest of {counts['rules'][pattern]:,}"
        screen.print(rules_table(title, [rows[i] for i in at]))
        for i in at:
            if examples.get(i):
                plain(str(rules.rules[i]))
            for example in examples.get(i, []):
                concluded = fact(example.hypothesis, labels) + ("" if example.known else " (not in train)")
                plain(f"  {facts(example.premises, labels)}: {concluded}")
