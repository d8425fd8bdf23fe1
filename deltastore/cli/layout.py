"""``deltastore layout``: how the processes of an engine hold a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from deltastore.cli.arguments import Json
from deltastore.cli.engines import EngineChoice, layout_from_options, with_engine_options
from deltastore.cli.output import Output
from deltastore.errors import UsageError

if TYPE_CHECKING:
    from deltastore.layout.model import Model

__all__ = ["layout"]

ConfigPath = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A config.json of a Hugging Face checkpoint, or its folder.")
]
OneRank = Annotated[
    int | None,
    typer.Option(
        "--rank", min=0, metavar="R", help="Every piece of one process, from 0 on; default: all, in brief."
    ),
]

_RANKS: Final = 4096


@with_engine_options
def layout(config: ConfigPath, choice: EngineChoice, rank: OneRank = None, as_json: Json = False) -> None:
    """Show how an engine holds a model.

    Which box of which tensor stands where in which parameter. Needs neither weights nor a stream, and not the
    engine. With --rank and --json, the layout as an object of spec/schema/layout.json.
    """
    from deltastore.layout.families import model_of

    model = model_of(config)
    output = Output(as_json=as_json)
    if rank is None:
        _show_all(output, model, choice)
    else:
        _show_one(output, model, choice, rank)


def _show_one(output: Output, model: Model, choice: EngineChoice, rank: int) -> None:
    from deltastore.cli.layout_text import layout_lines

    drawn = layout_from_options(model, choice, rank)
    if not output.as_json:
        output.result({}, *layout_lines(drawn))
        return
    from deltastore.layout.layout_object import LayoutObject

    typer.echo(LayoutObject.of(drawn).to_bytes(), nl=False)  # a byte more would not be the object


def _show_all(output: Output, model: Model, choice: EngineChoice) -> None:
    from deltastore.cli.layout_text import process_facts, process_lines

    if choice.ranks > _RANKS:
        raise UsageError("usage", f"{choice.ranks} processes are too many to show: choose one with --rank")
    facts = [process_facts(layout_from_options(model, choice, rank), rank) for rank in range(choice.ranks)]
    elements = sum(tensor.elements for tensor in model.tensors())
    output.result({"elements": elements, "ranks": facts}, *process_lines(facts, elements))
