"""The demo: mine, train, evaluate, and explain the most probable missing facts."""

import time
from pathlib import Path
from typing import Any

from plogicnet.cli import show
from plogicnet.cli.train import train_run
from plogicnet.config import Config
from plogicnet.graph import demo_family
from plogicnet.model import Hooks, PLogicNet
from plogicnet.support.errors import pluralize, quote_argument
from plogicnet.support.numbers import format_probability
from plogicnet.support.progress import for_stderr

N_FACTS = 10
"""Number of missing facts to print."""
N_RULES = 10
"""Number of rules to print."""


def run_demo(settings: Config, out: Path | None, quiet: bool) -> dict[str, object]:
    """Train on the demo family, print the results as tables, and return them as a JSON object."""
    started = time.perf_counter()
    screen = show.console()
    screen.quiet = quiet
    graph = demo_family(settings.seed)
    screen.print(
        f"Built-in graph family: {len(graph.entities)} people, {len(graph.relations)} relations,"
        f" {len(graph.train):,} known facts (a few are wrong),"
        f" {len(graph.valid) + len(graph.test):,} held-out true facts."
    )
    hooks = Hooks(for_stderr())
    model = PLogicNet(settings).fit(graph, hooks=hooks) if out is None else train_run(out, settings, graph, hooks=hooks)
    test: Any = model.metrics["test"]
    learned, rules = model.fitted.outcome.rule_model, model.rules.rows()[:N_RULES]
    mined = show.mined_counts(model.fitted.candidates, learned.rules, learned.constraints, learned.network)
    screen.print(show.mined_text(mined))
    screen.print(show.history_table(model.history, model.titles, show.TEST_COMPETES))
    title = f"test ({pluralize(len(graph.test), 'triple')}, filtered)"
    screen.print(show.metrics_table(title, test, model.titles))
    screen.print(show.rules_table(f"The {N_RULES} rules with the highest weight", rules))
    facts = _missing_facts(model)
    columns = ["probability", "fact", "reason", "held out"]
    cells = [
        [format_probability(f["probability"]), f["fact"], f["reason"], "yes" if f["confirmed"] else "no"] for f in facts
    ]
    screen.print(show.table(f"The {N_FACTS} most probable missing facts", columns, cells))
    if out is not None:
        screen.print(f"Run saved in {out}. Next: plogicnet predict {quote_argument(out)} --complete", markup=False)
    screen.print(f"Done in {time.perf_counter() - started:.0f} s")
    history = [line.to_json() for line in model.history]
    return {"mined": mined, "history": history, "test": test, "rules": rules, "missing": facts}


def _missing_facts(model: PLogicNet) -> list[dict[str, Any]]:
    """Return the most probable missing facts, each with its main reason and whether it is a held-out fact."""
    return [
        {
            "fact": show.fact(p.triple),
            "probability": p.probability,
            "reason": show.best_reason(model.explain(*p.triple)),
            "confirmed": p.held_out is not None,
        }
        for p in model.complete(min_probability=0.0, top=N_FACTS, known=["train"])
    ]
