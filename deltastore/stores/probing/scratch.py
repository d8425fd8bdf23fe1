"""Keys of its own for one probe, and their removal."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from deltastore.errors import DeltastoreError
from deltastore.stores.base import Store, check_prefix

__all__ = ["Scratch"]


class Scratch:
    """Fresh keys below ``prefix`` + a random folder: no other probe has them, now or ever."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.folder = f"{check_prefix(prefix)}{secrets.token_hex(8)}/"
        self._given: list[str] = []

    def key(self, name: str) -> str:
        """The key called ``name``, which is removed at the end."""
        key = self.folder + name
        if key not in self._given:
            self._given.append(key)
        return key

    async def remove(self, patience_seconds: float) -> None:
        """Remove every object under the keys given, as far as the store lets us in this time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                for key in self._given:
                    # Whoever may not delete leaves a few bytes, and hears of it from the probe of that.
                    with contextlib.suppress(DeltastoreError):
                        await self.store.delete(key)
