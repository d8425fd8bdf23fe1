"""A trainer of a soak: it publishes until it is stopped, cancelled, or fenced."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from deltastore.bench.soak.model import Tensors, change
from deltastore.bench.soak.tally import Tally
from deltastore.bench.soak.truth import TOKEN, Truth
from deltastore.errors import ConflictError, DeltastoreError
from deltastore.stream import AsyncStream
from deltastore.writer.published import Published
from deltastore.writer.publishing import AsyncWriter

__all__ = ["Trainer"]

_CUT_SHARE: Final = 0.1
_ANCHOR_SHARE: Final = 0.05
_BACKGROUND_SHARE: Final = 0.3
_CUT_SECONDS: Final = 0.05
_STEP_SECONDS: Final = 0.02
_PACK_BYTES: Final = (2_000, 60_000, 1 << 25)


class Trainer:
    """Live tensors and their writer. ``model`` belongs to the trainer alone."""

    def __init__(
        self, stream: AsyncStream, model: Tensors, truth: Truth, tally: Tally, dice: random.Random
    ) -> None:
        self.model = model
        self._stream = stream
        self._truth = truth
        self._tally = tally
        self._dice = dice
        self._stopped = False
        self._writer: AsyncWriter | None = None

    def stop(self) -> None:
        """Let the publish in progress be the last one."""
        self._stopped = True

    async def run(self) -> None:
        """Open a writer, however often that takes, and publish one step after another."""
        writer = self._writer = await self._open()
        while writer is not None and not self._stopped:
            change(self.model, self._dice)
            try:
                await self._publish(writer)
            except ConflictError as error:
                self._tally.trainers[error.code] += 1
                return
            except DeltastoreError as error:
                self._tally.publishing[error.code] += 1
            await asyncio.sleep(self._dice.uniform(0, _STEP_SECONDS))

    async def close(self) -> None:
        """Wait for what goes on in the background, whatever becomes of it."""
        while self._writer is not None:
            try:
                await self._writer.close()
                return
            except DeltastoreError as error:
                self._tally.publishing[error.code] += 1

    async def _open(self) -> AsyncWriter | None:
        while not self._stopped:
            try:
                return await self._stream.writer(self.model, pack_bytes=self._dice.choice(_PACK_BYTES))
            except DeltastoreError as error:
                self._tally.publishing[error.code] += 1
            await asyncio.sleep(0)
        return None

    async def _publish(self, writer: AsyncWriter) -> None:
        """One publish; some are cancelled at whatever they wait for just then, and the trainer goes on."""
        token = self._truth.note(self.model)
        cut = self._dice.random() < _CUT_SHARE
        patience = self._dice.uniform(0, _CUT_SECONDS) if cut else None
        anchor = self._dice.random() < _ANCHOR_SHARE
        try:
            async with asyncio.timeout(patience):
                published = await self._published(writer, token, anchor)
        except TimeoutError:
            self._tally.publishing["cancelled"] += 1
            return
        await self._truth.published(published.version, token)

    async def _published(self, writer: AsyncWriter, token: str, anchor: bool) -> Published:
        """By either way to publish; in the background the model changes meanwhile."""
        if self._dice.random() < _BACKGROUND_SHARE:
            publishing = await writer.publish_async(metadata={TOKEN: token}, anchor=anchor)
            change(self.model, self._dice)
            return await publishing
        return await writer.publish(metadata={TOKEN: token}, anchor=anchor)
