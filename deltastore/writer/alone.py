"""Committing by the one process that holds all of the model."""

from __future__ import annotations

from deltastore.detect.changes import LiveDetector
from deltastore.format.table import TensorTable
from deltastore.log import Manifest, new_nonce
from deltastore.stores.base import Store
from deltastore.writer.committing import Opened, Wanted
from deltastore.writer.epoch import Epoch, choose_version
from deltastore.writer.packing import Packing, Progress, Uploaded
from deltastore.writer.versions import commit_anchor, commit_delta

__all__ = ["Alone"]


class Alone:
    """An epoch with one writer: an attempt is nothing that anybody else has to hear of."""

    def __init__(self, store: Store, table: TensorTable, epoch: Epoch) -> None:
        self._store = store
        self._table = table
        self._epoch = epoch

    @property
    def number(self) -> int:
        """The epoch's number."""
        return self._epoch.number

    @property
    def in_doubt(self) -> bool:
        """Whether the last version may have been committed, or may be yet, without a report."""
        return self._epoch.in_doubt

    async def settle(self) -> Manifest | None:
        """The manifest in doubt if it is committed; None if it never will be."""
        return await self._epoch.settle()

    async def open(self, wanted: Wanted, base: Manifest | None) -> Opened:
        """Choose the version; ``FencedError`` and ``ConflictError`` come before anything is uploaded."""
        await self._epoch.catch_up()
        version = choose_version(self._epoch.newest_version, wanted.version)
        return Opened(version, new_nonce(), None if wanted.whole else base)

    async def commit(self, opened: Opened, wanted: Wanted, uploaded: Uploaded, detector: str) -> Manifest:
        """Append the delta's manifest."""
        return await commit_delta(
            self._epoch,
            self._table,
            opened,
            packs=uploaded.packs,
            changed=uploaded.changed,
            difference=uploaded.difference,
            detector=detector,
            certificate=uploaded.certificate,
            writers=1,
            metadata=wanted.metadata,
        )

    async def commit_whole(
        self,
        opened: Opened,
        wanted: Wanted,
        detector: LiveDetector,
        packing: Packing,  # noqa: ARG002
        progress: Progress | None,
    ) -> Manifest:
        """Write an anchor of what the detector found, and append its manifest."""
        return await commit_anchor(
            self._store,
            self._epoch,
            detector.whole,
            opened,
            digest=await detector.digest(),
            metadata=wanted.metadata,
            progress=progress,
        )

    async def give_up(self, opened: Opened, error: BaseException) -> None:
        """Nobody else takes part."""
