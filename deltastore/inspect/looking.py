"""From an object to what it is: by its first bytes, and by its key where these do not say."""

from __future__ import annotations

from typing import Final

from deltastore.errors import CorruptError, UsageError
from deltastore.format.pack import MAGIC
from deltastore.inspect.anchor_parts import inspect_anchor_part
from deltastore.inspect.files import inspect_file
from deltastore.inspect.found import Inspection, Wanted
from deltastore.inspect.json_objects import MOST_BYTES, inspect_json, is_huge, loose_object, said_kind
from deltastore.inspect.loose_shard import looks_like_shard
from deltastore.inspect.packs import inspect_pack
from deltastore.inspect.source import Source
from deltastore.inspect.surroundings import Surroundings

__all__ = ["inspect_object"]

_JSON_FOLDERS: Final = ("log/", "tables/", "claims/", "joining/", "prepared/")
_NOT_ONE: Final = "it is none of a stream's objects by its bytes, and its place is none of a stream"


async def inspect_object(source: Source, wanted: Wanted | None = None) -> Inspection:
    """Look at one object of a stream, or at a file that may be one.

    What is wrong with it is in the answer, whose ``problems`` have code, requirement and offset. Of packs and
    shards only what is asked for is read, block by block; JSON objects and metadata are read whole.

    Raises ``InputError`` for rows, arrays or chunks that are not there, ``UsageError`` for what makes no
    sense for such an object, and ``StoreError``.
    """
    wanted = wanted or Wanted()
    into = Inspection(source.shown, source.key, source.size)
    around = Surroundings(source, into)
    front = await source.read(0, len(MAGIC))
    key = source.key or ""
    if front == MAGIC or key.startswith("packs/"):
        await inspect_pack(source, wanted, into, around)
    elif key.startswith("anchors/") and not key.endswith("/inventory.json"):
        await inspect_anchor_part(source, wanted, into, around)
    elif key.startswith(_JSON_FOLDERS) or key.endswith("/inventory.json"):
        await _json(source, into, around)
    elif key.startswith("files/"):
        await inspect_file(source, into, around)
    else:
        await _foreign(source, front, wanted, into, around)
    _refuse_unfit(wanted, into)
    return into


def _refuse_unfit(wanted: Wanted, into: Inspection) -> None:
    """What makes no sense for an object is not passed over in silence."""
    of_packs = {"--row": bool(wanted.rows), "--array": wanted.array is not None, "--entropy": wanted.entropy}
    unfit = [] if into.kind in ("pack", "unknown") else [name for name, given in of_packs.items() if given]
    if wanted.chunk is not None and into.kind not in ("pack", "shard", "unknown"):
        unfit.append("--chunk")
    if unfit:
        message = f"{into.shown} is of kind {into.kind}: {', '.join(unfit)} cannot be asked of it"
        raise UsageError("usage", message, where=into.shown)


async def _json(source: Source, into: Inspection, around: Surroundings) -> None:
    if source.size > MOST_BYTES:
        into.kind = "JSON object"
        message = f"{into.where} has {source.size} bytes where at most {MOST_BYTES} are allowed"
        into.wrong(CorruptError("too_large", message, where=into.where, rule="DS100"))
        return
    await inspect_json(await source.read(0, source.size), into, around)


async def _foreign(
    source: Source, front: bytes, wanted: Wanted, into: Inspection, around: Surroundings
) -> None:
    """A file whose place says nothing: a copy of an object, or something else."""
    if front[:1] == b"{" and source.size <= MOST_BYTES:
        data = await source.read(0, source.size)
        fields = loose_object(data)
        if fields is None:
            ours = not is_huge(data) or said_kind(data, None) is not None
        else:
            ours = {"format", "kind"} <= fields.keys() or "sha256" in fields
        if ours:
            await inspect_json(data, into, around)
            return
        if fields is not None and fields.get("zarr_format") == 3:
            into.kind, into.facts["fields"] = "anchor metadata", fields
            return
    elif await looks_like_shard(source) is not None:
        await inspect_anchor_part(source, wanted, into, around)
        return
    await inspect_file(source, into, around)
    into.notes.append(_NOT_ONE)
