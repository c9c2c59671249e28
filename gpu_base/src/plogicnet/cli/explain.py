"""The command `explain`."""

from enum import StrEnum
from typing import Annotated

import typer

from plogicnet.cli.settings import Device, FactsFile, Json, MemoryLimit, Run, Threads, print_json
from plogicnet.cli.train import load_run
from plogicnet.memory import limit_memory

PREMISES = 3
"""Of so many groundings of a rule are the premises shown to people, unless told."""


class Format(StrEnum):
    """How an explanation is written."""

    tree = "tree"
    text = "text"
    json = "json"


def explain(
    run: Run,
    head: Annotated[str, typer.Argument(help="The head's name.")],
    relation: Annotated[str, typer.Argument(help="The relation's name.")],
    tail: Annotated[str, typer.Argument(help="The tail's name.")],
    facts: FactsFile = None,
    premises: Annotated[
        int | None,
        typer.Option("--premises", min=0, help="So many groundings a rule are shown; 3, in JSON 100, unless told."),
    ] = None,
    how: Annotated[Format, typer.Option("--format", help="A tree, plain text, or JSON as --json.")] = Format.tree,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """Why a triple is held probable or not: rules with premises, vectors, and how its probability comes of both."""
    limit_memory(memory_limit)
    model = load_run(run, device, threads, facts=facts)
    if as_json or how is Format.json:
        print_json(model.explain(head, relation, tail, **({} if premises is None else {"premises": premises})))
        return
    from plogicnet.cli.explanation import explained
    from plogicnet.cli.show import console

    reason = model.explain(head, relation, tail, PREMISES if premises is None else premises)
    outline = explained(reason, model.fitted.graph.labels)
    if how is Format.tree:
        console().print(outline.tree())
    else:
        print(outline.text())
