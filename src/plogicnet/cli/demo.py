"""The demo: mine, train, evaluate, and tell the most probable missing facts with their reasons."""

import time
from pathlib import Path
from typing import Any

from plogicnet.cli import show
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
    screen = show.console()
    screen.quiet = quiet
    graph = demo_family(settings.seed)
    screen.print(
        f"A family of {len(graph.entities)} people: {len(graph.train):,} known facts of {len(graph.relations)}"
        f" relations, a few of them wrong; {len(graph.valid) + len(graph.test):,} true facts held out."
    )
    hooks = Hooks(for_stderr())
    model = PLogicNet(settings).fit(graph, hooks=hooks) if out is None else trained(out, settings, graph, hooks=hooks)
    test: Any = model.metrics["test"]
    learned, rules = model.fitted.outcome.rule_model, model.rules.rows()[:RULES]
    mined = show.mined_counts(model.fitted.candidates, learned.rules, learned.constraints, learned.grounded)
    screen.print(show.mined_text(mined))
    screen.print(show.history_table(model.history, model.titles, show.TEST_COMPETES))
    title = f"test: {len(graph.test):,} held-out facts, both sides, filtered"
    screen.print(show.metrics_table(title, test, model.titles))
    screen.print(show.rules_table(f"the {RULES} strongest rules", rules))
    facts = _missing(model)
    columns = ["probability", "fact", "because", "held-out facts"]
    cells = [
        [f"{f['probability']:.3f}", f["fact"], f["reason"], "confirm it" if f["confirmed"] else "–"] for f in facts
    ]
    screen.print(show.table(f"the {FACTS} most probable missing facts", columns, cells))
    if out is not None:
        screen.print(f"run saved in {out}; try: plogicnet predict {out} --complete --min-probability 0.5", markup=False)
    screen.print(f"done in {time.perf_counter() - started:.0f} s")
    history = [line.to_json() for line in model.history]
    return {"mined": mined, "history": history, "test": test, "rules": rules, "missing": facts}


def _missing(model: PLogicNet) -> list[dict[str, Any]]:
    """The most probable missing facts, each with its best reason and whether a held-out fact confirms it."""
    return [
        {
            "fact": show.fact(p.triple),
            "probability": p.probability,
            "reason": show.best_reason(model.explain(*p.triple)),
            "confirmed": p.held_out is not None,
        }
        for p in model.complete(min_probability=0.0, top=FACTS)
    ]
