"""The command `mine`: rules, mined and written, what they conclude, and examples of it."""

import sys
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
from plogicnet.errors import many
from plogicnet.memory import limit_memory

if TYPE_CHECKING:
    from plogicnet.config import Config
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.grounding import Network
    from plogicnet.rules import RuleTable


def mine(
    graph: Graph = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the rules to this TSV file.")] = None,
    rules: RulesFile = None,
    min_precision: Annotated[
        str | None, typer.Option("--min-precision", help="Thresholds, as composition=0.6,inverse=0.1.")
    ] = None,
    min_support: Annotated[
        int | None, typer.Option("--min-support", min=1, help="Keep rules that conclude at least so many triples.")
    ] = None,
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
    from plogicnet.grounding import Network, find_rules
    from plogicnet.progress import Clock, for_stderr
    from plogicnet.rules import read_statements

    require_folder(out)
    together = precision_assignments(min_precision) + (assignments or [])
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
        network = Network(
            opened,
            mined.rules.rules,
            settings.rules.counting,
            settings=settings.grounding,
            threads=settings.threads,
            progress=progress,
        )
        grounded = network.groundings
    if out is not None:
        mined.rules.joined(mined.constraints).write(out)
    counts: dict[str, Any] = {
        "candidates": mined.candidates,
        "rules": mined.rules.counts(),
        "irreflexive": len(mined.constraints),
        "hidden": len(grounded.hidden),
        "groundings": len(grounded.rule),
        "seconds": {part: round(clock.seconds[part], 3) for part in ("load", "mine", "ground")},
        "peak_rss_mb": peak_memory_mb(),
    }
    shown = _surest(mined.rules, top)
    if as_json:
        if examples:
            counts["examples"] = [e for at in shown.values() for i in at for e in _examples(network, i, examples)]
        print_json(counts)
        return
    _show(counts, mined.rules, shown, network, examples)
    if out is not None:
        print(f"rules written to {out}")


def _cost(graph: "KnowledgeGraph", settings: "Config") -> str:
    """What mining will take, said before it begins."""
    from plogicnet.grounding import two_step_paths

    paths = int(two_step_paths(graph.observed, len(graph.relations)).sum())
    composed = many(paths, "two-step path") if "composition" in settings.rules.patterns else "no two-step paths"
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


def _examples(network: "Network", rule: int, most: int) -> list[dict[str, object]]:
    """Some groundings of a rule in names."""
    import numpy as np

    grounded, names = network.groundings, network.graph.names
    entries: list[dict[str, object]] = []
    for row in np.flatnonzero(grounded.rule == rule)[:most]:
        hypothesis, premises = grounded.hypothesis[row], grounded.premises[row]
        entries.append(
            {
                "rule": str(network.rules[rule]),
                "hypothesis": list(names(grounded.triples.triples[hypothesis])),
                "premises": [list(names(t)) for t in grounded.triples.triples[premises[premises >= 0]]],
                "known": bool(grounded.observed[hypothesis]),
            }
        )
    return entries


def _show(
    counts: dict[str, Any], rules: "RuleTable", shown: dict[str, list[int]], network: "Network", examples: int
) -> None:
    from plogicnet.cli.show import console, fact, mined_text, rules_table

    screen, rows, labels = console(), rules.rows(), network.graph.labels
    screen.print(mined_text(counts))
    for pattern, at in shown.items():
        title = f"{pattern}: the {len(at)} surest of {counts['rules'][pattern]:,}"
        screen.print(rules_table(title, [rows[i] for i in at]))
        for i in at:
            for number, example in enumerate(_examples(network, i, examples)):
                if number == 0:
                    screen.print(str(rules.rules[i]), markup=False, highlight=False, soft_wrap=True)
                premises: Any = example["premises"]
                concluded = fact(example["hypothesis"], labels) + ("" if example["known"] else " (not in train)")  # type: ignore[arg-type]
                because = " and ".join(fact(premise, labels) for premise in premises)
                screen.print(f"  {because}: {concluded}", markup=False, highlight=False, soft_wrap=True)
