"""The command `mine`: mines rules, counts their conclusions, and shows examples."""

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
from plogicnet.support.errors import InputError, pluralize
from plogicnet.support.progress import Timer, for_stderr

if TYPE_CHECKING:
    from plogicnet.config import Config
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.inference.examples import Example
    from plogicnet.rules import RuleTable

MinPrecision = Annotated[
    str | None, Option("--min-precision", help="Minimum precision, such as inverse=0.1,composition=0.6.")
]
MinSupport = Annotated[
    int | None, Option("--min-support", min=1, help="Minimum number of triples that a rule concludes.")
]


def mine(
    graph: options.Graph = None,
    out: Annotated[Path | None, Option("--out", help="Write the rules to this TSV file.")] = None,
    rules: options.RulesFile = None,
    min_precision: MinPrecision = None,
    min_support: MinSupport = None,
    top: Annotated[int, Option("--top", min=0, help="Number of rules to show per pattern.")] = 5,
    examples: Annotated[int, Option("--examples", min=0, help="Number of example groundings to show per rule.")] = 0,
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
    """Mine rules and count what they conclude."""
    from plogicnet.grounding.grounder import Grounder
    from plogicnet.grounding.rulebook import collect_rules
    from plogicnet.inference.examples import examples_of
    from plogicnet.inference.held_out import HeldOut
    from plogicnet.rules import read_rule_file

    require_folder(out)
    all_assignments = precision_assignments(min_precision or "") + (assignments or [])
    all_assignments += [f"rules.min_support={min_support}"] if min_support is not None else []
    settings = make_config(preset, config, all_assignments, seed, device, threads)
    clock, progress = Timer(), for_stderr()
    with clock("load"):
        opened = open_source(graph, settings, columns, split)
        statements = [] if rules is None else read_rule_file(rules, opened)
    if settings.rules.mine:
        print(_cost(opened, settings), file=sys.stderr)
    with clock("mine"):
        mined = collect_rules(opened, settings, statements, progress)
    with clock("ground"):
        positive = mined.rules.take(~mined.rules.negative)
        grounder = Grounder.of(opened, positive.rules, settings, progress=progress)
        grounded = grounder.network
    if out is not None:
        mined.rules.concat(mined.constraints).write(out)
    shown, rule_examples = _most_precise(mined.rules, top), {}
    if examples:
        held_out, strongest = HeldOut.of(opened), chain.from_iterable(shown.values())
        with_groundings = [i for i in strongest if i < len(positive)]
        rule_examples = {i: examples_of(opened, grounder.groundings, i, examples, held_out) for i in with_groundings}
    counts = show.mined_counts(mined.n_candidates, mined.rules, mined.constraints, grounded)
    if as_json:
        cost = {"seconds": {part: round(s, 3) for part, s in clock.seconds.items()}, "peak_rss_mb": peak_memory_mb()}
        example_rows = [
            {"rule": str(mined.rules.rules[i])} | e.to_json() for i, entries in rule_examples.items() for e in entries
        ]
        print_json(
            counts
            | cost
            | ({"mined": mined.mined} if mined.mined else {})
            | ({"examples": example_rows} if examples else {})
        )
        return
    _show(counts, mined.rules, shown, rule_examples, opened.labels)
    if out is not None:
        print(f"Rules written to {out}.")


def precision_assignments(text: str) -> list[str]:
    """Return `composition=0.6,inverse=0.1` as assignments of settings.

    Example:
        >>> precision_assignments("composition=0.6,inverse=0.1")
        ['rules.min_precision.composition=0.6', 'rules.min_precision.inverse=0.1']
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all("=" in part for part in parts):
        raise InputError(f"--min-precision {text}: expected pattern=number pairs such as composition=0.6,inverse=0.1")
    return [f"rules.min_precision.{part}" for part in parts]


def peak_memory_mb() -> int | None:
    """Return the peak memory of this process, or None if it is unknown.

    Example:
        >>> peak_memory_mb() > 1
        True
    """
    if sys.platform == "win32":
        return None
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS reports bytes, Linux KiB
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def _cost(graph: "KnowledgeGraph", settings: "Config") -> str:
    """Return the size of the graph and the number of two-step paths, which determine the cost of mining, as text."""
    from plogicnet.grounding.native.walks import two_step_paths

    paths = int(two_step_paths(graph.observed, len(graph.relations)).sum())
    has_compositions = any(len(shape.forward) > 1 for shape in shapes_of(settings.rules.patterns))
    triples, relations = pluralize(len(graph.train), "training triple"), pluralize(len(graph.relations), "relation")
    steps = pluralize(paths, "two-step path") if has_compositions else "no two-step paths"
    return f"Mining {graph.name}: {triples}, {relations}, {steps}."


def _most_precise(rules: "RuleTable", top: int) -> dict[str, list[int]]:
    """Return, per pattern, the indices of the rules with the highest lower bound of precision."""
    import numpy as np

    order, patterns = np.argsort(-rules.precision_lower_bound, kind="stable").tolist(), rules.patterns
    found: dict[str, list[int]] = {pattern: [] for pattern in rules.counts()}
    for i in order:
        if len(found[patterns[i]]) < top:
            found[patterns[i]].append(i)
    return {pattern: indices for pattern, indices in found.items() if indices}


def _show(
    counts: dict[str, Any],
    rules: "RuleTable",
    shown: dict[str, list[int]],
    examples: "dict[int, list[Example]]",
    labels: Mapping[str, str],
) -> None:
    import numpy as np

    screen = show.console()
    plain = partial(screen.print, markup=False, highlight=False, soft_wrap=True)
    screen.print(show.mined_text(counts))
    for pattern, indices in shown.items():
        title = f"{pattern}: {len(indices)} of {counts['rules'][pattern]:,} rules, by the lower bound of precision"
        screen.print(show.rules_table(title, rules.take(np.array(indices)).rows()))
        for i in filter(examples.get, indices):
            plain(str(rules.rules[i]))
            for example in examples[i]:
                status = f" (in {example.held_out})" if example.held_out else " (not in the graph)"
                concluded = show.fact(example.hypothesis, labels) + ("" if example.known else status)
                plain(f"  {show.facts(example.premises, labels)} => {concluded}")
