"""A stream whose trainer died, and what must hold of it while another trainer takes over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, Self

from deltastore.errors import FencedError
from deltastore.format.records import AnchorRecord, DeltaRecord, EpochRecord, Record
from deltastore.log import Log
from deltastore.stores.base import Store
from deltastore.validate import validate
from tests.distributed.together import Together
from tests.doubles.models import Bits, Tensors, bf16, bits, differing
from tests.doubles.stores import contents, copied
from tests.doubles.training import Engine

from .dying_publisher import history, model_of
from .writers_process import LAST_VERSION

__all__ = ["Aftermath", "Start"]

Start = Literal["as it died", "an older version", "unknown weights"]

_NEW_TRAINER: Final = "the second trainer"
_STARTS: Final = 3
_PUBLISHED: Final = 2


@dataclass
class Aftermath:
    """``engine`` follows the stream from its first version on; ``history``: the bits of each version."""

    store: Store
    engine: Engine
    history: dict[int, Bits] = field(default_factory=history)

    @classmethod
    async def begin(cls, store: Store) -> Self:
        """Before anything happens to a stream at version 0."""
        after = cls(store, await Engine.start(store, model_of(0)))
        await after.follow()
        return after

    async def follow(self) -> int:
        """The engine goes to the newest version, which is whole; its number."""
        newest = (await self.engine.reader.sync()).version
        assert self.engine.wrong(self.history) == []
        return newest

    async def take_over(self, start: Start, writers: int, run: str) -> int:
        """A new trainer publishes, and engines get there. The version up to which the old one had come.

        An old one that is still about to begin its epoch may fence the new one, which then starts again.
        """
        for attempt in range(_STARTS):
            try:
                return await self._take_over(start, writers, f"{run}-{attempt}" if attempt else run)
            except FencedError as error:
                if "the first trainer" not in str(error):
                    raise
        raise AssertionError("the old trainer comes back for ever")

    async def has_taken_over(self) -> bool:
        """Whether no old trainer has begun its epoch after the new one's."""
        epochs = [one for one in await self.records() if isinstance(one, EpochRecord)]
        return epochs[-1].writer == _NEW_TRAINER

    async def _take_over(self, start: Start, writers: int, run: str) -> int:
        model = self._weights(start, await self.follow())
        given = bits(model)
        trainer = await Together.open(self.store, model, writers, label=_NEW_TRAINER, run=run)
        reached = max(await self._check_epoch(trainer, given))
        for number in range(1, _PUBLISHED + 1):
            model["norm"][number] = bf16(0x1DEA)
            assert await trainer.publish(step=number) == reached + number
            self.history[reached + number] = bits(model)
            await self.follow()
        return reached

    def _weights(self, start: Start, newest: int) -> Tensors:
        """What a trainer has that starts now: ``as it died`` is what it was publishing, committed or not."""
        version = {"as it died": max(newest, min(newest + 1, LAST_VERSION)), "an older version": 0}.get(
            start, newest
        )
        model = model_of(0)
        for name, old in self.history[version].items():
            model[name].view(old.dtype)[...] = old
        if start == "unknown weights":
            model["norm"][0] = bf16(0x1DEB)
        return model

    async def _check_epoch(self, trainer: Together, given: Bits) -> list[int]:
        """The versions before the new epoch, which resumes the newest of them with these bits, if any."""
        records = await self.records()
        (epoch,) = (one for one in records if isinstance(one, EpochRecord) and one.epoch == trainer.epoch)
        before = _versions(records[: epoch.slot])
        same = [version for version in before if differing(self.history[version], given) == []]
        assert epoch.resumes == trainer.version == (same[-1] if same else None)
        return before

    async def records(self) -> list[Record]:
        """The log."""
        return [record async for record in Log(self.store).forwards()]

    async def check(self, acknowledged: set[int]) -> None:
        """Every version is there, those too that somebody was told of, and each is whole."""
        versions = _versions(await self.records())
        assert acknowledged <= set(versions)
        copy = await copied(await contents(self.store))
        other = await Engine.start(copy, model_of(0))
        for version in versions:
            await other.reader.sync(version)
            assert other.reader.version == version
            assert other.wrong(self.history) == []
        assert (await validate(copy)).problems == ()


def _versions(records: list[Record]) -> list[int]:
    return [record.version for record in records if isinstance(record, AnchorRecord | DeltaRecord)]
