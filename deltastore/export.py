"""A stored version becomes a Hugging Face safetensors checkpoint again, with the files carried beside it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deltastore.checkpoints.arrival import arrive, draft_folder, prepare_folder
from deltastore.checkpoints.shard_files import write_synced
from deltastore.checkpoints.writing import SHARD_BYTES, write_checkpoint
from deltastore.errors import CorruptError
from deltastore.format.digest import MODULUS, Digester, digest_text
from deltastore.format.records import AnchorRecord, file_key, record_key
from deltastore.format.table import TensorTable
from deltastore.layout.watched import Progress, WatchedWeights
from deltastore.layout.weights import Bits, Weights
from deltastore.log import Log, Manifest
from deltastore.replay import ReplayedWeights, find_path, read_table
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named

__all__ = ["Exported", "export_version"]


@dataclass(frozen=True, slots=True)
class Exported:
    """A checkpoint that is complete on disk: the paths of its weights and of the files beside them.

    ``tensors`` of ``nbytes`` in all were written, and have the digest of ``version``.
    """

    version: int
    directory: Path
    weights: tuple[Path, ...]
    files: tuple[Path, ...]
    tensors: int
    nbytes: int
    digest: str


async def export_version(
    store: Store,
    version: int | None,
    out: str | Path,
    *,
    force: bool = False,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> Exported:
    """Write ``version`` (None: the newest) into the directory ``out``: byte-equal tensors, the same names.

    Memory: one chunk, one shard of the anchor, the indexes of the deltas. Everything stands under a hidden
    name until the digest of what was written has proved to be the manifest's, so neither an error nor a
    crash leaves a directory that only looks whole.

    Raises ``NotFoundError``, ``CorruptError`` naming the first bad object, ``UnsupportedError``, and
    ``InputError("bad_argument")`` for a directory that holds files, unless ``force`` says to replace the
    weights and the files of the same names in it.
    """
    log = Log(store)
    manifest = await (log.newest_manifest() if version is None else log.manifest(version))
    route = await find_path(log, manifest)
    table = await read_table(store, manifest.table)
    weights = _Summed(WatchedWeights(await ReplayedWeights.open(store, route, table), progress))
    folder = Path(out)
    with _arrival_folder(folder, force=force), draft_folder(folder) as draft:
        files = [] if route.anchor is None else await _write_files(store, route.anchor, draft)
        written = await write_checkpoint(weights, draft, shard_bytes=shard_bytes, overwrite=True)
        _check_digest(manifest, weights.digest)
        shards = [path.name for path in written]
        await asyncio.to_thread(arrive, draft, folder, [*shards, *files])
    return Exported(
        version=manifest.version,
        directory=folder,
        weights=tuple(folder / name for name in shards),
        files=tuple(folder / name for name in files),
        tensors=len(table.places),
        nbytes=table.nbytes,
        digest=manifest.digest,
    )


@contextlib.contextmanager
def _arrival_folder(folder: Path, *, force: bool) -> Iterator[None]:
    """The directory to write into; one that was made for it goes again when the writing fails."""
    existed = folder.exists()
    prepare_folder(folder, overwrite=force)
    try:
        yield
    except BaseException:
        if not existed:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


class _Summed:
    """The same weights; ``digest`` is that of all chunks read so far, mod 2**64."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._digester = Digester(weights.table)
        self.digest = 0

    @property
    def table(self) -> TensorTable:
        return self._weights.table

    async def read(self, array: int, chunk: int) -> Bits:
        bits = await self._weights.read(array, chunk)
        box = self.table.arrays[array].grid.box(chunk)
        self.digest = (self.digest + self._digester.chunk(array, box, bits)) % MODULUS
        return bits


def _check_digest(manifest: Manifest, digest: int) -> None:
    found = digest_text(digest)
    if found != manifest.digest:
        where = record_key(manifest.slot)
        raise CorruptError(
            "bad_digest",
            f"version {manifest.version} replays to digest {found}, {where} says {manifest.digest}: "
            "nothing was exported; take another version",
            where=where,
            rule="DS093" if isinstance(manifest, AnchorRecord) else "DS062",
        )


async def _write_files(store: Store, anchor: AnchorRecord, draft: Path) -> list[str]:
    """Fetch and check every carried file, one in memory at a time; returns their names."""
    for ref in anchor.files:
        content = await fetch_named(
            store,
            file_key(ref.sha256),
            nbytes=ref.bytes,
            sha256=ref.sha256,
            named_by=record_key(anchor.slot),
            rule="DS063",
        )
        await asyncio.to_thread(write_synced, draft / ref.name, content)
    return [ref.name for ref in anchor.files]
