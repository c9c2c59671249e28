"""The demo: mine, train, evaluate, and tell the most probable missing facts with their reasons."""

import time
from pathlib import Path
from typing import Any

from plogicnet.cli.show import (
    TEST_COMPETES,
    best_reason,
    console,
    fact,
    history_table,
    metrics_table,
    mined_text,
    rules_table,
    table,
)
from plogicnet.config import Config
from plogicnet.graph import TripleSet, demo_family
from plogicnet.model import PLogicNet
from plogicnet.progress import for_stderr

FACTS = 10
RULES = 10


def tell(settings: Config, out: Path | None, quiet: bool) -> dict[str, object]:
    """Trains on the demo family and tells the story as tables; gives it back as one JSON object too.

    Example:
        >>> tell(Config().with_preset("best/family"), out=None, quiet=True)  # doctest: +SKIP
    """
    started = time.perf_counter()
    screen = console()
    screen.quiet = quiet
    graph = demo_family(settings.seed)
    held_out = len(graph.valid) + len(graph.test)
    screen.print(
        f"A family of {len(graph.entities)} people: {len(graph.train):,} known facts of"
        f" {len(graph.relations)} relations, a few of them wrong; {held_out:,} true facts held out."
    )
    model = PLogicNet(settings).fit(graph, for_stderr())
    fitted = model.fitted
    network = fitted.outcome.rule_model.groundings
    rules = model.rules.rows()
    mined = {
        "candidates": fitted.candidates,
        "rules": fitted.outcome.rule_model.rules.counts(),
        "irreflexive": len(fitted.outcome.rule_model.constraints),
        "hidden": len(network.hidden),
        "groundings": len(network.rule),
    }
    screen.print(mined_text(mined))
    screen.print(history_table(model.history, settings.system, TEST_COMPETES))
    test: Any = model.metrics["test"]
    screen.print(
        metrics_table(f"test: {len(graph.test):,} held-out facts, both sides, filtered", test, settings.system)
    )
    screen.print(rules_table(f"the {RULES} strongest rules", rules[:RULES]))
    facts = _missing(model)
    screen.print(
        table(
            f"the {FACTS} most probable missing facts",
            ["probability", "fact", "because", "held-out facts"],
            [
                [f"{f['probability']:.3f}", f["fact"], f["reason"], "confirm it" if f["confirmed"] else "–"]
                for f in facts
            ],
        )
    )
    if out is not None:
        model.save(out)
        screen.print(f"run saved in {out}; try: plogicnet predict {out} --complete --min-probability 0.5", markup=False)
    screen.print(f"done in {time.perf_counter() - started:.0f} s")
    return {
        "mined": mined,
        "history": list(model.history),
        "test": test,
        "rules": rules[:RULES],
        "missing": facts,
    }


def _missing(model: PLogicNet) -> list[dict[str, Any]]:
    """The most probable missing facts, each with its best reason and whether a held-out fact confirms it."""
    graph = model.fitted.graph
    held_out = [TripleSet.of(graph.split(split), len(graph.entities)) for split in ("valid", "test")]
    rows: list[dict[str, Any]] = []
    for p in model.complete(min_probability=0.0, top=FACTS):
        triple = (p.head, p.relation, p.tail)
        numbers = graph.numbers(*triple)[None, :]
        rows.append(
            {
                "fact": fact(triple),
                "probability": p.probability,
                "reason": best_reason(model.explain(*triple)),
                "confirmed": any(bool(facts.contains(numbers)[0]) for facts in held_out),
            }
        )
    return rows
