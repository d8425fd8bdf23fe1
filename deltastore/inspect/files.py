"""Carried files, and objects of no stream: what can be said of any bytes."""

from __future__ import annotations

from typing import Final

from deltastore.errors import CorruptError
from deltastore.inspect.found import Inspection
from deltastore.inspect.json_objects import loose_object
from deltastore.inspect.source import Source
from deltastore.inspect.surroundings import Surroundings
from deltastore.stores.named import wrong_length

__all__ = ["inspect_file"]

_LOOKED_AT: Final = 1 << 20
_SHOWN: Final = 64


async def inspect_file(source: Source, into: Inspection, around: Surroundings) -> None:
    """Hash all bytes, and say what they look like; of a carried file, whether they are what its name says."""
    sha256 = into.facts["sha256"] = await source.sha256()
    front = await source.read(0, _LOOKED_AT)
    into.facts["content"] = _content(front, source.size)
    into.facts["first_bytes"] = front[:_SHOWN].hex()
    if into.key is None or not into.key.startswith("files/"):
        return
    into.kind = "carried file"
    named = into.key.removeprefix("files/")
    files = await around.carried_as(named)
    into.facts["names"] = sorted({file.name for file in files})
    if not files and around.store is not None:
        into.notes.append("no record of the stream names it")
    if files and files[0].bytes != into.size:
        into.wrong(wrong_length(into.where, into.size, files[0].bytes, "a record", "DS063"))
    elif sha256 != named:
        message = f"{into.where} is not the file that its name says"
        into.wrong(CorruptError("bad_hash", message, where=into.where, rule="DS063"))


def _content(front: bytes, size: int) -> str:
    if not size:
        return "nothing"
    if size <= len(front) and loose_object(front) is not None:
        return "a JSON object"
    header = int.from_bytes(front[:8], "little")
    if size > 8 and 2 <= header <= size - 8 and front[8:9] == b"{":
        return "safetensors"
    try:
        front[: max(len(front) - 4, 1)].decode("utf-8")
    except UnicodeDecodeError:
        return "binary data"
    return "text" if b"\0" not in front else "binary data"
