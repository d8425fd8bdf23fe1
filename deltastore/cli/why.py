"""``deltastore why``: the history of one element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltastore.cli.arguments import Json, StreamUrl
from deltastore.cli.output import Output

if TYPE_CHECKING:
    from deltastore.history.element import ElementHistory, Event

__all__ = ["why"]

Element = Annotated[
    str,
    typer.Argument(
        metavar="TENSOR[INDEX]",
        help="An element: 'model.norm.weight[7]', 'w[3,17]', or 'w[1234]', the row-major place in all of w.",
    ),
]


def why(url: StreamUrl, element: Element, as_json: Json = False) -> None:
    """Show the history of one element.

    Every version that wrote it: the value with its bits, the step from its base in ordered-integer space, and
    where that stands, object and byte. Versions between have the value of the one before. Fetches the indexes
    of the packs that may have its chunk, the patches of that chunk, and of anchors the chunk.
    """
    import asyncio

    from deltastore.history.element import element_history
    from deltastore.history.places import ElementName
    from deltastore.stores.open import open_store

    output = Output(as_json=as_json)
    name = ElementName.parse(element)
    store = open_store(url)

    async def run() -> ElementHistory:
        async with store:
            return await element_history(store, name)

    found = asyncio.run(run())
    output.result({"url": store.url, **_facts(found)}, *_lines(found))


def _facts(found: ElementHistory) -> dict[str, Any]:
    place = found.place
    return {
        "tensor": found.tensor,
        "dtype": found.dtype.name,
        "shape": list(found.shape),
        "index": list(place.index),
        "array": place.array,
        "member": place.member,
        "chunk": place.chunk,
        "position": place.position,
        "versions": found.versions,
        "skipped": list(found.skipped),
        "history": [event.as_json(found.dtype) for event in found.events],
    }


def _lines(found: ElementHistory) -> Iterator[str]:
    from deltastore.cli.aligned import columns
    from deltastore.cli.wording import plain, plural
    from deltastore.history.places import index_text

    place, shape = found.place, "×".join(map(str, found.shape)) or "()"
    yield f"{plain(found.tensor)}{index_text(place.index)}, {found.dtype.name} of shape {shape}"
    chunk = f"array {place.array}, member {place.member}, chunk {place.chunk}, position {place.position:,}"
    yield f"  {chunk}; written by {len(found.events)} of {plural(found.versions, 'version')}"
    if found.skipped:
        skipped = plural(len(found.skipped), "version")
        yield f"  not in {skipped} of other tensors, the last of which is {found.skipped[-1]}"
    heads = ("version", "base", "step", "value", "bits", "moved", "where")
    rows = [_row(found, event) for event in found.events]
    yield from columns(heads, rows, left=frozenset({"where"}))


def _row(found: ElementHistory, event: Event) -> list[str]:
    from deltastore.cli.wording import plain
    from deltastore.format.numbers import bits_text, number_text

    if event.row is None:
        where = f"byte {event.offset:,}"
    else:
        bit = f", bit {event.bit}" if event.width < 8 else ""
        kind = "raw" if event.run is None else f"run {event.run} of width {event.width}"
        where = f"row {event.row}, patch at {event.patch_offset:,}, {kind}: byte {event.offset:,}{bit}"
    return [
        *(str(event.version), "anchor" if event.base is None else str(event.base)),
        "" if event.trainer_step is None else plain(event.trainer_step),
        *(number_text(found.dtype, event.bits), bits_text(found.dtype, event.bits)),
        *("" if event.step is None else f"{event.step:+,}", f"{event.key}, {where}"),
    ]
