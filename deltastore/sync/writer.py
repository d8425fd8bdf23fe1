"""The sync face of writers."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, SupportsIndex

from deltastore.detect.marks import MarksByName
from deltastore.lent_loop import LentLoop
from deltastore.writer.background import Publishing
from deltastore.writer.committing import Metadata
from deltastore.writer.published import Published
from deltastore.writer.publishing import AsyncWriter

__all__ = ["Pending", "Writer"]


class Writer:
    """Publishes live tensors. Made by ``Stream.writer``."""

    def __init__(self, core: AsyncWriter, loop: LentLoop) -> None:
        self._core = core
        self._loop = loop

    @property
    def version(self) -> int | None:
        """The version that the next delta is based on; None when the next version will be an anchor."""
        return self._core.version

    @property
    def epoch(self) -> int:
        """The number of this incarnation."""
        return self._core.epoch

    def publish(
        self,
        *,
        version: int | None = None,
        step: SupportsIndex | None = None,
        metadata: Metadata | None = None,
        anchor: bool = False,
    ) -> Published:
        """Commit the tensors as they are now as a new version; see ``AsyncWriter.publish``."""
        return self._loop.run(
            self._core.publish(version=version, step=step, metadata=metadata, anchor=anchor)
        )

    def attach(self, optimizer: Any) -> None:
        """Find changes by inverting the steps of ``optimizer``; see ``AsyncWriter.attach``."""
        self._loop.run(self._core.attach(optimizer))

    def mark(self, marks: MarksByName) -> None:
        """These elements may have changed; for ``detector="external"``. See ``AsyncWriter.mark``."""
        self._core.mark(marks)

    def publish_async(
        self,
        *,
        version: int | None = None,
        step: SupportsIndex | None = None,
        metadata: Metadata | None = None,
        anchor: bool = False,
    ) -> Pending:
        """As ``publish``, but return as soon as the tensors may change again; see ``AsyncWriter``.

        The first call gives the stream's event loop a thread of its own, which uploads between calls.
        """
        core = self._core.publish_async(version=version, step=step, metadata=metadata, anchor=anchor)
        return Pending(self._loop.run(core, moved=True), self._loop)

    def close(self) -> None:
        """Wait for what ``publish_async`` left to do; raises what it met. ``Stream.close`` does so too."""
        self._loop.run(self._core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Pending:
    """A version that is on its way. Made by ``Writer.publish_async``."""

    def __init__(self, core: Publishing, loop: LentLoop) -> None:
        self._core = core
        self._loop = loop

    @property
    def done(self) -> bool:
        """Whether the version is committed, or has failed."""
        return self._core.done

    def result(self) -> Published:
        """Wait until it is committed; raises what it met instead."""

        async def wait() -> Published:
            return await self._core

        return self._loop.run(wait())
