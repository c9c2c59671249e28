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
from plogicnet.cli.train import trained
from plogicnet.config import Config
from plogicnet.graph import demo_family
from plogicnet.model import Hooks, PLogicNet
from plogicnet.support.progress import for_stderr

FACTS = 10
RULES = 10


def tell(settings: Config, out: Path | None, quiet: bool) -> dict[str, object]:
    """Trains on the demo family and shows the story as tables; returns it as one JSON object too."""
    started = time.perf_counter()
    screen = console()
    screen.quiet = quiet
    graph = demo_family(settings.seed)
    held_out = len(graph.valid) + len(graph.test)
    screen.print(
        f"A family of {len(graph.entities)} people: {len(graph.train):,} known facts of"
        f" {len(graph.relations)} relations, a few of them wrong; {held_out:,} true facts held out."
    )
    hooks = Hooks(for_stderr())
    model = PLogicNet(settings).fit(graph, hooks=hooks) if out is None else trained(out, settings, graph, hooks=hooks)
    fitted = model.fitted
    network = fitted.outcome.rule_model.grounded
    rules = model.rules.rows()
    mined = {
        "candidates": fitted.candidates,
        "rules": fitted.outcome.rule_model.rules.counts(),
        "irreflexive": len(fitted.outcome.rule_model.constraints),
        "hidden": len(network.hidden),
        "groundings": network.size,
    }
    screen.print(mined_text(mined))
    screen.print(history_table(model.history, model.titles, TEST_COMPETES))
    test: Any = model.metrics["test"]
    screen.print(metrics_table(f"test: {len(graph.test):,} held-out facts, both sides, filtered", test, model.titles))
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
        screen.print(f"run saved in {out}; try: plogicnet predict {out} --complete --min-probability 0.5", markup=False)
    screen.print(f"done in {time.perf_counter() - started:.0f} s")
    return {
        "mined": mined,
        "history": [line.to_json() for line in model.history],
        "test": test,
        "rules": rules[:RULES],
        "missing": facts,
    }


def _missing(model: PLogicNet) -> list[dict[str, Any]]:
    """The most probable missing facts, each with its best reason and whether a held-out fact confirms it."""
    return [
        {
            "fact": fact(p.triple),
            "probability": p.probability,
            "reason": best_reason(model.explain(*p.triple)),
            "confirmed": p.held_out is not None,
        }
        for p in model.complete(min_probability=0.0, top=FACTS)
    ]
