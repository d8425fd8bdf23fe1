"""From live tensors to a writer: which version they are, and the epoch that begins with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from deltastore.detect.changes import LiveDetector
from deltastore.detect.external import External
from deltastore.detect.inverse import AdamWInverse
from deltastore.detect.snapshot import Snapshot
from deltastore.errors import InputError, NotFoundError
from deltastore.format.digest import digest_text
from deltastore.format.records import Record, check_label
from deltastore.format.table import TensorTable
from deltastore.format.votes import claim_key
from deltastore.kernels.threads import chosen_threads
from deltastore.layout.cutting import plain_table
from deltastore.layout.laid_parts import parts_of, watched
from deltastore.layout.live import LiveWeights, live_specs
from deltastore.layout.live_parts import LiveParts, PartTensors, is_in_parts
from deltastore.layout.memory import check_named
from deltastore.layout.pieces import Layout
from deltastore.log import Log, Manifest
from deltastore.replay import read_table
from deltastore.stores.base import Store
from deltastore.writer.alone import Alone
from deltastore.writer.committing import Committing
from deltastore.writer.coordinator import Coordinator
from deltastore.writer.epoch import Epoch, find_resumed
from deltastore.writer.fitness import check_fit
from deltastore.writer.gathering import (
    Holding,
    Team,
    call_writers,
    check_whole,
    claim_of,
    join_writers,
    refuse_call,
)
from deltastore.writer.member import Member
from deltastore.writer.packing import PACK_TARGET_BYTES, UPLOADS, Packing
from deltastore.writer.publishing import AsyncWriter

__all__ = ["TIMEOUT_SECONDS", "DetectorName", "open_writer"]

DetectorName = Literal["snapshot", "external"]
"""How changes are found where no optimizer is given."""

TIMEOUT_SECONDS: Final = 600.0
"""How long one of several writers waits for the others."""


async def open_writer(
    store: Store,
    tensors: PartTensors,
    *,
    layout: Layout | None = None,
    resumes: int | None = None,
    cast: bool = False,
    label: str = "",
    pack_bytes: int = PACK_TARGET_BYTES,
    uploads: int = UPLOADS,
    threads: int | None = None,
    rank: int = 0,
    writers: int = 1,
    run: str = "",
    timeout: float = TIMEOUT_SECONDS,  # noqa: ASYNC109
    optimizer: Any = None,
    detector: DetectorName = "snapshot",
) -> AsyncWriter:
    """Begin a new epoch of the stream in ``store`` and fence every earlier writer.

    ``tensors``: live tensors by checkpoint name, all that the stream has; or ``Part`` s of them. ``layout``:
    they are parameters instead, named, fused and cut as it says; see ``layout.laid_parts.parts_of``. What is
    said of tensors elsewhere, such as marks, is of the parts that this gives, in its order.
    ``cast``: F32 tensors may stand for BF16 or F16 ones. The version whose digest equals that of ``tensors``
    is the first base; where none does, the first version will be an anchor. ``resumes`` insists on one
    version: ``InputError("bad_argument")`` when the tensors are not its weights. ``pack_bytes``: a pack is
    closed once it is that large; ``uploads``: as many are put at once. ``threads``: how many may compare and
    encode at once; None: one for each processor, but at most 8. ``optimizer``: see ``AsyncWriter.attach``;
    given here, no copy of the weights is ever made. ``detector="external"``: neither; ``AsyncWriter.mark``
    says what changes.

    Several processes that together hold each element of the model exactly once call this with ``writers``,
    a ``rank`` each, and a ``run`` that names this start of the trainer; they find each other through the
    store, within ``timeout`` seconds. Only rank 0 may give ``resumes``.

    Raises ``NotFoundError("no_stream")``, ``StoreError("store_unfit")``, ``InputError``; with several writers
    ``ConflictError("aborted")``, which names the rank that is missing or at fault.
    """
    team = Team(rank, writers, run, timeout)
    packing = Packing(pack_bytes, uploads, writers)
    workers = chosen_threads(threads)
    check_label(label)
    check_named(tensors)
    given: PartTensors = tensors if layout is None else parts_of(layout, tensors, cast=cast)
    log = Log(store)
    tip = await log.tip()
    newest = await log.manifest_before(tip)
    table = await _table(store, newest, given, cast, layout if writers == 1 else None)
    if layout is not None:
        live: LiveWeights | LiveParts = _laid(table, layout, given, tensors, cast)
    elif writers > 1 or any(map(is_in_parts, tensors.values())):
        live = LiveParts(table, tensors, cast=cast)
    else:
        live = LiveWeights(table, tensors, cast=cast)
    finder = await _detector(live, optimizer, detector, workers)
    opening = _Opening(store, log, tip, table, label, resumes, _Means(live, finder, packing, workers))
    try:
        if isinstance(live, LiveParts) and writers > 1:
            return await opening.several(live, team)
        return await opening.alone()
    except BaseException:
        finder.close()
        raise


async def _detector(
    live: LiveWeights | LiveParts, optimizer: Any, name: DetectorName, threads: int
) -> LiveDetector:
    if name not in ("snapshot", "external") or (name == "external" and optimizer is not None):
        raise InputError(
            "bad_argument", f"detector is 'snapshot', or 'external' without an optimizer; not {name!r:.80}"
        )
    parts = live if isinstance(live, LiveParts) else live.parts
    if name == "external":
        return External(parts, threads=threads)
    if optimizer is None:
        return await Snapshot.of(live, threads=threads)
    inverse = AdamWInverse(parts, threads=threads)
    inverse.attach(optimizer)
    return inverse


def _laid(
    table: TensorTable, layout: Layout, parts: PartTensors, params: PartTensors, cast: bool
) -> LiveParts:
    """``params`` as ``parts`` of them; where the stream has a tensor that is an alias, it is held too."""
    aliases = {name: parts[to] for name, to in layout.aliases.items() if name in table.places and to in parts}
    live = LiveParts(table, {**parts, **aliases}, cast=cast)
    for name, tensor in watched(params):
        live.watch(name, tensor)
    return live


async def _table(
    store: Store, newest: Manifest | None, tensors: PartTensors, cast: bool, layout: Layout | None
) -> TensorTable:
    if newest is not None:
        return await read_table(store, newest.table)
    if layout is not None:
        return plain_table(layout.tensors)
    if any(map(is_in_parts, tensors.values())):
        raise NotFoundError(
            "no_version",
            f"{store.url} has no version yet, and parts do not make the first one: "
            "make the stream with 'deltastore init', or from whole tensors",
        )
    return plain_table(live_specs(tensors, cast="BF16" if cast else None))


@dataclass(frozen=True, slots=True)
class _Means:
    """What a writer publishes, and with what."""

    live: LiveWeights | LiveParts
    detector: LiveDetector
    packing: Packing
    threads: int


class _Opening:
    """A writer that is about to begin an epoch, or to join one."""

    def __init__(
        self,
        store: Store,
        log: Log,
        tip: Record,
        table: TensorTable,
        label: str,
        resumes: int | None,
        means: _Means,
    ) -> None:
        self._means = means
        self._store = store
        self._log = log
        self._tip = tip
        self._table = table
        self._label = label
        self._resumes = resumes

    async def base(self, digest: int) -> Manifest | None:
        """The version whose weights have ``digest``: the newest such, or the one that is insisted on."""
        text = digest_text(digest)
        tip = await self._log.latest(self._tip)  # copying a model takes a while
        base = await find_resumed(self._log, tip, self._table.sha256, text)
        if self._resumes is None or (base is not None and base.version == self._resumes):
            return base
        record = await self._log.manifest(self._resumes)
        if (record.table, record.digest) != (self._table.sha256, text):
            raise InputError(
                "bad_argument",
                f"the tensors given are not the weights of version {self._resumes}: their digest is {text}, "
                f"its is {record.digest}; load that version first, or leave resumes out",
            )
        return record

    def _writer(self, committing: Committing, base: Manifest | None) -> AsyncWriter:
        means = self._means
        return AsyncWriter(
            self._store, committing, means.live, means.detector, base, means.packing, means.threads
        )

    async def _holding(self, live: LiveParts) -> Holding:
        return Holding(claim_of(self._table, live.boxes), await self._means.detector.digest(), self._label)

    async def alone(self) -> AsyncWriter:
        """Begin an epoch as its only writer."""
        if isinstance(self._means.live, LiveParts):
            check_whole(self._table, {0: (await self._holding(self._means.live)).claim})
        await check_fit(self._store)
        base = await self.base(await self._means.detector.digest())
        resumed = None if base is None else base.version
        epoch = await Epoch.begin(self._log, resumes=resumed, label=self._label, last=self._tip)
        return self._writer(Alone(self._store, self._table, epoch), base)

    async def several(self, live: LiveParts, team: Team) -> AsyncWriter:
        """Become rank 0 of several writers, or another of them."""
        mine = await self._holding(live)
        if team.rank == 0:
            return await self._coordinate(team, mine)
        if self._resumes is not None:
            raise InputError("bad_argument", "resumes is for rank 0 to say: leave it out on the others")
        record, join = await join_writers(self._store, self._log, team, mine)
        base = None if record.resumes is None else await self._log.manifest(record.resumes, last=record)
        member = Member(self._store, self._table, record, join, team.patience)
        return self._writer(member, base)

    async def _coordinate(self, team: Team, mine: Holding) -> AsyncWriter:
        await check_fit(self._store)
        await self._store.put(claim_key(mine.claim.sha256), mine.claim.to_bytes())
        gathered = await call_writers(self._store, self._table, team, mine)
        try:
            base = await self.base(gathered.digest)
            epoch = await Epoch.begin(
                self._log,
                resumes=None if base is None else base.version,
                label=self._label,
                nonce=gathered.call.nonce,
                last=self._tip,
            )
        except BaseException as error:
            await refuse_call(self._store, gathered.call, error)
            raise
        coordinator = Coordinator(self._store, self._table, epoch, gathered.joins, team.timeout)
        return self._writer(coordinator, base)
