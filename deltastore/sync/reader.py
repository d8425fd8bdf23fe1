"""The sync face of readers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from deltastore.format.attestation import Attestation
from deltastore.lent_loop import LentLoop
from deltastore.reader.following import AsyncReader, Pause, Synced

__all__ = ["Reader", "SyncPause", "as_async"]

SyncPause = Callable[[], AbstractContextManager[Any]]
"""Makes a context in which the engine does not touch its weights."""


class Reader:
    """Keeps live tensors at a version. Made by ``Stream.reader``."""

    def __init__(self, core: AsyncReader, loop: LentLoop) -> None:
        self._core = core
        self._loop = loop

    @property
    def version(self) -> int | None:
        """The version in memory; None before the first ``sync``, and while torn."""
        return self._core.version

    @property
    def torn(self) -> bool:
        """Whether the live weights are of no version because an apply stopped half way."""
        return self._core.torn

    @property
    def newest(self) -> int:
        """The newest version seen in the log."""
        return self._core.newest

    def poll(self) -> bool:
        """Look for new records; True when there is something to ``sync``."""
        return self._loop.run(self._core.poll())

    def wait(self, *, timeout: float | None = None, interval: float = 0.05) -> bool:
        """Poll every ``interval`` seconds until there is something to sync; False after ``timeout`` ones."""
        return self._loop.run(self._core.wait(timeout=timeout, interval=interval))

    def sync(self, version: int | None = None) -> Synced:
        """Bring the tensors to ``version``, or to the newest one; see ``AsyncReader.sync``."""
        return self._loop.run(self._core.sync(version))

    def compare(self, version: int | None = None) -> tuple[str, ...]:
        """What holds other bits than a version; see ``AsyncReader.compare``."""
        return self._loop.run(self._core.compare(version))

    def attest(
        self, path: str | os.PathLike[str] | None = None, *, nonce: str | None = None, label: str = ""
    ) -> Attestation:
        """State what memory holds, for ``deltastore validate --live``; see ``AsyncReader.attest``."""
        return self._loop.run(self._core.attest(path, nonce=nonce, label=label))

    def verify(self) -> bool:
        """Whether the tensors are exactly those of ``version``; see ``AsyncReader.verify``."""
        return self._loop.run(self._core.verify())


def as_async(pause: SyncPause) -> Pause:
    """The same pause for an ``AsyncReader``."""

    @asynccontextmanager
    async def paused() -> AsyncIterator[None]:
        with pause():
            yield

    return paused
