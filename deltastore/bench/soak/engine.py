"""A reader of a soak: it lags, goes back, is cancelled, starts again; and is compared after every sync."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from deltastore.bench.soak.model import Tensors, foreign
from deltastore.bench.soak.tally import Tally
from deltastore.bench.soak.truth import Truth
from deltastore.errors import DeltastoreError
from deltastore.reader.following import AsyncReader
from deltastore.stream import AsyncStream

__all__ = ["Engine"]

_CUT_SHARE: Final = 0.1
_BACK_SHARE: Final = 0.1
_AGAIN_SHARE: Final = 0.05
_CUT_SECONDS: Final = 0.05
_LAGS: Final = (0.0, 0.01, 0.3)
"""Seconds between syncs, at most: an engine keeps to one of them."""


class Engine:
    """Live tensors and their reader. ``tensors`` belong to the engine alone."""

    def __init__(
        self,
        name: str,
        stream: AsyncStream,
        tensors: Tensors,
        truth: Truth,
        tally: Tally,
        dice: random.Random,
    ) -> None:
        self.tensors = tensors
        self._name = name
        self._stream = stream
        self._truth = truth
        self._tally = tally
        self._dice = dice
        self._lag = dice.choice(_LAGS)

    async def run(self) -> None:
        """Follow until cancelled."""
        reader: AsyncReader | None = None
        while True:
            await asyncio.sleep(self._dice.uniform(0, self._lag))
            try:
                if reader is None or self._dice.random() < _AGAIN_SHARE:
                    reader = None  # the tensors are about to be no longer what it left in them
                    reader = await self._opened()
                await self._sync(reader)
            except DeltastoreError as error:
                self._tally.syncing[error.code] += 1
            if reader is not None and reader.version is not None:
                await self._truth.compare(reader.version, self.tensors, self._name)

    async def settle(self, stream: AsyncStream) -> None:
        """Reach the newest version of a store without faults, from whatever the tensors hold."""
        reader = await stream.reader(self.tensors)
        synced = await reader.sync()
        await self._truth.compare(synced.version, self.tensors, self._name)

    async def _opened(self) -> AsyncReader:
        """A new reader over the tensors as they are, which may be a version, or over a stranger's."""
        if self._dice.random() < 0.5:
            for name, bits in foreign(self.tensors).items():
                self.tensors[name][...] = bits
        return await self._stream.reader(self.tensors)

    async def _sync(self, reader: AsyncReader) -> None:
        back = self._dice.random() < _BACK_SHARE
        version = self._dice.choice(sorted(self._truth.tokens)) if back and self._truth.tokens else None
        patience = self._dice.uniform(0, _CUT_SECONDS) if self._dice.random() < _CUT_SHARE else None
        try:
            async with asyncio.timeout(patience):
                await reader.sync(version)
        except TimeoutError:
            self._tally.syncing["cancelled"] += 1
