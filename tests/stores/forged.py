"""Stores that break one promise each, for what must find them out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from deltastore.errors import CorruptError, StoreError
from deltastore.stores import Data, ObjectInfo, Tagged
from deltastore.stores.wrapped import WrappedStore


class IgnoresConditions(WrappedStore):
    """Every creation succeeds and overwrites."""

    async def put_if_absent(self, key: str, data: Data) -> bool:
        await self.inner.put(key, data)
        return True


class OverwritesSilently(WrappedStore):
    """A refused creation changes the object all the same."""

    async def put_if_absent(self, key: str, data: Data) -> bool:
        created = await self.inner.put_if_absent(key, data)
        await self.inner.put(key, data)
        return created


class RefusesEverything(WrappedStore):
    """No creation ever succeeds."""

    async def put_if_absent(self, key: str, data: Data) -> bool:
        return False


class LetsRacersWin(WrappedStore):
    """Looks before it writes, and anybody may come in between: right as long as nobody does."""

    async def put_if_absent(self, key: str, data: Data) -> bool:
        if await self.inner.stat(key) is not None:
            return False
        await asyncio.sleep(0)
        await self.inner.put(key, data)
        return True


class Forbids(WrappedStore):
    """Answers 403 for an absent key, as S3 does to whoever may not list."""

    advice = ""

    async def get(self, key: str, *, limit: int) -> bytes:
        await self._look(key)
        return await self.inner.get(key, limit=limit)

    async def stat(self, key: str) -> ObjectInfo | None:
        await self._look(key)
        return await self.inner.stat(key)

    async def _look(self, key: str) -> None:
        if await self.inner.stat(key) is None:
            raise StoreError("store_failed", f"cannot read {key}: 403 AccessDenied{self.advice}", where=key)


class ForbidsAndSaysWhy(Forbids):
    """And names the permission that is missing."""

    advice = "; grant s3:ListBucket"


class ListsBackwards(WrappedStore):
    """Every key, and the last one first."""

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        for info in reversed([info async for info in self.inner.list(prefix, after=after)]):
            yield info


class ListsByFolder(WrappedStore):
    """In the order of the segments, as a walk over folders gives: a/b before a-b."""

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        found = [info async for info in self.inner.list(prefix, after=after)]
        for info in sorted(found, key=lambda info: info.key.split("/")):
            yield info


class ListsFromTheStart(WrappedStore):
    """Forgets where it was told to start."""

    def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        return self.inner.list(prefix)


class ListsOnePage(WrappedStore):
    """Never asks for the second page."""

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        left = 4
        async for info in self.inner.list(prefix, after=after):
            if left == 0:
                return
            left -= 1
            yield info


class ShiftsRanges(WrappedStore):
    """A range in the middle is one byte off."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self.inner.get_range(key, max(0, start - 1), length)


class CutsRanges(WrappedStore):
    """A range beyond the end gives what there is, and no error."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        try:
            return await self.inner.get_range(key, start, length)
        except CorruptError:
            return (await self.inner.get(key, limit=2**20))[start : start + length]


class Remembers(WrappedStore):
    """Nothing is ever deleted."""

    async def delete(self, key: str) -> None:
        return


class MissesAbsent(WrappedStore):
    """To delete an absent object is an error."""

    async def delete(self, key: str) -> None:
        if await self.inner.stat(key) is None:
            raise StoreError("store_failed", f"cannot delete {key}: it does not exist", where=key)
        await self.inner.delete(key)


class SeesNoChange(WrappedStore):
    """Whatever has a tag is said to be the same."""

    async def get_changed(self, key: str, *, tag: str | None, limit: int) -> Tagged | None:
        return None if tag is not None else await self.inner.get_changed(key, tag=tag, limit=limit)


class ReadsTheOld(WrappedStore):
    """An overwritten object is read as it first was."""

    async def put(self, key: str, data: Data) -> None:
        await self.inner.put_if_absent(key, data)


class Readonly(WrappedStore):
    """May not write."""

    async def put(self, key: str, data: Data) -> None:
        raise StoreError("store_failed", f"cannot write {key}: 403 AccessDenied", where=key)


class Down(WrappedStore):
    """Fails to write, and does not even answer a deletion."""

    async def put(self, key: str, data: Data) -> None:
        raise StoreError("store_failed", "it is down", where=key)

    async def delete(self, key: str) -> None:
        await asyncio.Event().wait()


class Hangs(WrappedStore):
    """Never answers a range."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        await asyncio.Event().wait()
        return b""


class NoAnswers(WrappedStore):
    """Applies every creation, and the answer to those that succeed gets lost."""

    async def put_if_absent(self, key: str, data: Data) -> bool:
        if await self.inner.put_if_absent(key, data):
            raise StoreError("store_failed", f"cannot create {key}: the outcome is unknown", where=key)
        return False
