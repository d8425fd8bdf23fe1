"""What must hold of a stream after whatever its writer went through."""

from __future__ import annotations

from deltastore.validate import validate
from tests.doubles.models import bits, differing
from tests.doubles.training import Engine, Trainer

__all__ = ["check", "follow"]


async def check(trainer: Trainer, version: int) -> None:
    """A new reader gets the newest version, which is the model as it is, and the stream is sound."""
    engine = await Engine.start(trainer.store, trainer.model)
    assert (await engine.reader.sync()).version == version
    assert differing(engine.tensors, bits(trainer.model)) == []
    assert (await validate(trainer.store)).problems == ()


async def follow(trainer: Trainer) -> None:
    """An engine goes through all versions, and holds the bits of each."""
    engine = await Engine.start(trainer.store, trainer.model)
    for version in trainer.history:
        await engine.reader.sync(version)
        assert engine.wrong(trainer.history) == []
