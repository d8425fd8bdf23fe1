"""An engine that is one version behind a stream which is then damaged."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Any

import pytest

from deltastore.errors import CorruptError, DeltastoreError, UnsupportedError
from deltastore.format.pack import HEADER_BYTES, ROW, index_bytes, pack_key
from deltastore.format.records import DeltaRecord
from deltastore.log import Log
from deltastore.stores.memory import MemoryStore
from tests.doubles.forging import fields_of, forge
from tests.doubles.models import cut_table, small_model
from tests.doubles.stores import contents, memory_store, restore
from tests.doubles.training import Engine, Trainer


@dataclass
class Behind:
    """An engine at version 1 of a stream that is at version 2, and what the store holds."""

    store: MemoryStore
    trainer: Trainer
    engine: Engine
    record: DeltaRecord
    sound: dict[str, bytes]

    @property
    def keys(self) -> list[str]:
        return [pack_key(2, pack.sha256) for pack in self.record.packs]

    async def refused(self, *codes: str, where: str | None = None) -> DeltastoreError:
        """The next sync fails with one of these codes and changes nothing."""
        with pytest.raises((CorruptError, UnsupportedError)) as caught:
            await self.engine.reader.sync()
        assert caught.value.code in codes, caught.value
        if where is not None:
            assert caught.value.where == where
        assert self.engine.reader.version == 1
        assert not self.engine.reader.torn
        assert self.engine.wrong(self.trainer.history) == []
        return caught.value

    async def mend(self) -> None:
        """Put the store right again."""
        await restore(self.store, self.sound)

    async def repack(self, number: int, data: bytes, **changes: Any) -> str:
        """Make the manifest name this pack instead, with all its hashes right; returns its key."""
        sha256 = hashlib.sha256(data).hexdigest()
        fields = await fields_of(self.store, self.record.slot)
        entry = {**fields["packs"][number], "sha256": sha256, "bytes": len(data), **changes}
        entry["index_sha256"] = hashlib.sha256(data[: index_bytes(entry["rows"])]).hexdigest()
        packs = [*fields["packs"][:number], entry, *fields["packs"][number + 1 :]]
        await self.store.put(pack_key(2, sha256), data)
        await forge(self.store, self.record.slot, packs=packs)
        return pack_key(2, sha256)


async def behind(pack_bytes: int = 1, changes: int = 30) -> Behind:
    store = memory_store()
    model = small_model()
    trainer = await Trainer.create(store, model, table=cut_table(model, 24), pack_bytes=pack_bytes)
    await trainer.step(5)
    engine = await Engine.start(store, model)
    await engine.reader.sync()
    await trainer.step(changes)
    record = await Log(store).manifest(2)
    assert isinstance(record, DeltaRecord)
    # The reader polls the log as it is damaged: it must not have seen the sound record.
    return Behind(store, trainer, engine, record, await contents(store))


def row_of(data: bytes, number: int) -> dict[str, int]:
    at = HEADER_BYTES + number * ROW.itemsize
    names = ("array", "chunk", "length", "count", "encoding", "difference")
    return dict(zip(names, struct.unpack_from("<IIIIIQ", data, at), strict=True))


def with_row(data: bytes, number: int, **changes: int) -> bytes:
    at = HEADER_BYTES + number * ROW.itemsize
    row = {**row_of(data, number), **changes}
    packed = struct.pack("<IIIIIQ", *row.values())
    return data[:at] + packed + data[at + len(packed) :]
