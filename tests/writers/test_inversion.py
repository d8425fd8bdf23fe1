"""Two ranks invert the steps of their own optimizers, while stores fail them: nothing is lost or mixed."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pytest
import torch

from deltastore import Part
from deltastore.format.records import Certificate, DeltaRecord
from deltastore.layout.parts import flat_parts
from deltastore.writer.opening import open_writer
from deltastore.writer.published import Published
from tests.doubles.forging import append_foreign
from tests.doubles.models import Bits, bf16, bits, differing
from tests.doubles.training import Engine

from .ranks import Outage, RankStore
from .streams import Scene
from .teams import Rank, Team
from .virtual import virtual

WRITES = frozenset({"put", "put_if_absent"})

SHAPES = {"up": (40, 50), "down": (50, 40), "head": (31, 70), "norm": (65,)}
"""``up`` is cut by rows, ``down`` by columns, ``head`` as a flat buffer; ``norm`` is the second rank's."""

ELEMENTS = sum(map(math.prod, SHAPES.values()))

CUTS = {"up": 13, "down": 29, "head": 999, "norm": 0}
"""Where the second rank's part begins."""


def _views(whole: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """What a rank has of ``whole``."""
    mine = {name: slice(cut, None) if rank else slice(cut) for name, cut in CUTS.items()}
    return {
        "up": whole["up"][mine["up"]],
        "down": whole["down"][:, mine["down"]],
        "head": whole["head"].reshape(-1)[mine["head"]],
        "norm": whole["norm"][mine["norm"]],
    }


def _parts(held: Mapping[str, torch.nn.Parameter], rank: int) -> dict[str, Any]:
    first = {name: rank * cut for name, cut in CUTS.items()}
    return {
        "up": Part(held["up"], SHAPES["up"], (first["up"], 0)),
        "down": Part(held["down"], SHAPES["down"], (0, first["down"])),
        "head": flat_parts(held["head"], SHAPES["head"], first["head"]),
        "norm": Part(held["norm"], SHAPES["norm"], (first["norm"],)),
    }


class Shard:
    """What one rank holds and trains."""

    def __init__(self, whole: Mapping[str, torch.Tensor], rank: int, **options: Any) -> None:
        self.held = {
            name: torch.nn.Parameter(view.clone().contiguous()) for name, view in _views(whole, rank).items()
        }
        matrices = [self.held[name] for name in ("up", "down", "head")]
        groups = [
            {"params": matrices, "weight_decay": 0.1},
            {"params": [self.held["norm"]], "weight_decay": 0.0, "lr": 3e-5},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), **options)
        self.random = torch.Generator().manual_seed(rank)
        self.parts = _parts(self.held, rank)

    def step(self) -> None:
        for param in self.held.values():
            param.grad = torch.randn(param.shape, generator=self.random)
        self.optimizer.step()


@dataclass(frozen=True)
class Trouble:
    """What goes wrong in a round: at the store of ``rank``, or ``odd``: it is asked for another step.

    ``taken``: the slot of the version goes to another record meanwhile. ``goes_on``: more steps are trained
    before the ranks publish again.
    """

    rank: int = 0
    outage: Outage | None = None
    odd: bool = False
    taken: bool = False
    goes_on: bool = False
    anchor: bool = False


def _outage(prefix: str, how: Any) -> Outage:
    return Outage(prefix, how, WRITES)


TROUBLES = (
    *(
        Trouble(rank, _outage(prefix, how), goes_on=goes_on)
        for rank, prefix in ((0, "prepared/"), (0, "log/"), (0, "packs/"), (1, "prepared/"), (1, "packs/"))
        for how, goes_on in (("refused", False), ("refused", True), ("lost", False))
    ),
    Trouble(1, odd=True),
    Trouble(1, odd=True, goes_on=True),
    *(
        Trouble(0, _outage("log/", "held"), taken=taken, goes_on=goes_on)
        for taken in (False, True)
        for goes_on in (False, True)
    ),
    Trouble(anchor=True),
    Trouble(1, _outage("packs/", "refused"), anchor=True),
    *[Trouble()] * 10,
)


