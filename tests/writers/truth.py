"""What a test knows of a stream from outside: the bits behind every nonce, and what was acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from deltastore.format.pack import pack_key
from deltastore.format.records import AnchorRecord, DeltaRecord, Record, parse_record, record_key
from deltastore.format.votes import Attempt
from deltastore.log import Log, Manifest
from deltastore.stores.base import Store
from deltastore.validate import validate
from deltastore.writer.published import Published
from tests.doubles.models import Bits, Tensors, bits, differing
from tests.doubles.training import Engine

__all__ = ["Truth"]


@dataclass
class Truth:
    """Looks into ``store``, where no fault is injected.

    ``history``: the bits of every committed version. ``meant``: those of every version that somebody tried
    to commit, by the nonce of its manifest.
    """

    store: Store
    meant: dict[str, Bits] = field(default_factory=dict)
    history: dict[int, Bits] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    acknowledged: dict[int, tuple[int, Bits]] = field(default_factory=dict)
    swept: int = 0
    _auditor: Engine | None = None
    _checked: tuple[int, int] = (0, 0)

    def watch(self, model: Callable[[], Bits]) -> Callable[[str, bytes], None]:
        """Sees what a trainer whose weights are ``model`` puts, before anything may go wrong with it."""

        def saw(key: str, data: bytes) -> None:
            if key.startswith("prepared/") and key.endswith("/attempt.json"):
                self.meant.setdefault(Attempt.from_bytes(data, key).nonce, model())
            if key.startswith("log/"):
                record = parse_record(data, int(key[4:-5]))
                if isinstance(record, AnchorRecord | DeltaRecord):
                    self.meant.setdefault(record.nonce, model())

        return saw

    def told(self, published: Published, model: Bits) -> None:
        """Somebody was told that this version is committed."""
        known = self.acknowledged.setdefault(published.version, (published.slot, model))
        assert known[0] == published.slot
        assert differing(known[1], model) == []

    async def check(self, like: Tensors) -> None:
        """Everything that must hold at any time."""
        records = [record async for record in Log(self.store).forwards()]
        assert records[: len(self.records)] == self.records, "a record changed or vanished"
        assert [record.slot for record in records] == list(range(len(records)))
        keys = [info.key async for info in self.store.list("log/")]
        assert keys == [record_key(slot) for slot in range(len(records))]
        self.records = records
        manifests = self.manifests()
        versions = [one.version for one in manifests]
        assert versions == sorted(set(versions))
        for one in manifests:
            self.history.setdefault(one.version, self.meant[one.nonce])
        for version, (slot, model) in self.acknowledged.items():
            assert records[slot].kind in ("anchor", "delta")
            assert version in versions, "an acknowledged version vanished"
            assert differing(self.history[version], model) == []
        await self._check_content(like)

    async def _check_content(self, like: Tensors) -> None:
        if self._checked == (len(self.records), self.swept):
            return
        self._checked = (len(self.records), self.swept)
        report = await validate(self.store)
        assert report.problems == (), report.problems
        if self._auditor is None:
            self._auditor = await Engine.start(self.store, like)
        await self._auditor.reader.sync()
        assert self._auditor.reader.version == max(self.history)
        assert self._auditor.wrong(self.history) == []

    def manifests(self) -> list[Manifest]:
        return [one for one in self.records if isinstance(one, AnchorRecord | DeltaRecord)]

    async def sweep(self) -> int:
        """Delete every pack of a version up to the tip that no record names."""
        manifests = self.manifests()
        named = {
            pack_key(one.version, pack.sha256)
            for one in manifests
            if isinstance(one, DeltaRecord)
            for pack in one.packs
        }
        garbage = [
            info.key
            async for info in self.store.list("packs/")
            if info.key not in named and int(info.key.split("/")[1]) <= manifests[-1].version
        ]
        for key in garbage:
            await self.store.delete(key)
        self.swept += len(garbage)
        return len(garbage)


def bits_now(model: Tensors) -> Callable[[], Bits]:
    """The bits of a model whenever asked."""
    return lambda: bits(model)
