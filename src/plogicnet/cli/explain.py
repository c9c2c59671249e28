"""The command `explain`."""

from enum import StrEnum
from typing import Annotated

import typer

from plogicnet.cli.settings import Device, FactsFile, Json, MemoryLimit, Run, Threads, load_run, print_json
from plogicnet.support.memory import limit_memory


class Format(StrEnum):
    """How an explanation is written."""

    tree = "tree"
    text = "text"
    json = "json"


SHOWN = {Format.tree: 3, Format.text: 3, Format.json: 100}
"""The default number of groundings of a rule whose premises are shown."""


def explain(
    run: Run,
    head: Annotated[str, typer.Argument(help="The head's name.")],
    relation: Annotated[str, typer.Argument(help="The relation's name.")],
    tail: Annotated[str, typer.Argument(help="The tail's name.")],
    facts: FactsFile = None,
    premises: Annotated[
        int | None,
        typer.Option("--premises", min=0, help="Groundings shown of each rule; default 3, in JSON 100."),
    ] = None,
    how: Annotated[Format, typer.Option("--format", help="A tree, plain text, or JSON as --json.")] = Format.tree,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """Why a triple is probable or not: rules with premises, the neural model, and how both make its probability."""
    limit_memory(memory_limit)
    model = load_run(run, device, threads, facts=facts)
    how = Format.json if as_json else how
    why = model.explain(head, relation, tail, SHOWN[how] if premises is None else premises)
    if how is Format.json:
        print_json(why.to_json())
        return
    from plogicnet.cli.explanation import explained
    from plogicnet.cli.show import console

    outline = explained(why, model.fitted.graph.labels)
    if how is Format.tree:
        console().print(outline.tree())
    else:
        print(outline.text())
