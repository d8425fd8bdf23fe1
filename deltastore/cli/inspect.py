"""``deltastore inspect``: one object of a stream, sound or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltastore.cli.arguments import Json
from deltastore.cli.output import Output
from deltastore.cli.wording import plain

if TYPE_CHECKING:
    from deltastore.inspect.found import Inspection

__all__ = ["inspect"]

Object = Annotated[
    str,
    typer.Argument(
        metavar="OBJECT",
        help="A file, or the URL of a store with the object's key behind it: "
        "stream/packs/.../x.pack, s3://bucket/policy/log/...json.",
    ),
]
Row = Annotated[
    list[int] | None,
    typer.Option("--row", metavar="N", min=0, help="Show the runs of the patch of row N. May be repeated."),
]
ArrayOption = Annotated[
    str | None,
    typer.Option(
        "--array", metavar="A", help="Only rows of array A: its number, pattern, or a tensor of it."
    ),
]
Chunk = Annotated[
    int | None, typer.Option("--chunk", metavar="C", min=0, help="Only chunk number C, in packs and shards.")
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=0, help="List at most N rows, entries or members.")
]
Hex = Annotated[bool, typer.Option("--hex", help="With --row: all bytes of the patch, section by section.")]
Entropy = Annotated[
    bool, typer.Option("--entropy", help="Compare the patches of the rows with the entropy of what they say.")
]
Check = Annotated[bool, typer.Option("--check", help="Read a pack or a shard whole, and check all of it.")]


def inspect(
    place: Object,
    row: Row = None,
    array: ArrayOption = None,
    chunk: Chunk = None,
    limit: Limit = 20,
    hexadecimal: Hex = False,
    entropy: Entropy = False,
    check: Check = False,
    as_json: Json = False,
) -> None:
    """Look into one object of a stream.

    Packs, records, tables, inventories, shards and all others, damaged and foreign ones too. Shows what can
    be read, then what is wrong: code, requirement of SPEC.md, byte. Of packs and shards only headers and
    indexes are read and checked, and what the options ask for. The stream around the object, if there is
    one, gives the names; what could not be checked for want of it is listed as not checked. Exits with 12 or
    13 when something is wrong.
    """
    import asyncio

    from deltastore.cli.inspect_text import inspection_lines
    from deltastore.errors import UsageError
    from deltastore.inspect.found import Wanted
    from deltastore.inspect.looking import inspect_object
    from deltastore.inspect.source import open_source

    if hexadecimal and not row:
        raise UsageError("usage", "--hex shows the patch of a row: give it with --row N")
    output = Output(as_json=as_json)
    wanted = Wanted(tuple(row or ()), array, chunk, limit, check, entropy, hexadecimal)

    async def run() -> Inspection:
        source = await open_source(place)
        try:
            return await inspect_object(source, wanted)
        finally:
            await source.close()

    found = asyncio.run(run())
    facts, status = found.as_json(), 0
    failure = _failure(found)
    if failure is not None:
        status, facts["error"] = failure
    output.result(facts, *inspection_lines(found, wanted))
    if failure is not None:
        output.fail(plain(failure[1]["message"]))
        raise typer.Exit(status)


def _failure(found: Inspection) -> tuple[int, dict[str, Any]] | None:
    """The exit status and the error, where something is wrong."""
    from deltastore.inspect.found import said_of

    if found.problems:
        first = found.problems[0]
        return first.exit_status, {"code": first.code, "message": said_of(first), "where": first.where}
    if found.kind == "unknown":
        message = f"{found.shown} is no object of a stream, or one without its place"
        return 1, {"code": "bad_argument", "message": message, "where": found.shown}
    return None