@dataclass
class Run:
    """Both ranks, the stream they write, and an engine that follows. ``meant``: the bits of every step."""

    scene: Scene
    team: Team
    shards: list[Shard]
    engine: Engine
    taken: int = 0
    meant: dict[int, Bits] = field(default_factory=dict)

    @classmethod
    async def start(cls, **options: Any) -> Self:
        random = torch.Generator().manual_seed(5)
        whole = {name: torch.randn(shape, generator=random) * 0.02 for name, shape in SHAPES.items()}
        shards = [Shard(whole, rank, **options) for rank in range(2)]
        scene = await Scene.set(_published(shards), limit=600)
        team = Team(scene.model, [], [Rank(RankStore(scene.store)) for _ in shards])

        async def open_one(rank: int) -> None:
            team.ranks[rank].writer = await open_writer(
                team.ranks[rank].store,
                shards[rank].parts,
                rank=rank,
                writers=2,
                run="r1",
                cast=True,
                optimizer=shards[rank].optimizer,
                threads=1,
                timeout=8.0,
                pack_bytes=1000,
            )

        assert await team.all(open_one) == [None, None]
        assert [one.writer.version for one in team.ranks if one.writer is not None] == [0, 0]
        return cls(scene, team, shards, await Engine.start(scene.store, scene.model))

    def train(self, steps: int) -> None:
        for _ in range(steps):
            for shard in self.shards:
                shard.step()
        self.taken += steps
        self.meant[self.taken] = bits(_published(self.shards))

    async def publish(self, trouble: Trouble) -> list[int]:
        """Ask until both ranks have the version of this step; the ranks that the first try failed on."""
        among = [0, 1]
        failed: list[int] = []
        self.team.ranks[trouble.rank].store.outage = trouble.outage
        for attempt in range(5):
            odd = trouble.odd and attempt == 0

            async def one(rank: int, odd: bool = odd) -> Published:
                step = self.taken + (1000 if odd and rank == trouble.rank else 0)
                return await self.team.writer(rank).publish(step=step, anchor=trouble.anchor and rank == 0)

            outcomes = await self.team.all(one, among)
            among = [
                rank
                for rank, outcome in zip(among, outcomes, strict=True)
                if not isinstance(outcome, Published)
            ]
            if attempt == 0:
                failed = among
                await self._mend(trouble)
            if not among:
                return failed
        raise AssertionError(outcomes)

    async def _mend(self, trouble: Trouble) -> None:
        store = self.team.ranks[trouble.rank].store
        store.outage = None
        if trouble.taken:
            await append_foreign(self.scene.store)
        await store.deliver()
        if trouble.goes_on:
            self.train(3)

    async def certificates(self) -> list[Certificate]:
        """Of every delta so far."""
        records = [one for one in await self.scene.manifests() if isinstance(one, DeltaRecord)]
        found = [one.statistics.certificate for one in records]
        assert None not in found
        return [one for one in found if one is not None]

    async def check(self) -> None:
        """Every version so far is a step's weights, each of its elements changed, and an engine has it."""
        known = self.scene.history
        for record in await self.scene.manifests():
            if record.version in known:
                continue
            before, now = known[max(known)], self.meant[int(str(record.metadata["step"]))]
            known[record.version] = now
            if isinstance(record, DeltaRecord):
                assert record.statistics.changed == sum(
                    int((now[name] != before[name]).sum()) for name in now
                )
        await self.engine.reader.sync()
        assert self.engine.reader.version == max(known)
        assert differing(self.engine.tensors, known[max(known)]) == []
        assert differing(known[max(known)], bits(_published(self.shards))) == []


def _published(shards: list[Shard]) -> dict[str, np.ndarray[Any, Any]]:
    """BF16 of what all ranks hold."""
    whole = {name: np.zeros(shape, np.uint16) for name, shape in SHAPES.items()}
    for rank, shard in enumerate(shards):
        for name, view in _views(whole, rank).items():
            view[...] = shard.held[name].detach().bfloat16().view(torch.int16).numpy().view(np.uint16)
    return {name: bf16(tensor) for name, tensor in whole.items()}


@pytest.mark.parametrize(("seed", "kernel"), [(1, "fused"), (2, "foreach")])
@virtual
async def test_whatever_the_stores_do(seed: int, kernel: str, caplog: pytest.LogCaptureFixture) -> None:
    """Steps are inverted exactly, however often they are found anew, and whatever was trained meanwhile."""
    caplog.set_level(logging.INFO, "deltastore.detect")
    random = np.random.default_rng(seed)
    run = await Run.start(**{kernel: True})
    for number in random.permutation(len(TROUBLES)).tolist():
        steps = int(random.integers(1, 4))
        run.train(steps)
        failed = await run.publish(TROUBLES[number])
        assert failed == _who_fails(TROUBLES[number])
        await run.check()
        if TROUBLES[number] == Trouble():
            assert (await run.certificates())[-1].inverted == steps * ELEMENTS
    records = await run.scene.manifests()
    assert [one.kind for one in records].count("anchor") == 3
    assert {one.statistics.detector for one in records if one.kind == "delta"} == {"adamw-inversion"}
    assert len(records) == 1 + len(TROUBLES) + 2  # two landed after the ranks had gone on
    assert all(one.unexplained == 0 for one in await run.certificates())
    said = [record for record in caplog.records if record.name == "deltastore.detect"]
    assert len(said) >= 2 * (len(records) - 3)
    assert {record.levelname for record in said} == {"INFO"}
    await run.scene.check()


def _who_fails(trouble: Trouble) -> list[int]:
    """The ranks that do not have the version at once; a pack whose reply is lost is not looked for."""
    outage = trouble.outage
    settled = outage is None or (outage.how == "lost" and outage.prefix != "packs/")
    return [0, 1] if trouble.odd or not settled else []
