"""Rank 0 of several writers: opens attempts at versions, collects votes, and commits.

SPEC section "Several writers". Only the coordinator appends records, so only its word ends an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from deltastore.detect.changes import LiveDetector
from deltastore.errors import ConflictError
from deltastore.format.digest import MODULUS
from deltastore.format.limits import PACKS_PER_VERSION
from deltastore.format.records import Certificate, PackRef
from deltastore.format.table import TensorTable
from deltastore.format.votes import Attempt, Ending, Join, Vote, attempt_prefix
from deltastore.log import Manifest, new_nonce
from deltastore.stores.base import Store
from deltastore.writer.assembling import AssembledWeights
from deltastore.writer.attempts import aborted_key, attempt_key, objection_key, vote_problem
from deltastore.writer.committing import Opened, Wanted
from deltastore.writer.epoch import Epoch, choose_version
from deltastore.writer.exchange import create_sealed, fetch_of_writers, fetch_sealed, tell
from deltastore.writer.gathering import ending, ranks_text
from deltastore.writer.packing import Packing, Progress, Uploaded, upload_changes
from deltastore.writer.versions import commit_anchor, commit_delta
from deltastore.writer.waiting import found_within

__all__ = ["Coordinator"]


class Coordinator:
    """Commits what all writers of an epoch have voted for. ``joins``: the other writers by rank."""

    def __init__(
        self, store: Store, table: TensorTable, epoch: Epoch, joins: Mapping[int, Join], timeout: float
    ) -> None:
        self._store = store
        self._table = table
        self._epoch = epoch
        self._joins = dict(joins)
        self._timeout = timeout
        self._next = 0
        self._unsure: Attempt | None = None
        self._attempt: Attempt | None = None
        self._whole = False

    @property
    def number(self) -> int:
        """The epoch's number."""
        return self._epoch.number

    @property
    def in_doubt(self) -> bool:
        """Whether the last version may have been committed, or may be yet, without a report."""
        return self._epoch.in_doubt

    async def settle(self) -> Manifest | None:
        """The manifest in doubt if it is committed; else the others are told that it never will be."""
        landed = await self._epoch.settle()
        if landed is not None:
            self._whole = False
        elif self._attempt is not None:
            lost = ConflictError("aborted", "another record took the slot of this version")
            await self._abort(self._attempt, lost)
        return landed

    async def open(self, wanted: Wanted, base: Manifest | None) -> Opened:
        """Open an attempt: the other writers see it, and vote."""
        await self._epoch.catch_up()
        version = choose_version(self._epoch.newest_version, wanted.version)
        await self._close_unsure()
        # Whoever may have seen an attempt at a whole version holds no other until that is committed.
        self._whole = self._whole or wanted.whole
        onto = None if self._whole else base
        attempt = Attempt.seal_new(
            epoch=self._epoch.number,
            epoch_nonce=self._epoch.nonce,
            attempt=self._next,
            nonce=new_nonce(),
            version=version,
            base=None if onto is None else onto.version,
            parent=None if onto is None else onto.sha256,
            table=self._table.sha256,
            step=wanted.step,
        )
        self._unsure = attempt
        await self._create(attempt)
        self._unsure, self._attempt = None, attempt
        return Opened(version, attempt.nonce, onto)

    async def _close_unsure(self) -> None:
        """An attempt that may or may not have been opened is opened, and aborted: numbers have no gaps."""
        if self._unsure is not None:
            lost = self._unsure
            await self._create(lost)
            self._unsure = None
            await self._abort(lost, ConflictError("aborted", "the attempt was given up while it was opened"))

    async def _create(self, attempt: Attempt) -> None:
        if not await create_sealed(self._store, attempt_key(attempt.epoch, attempt.attempt), attempt):
            raise ConflictError(
                "aborted",
                f"attempt {attempt.attempt} of epoch {attempt.epoch} was opened by another process: "
                "stop one of the two coordinators",
            )
        self._next = attempt.attempt + 1

    async def commit(self, opened: Opened, wanted: Wanted, uploaded: Uploaded, detector: str) -> Manifest:
        """Wait for all votes, and append the manifest of their packs together with those of rank 0."""
        votes = await self._collect()
        return await commit_delta(
            self._epoch,
            self._table,
            opened,
            packs=_all_packs(uploaded, votes),
            changed=uploaded.changed + sum(vote.changed for vote in votes),
            difference=_all_differences(uploaded, votes),
            detector=_all_names(detector, votes),
            certificate=_all_found(uploaded, votes),
            writers=1 + len(votes),
            metadata=wanted.metadata,
        )

    async def commit_whole(
        self,
        opened: Opened,
        wanted: Wanted,
        detector: LiveDetector,
        packing: Packing,
        progress: Progress | None,
    ) -> Manifest:
        """Put together what all writers have uploaded, store it as an anchor, and append its manifest."""
        uploaded = await upload_changes(
            self._store, self._table, detector.everything(), opened.version, opened.nonce, packing=packing
        )
        votes = await self._collect()
        weights = await AssembledWeights.open(
            self._store, self._table, opened.version, _all_packs(uploaded, votes)
        )
        if weights.digest != _all_differences(uploaded, votes):
            raise ConflictError("aborted", "the digests that writers voted with are not those of their packs")
        try:
            record = await commit_anchor(
                self._store,
                self._epoch,
                weights,
                opened,
                digest=weights.digest,
                metadata=wanted.metadata,
                progress=progress,
            )
        finally:
            await weights.close()
        self._whole = False
        return record

    async def give_up(self, opened: Opened, error: BaseException) -> None:  # noqa: ARG002
        """Tell the others, unless the version may be committed."""
        if self._attempt is not None and not self.in_doubt:
            await self._abort(self._attempt, error)

    async def _abort(self, attempt: Attempt, error: BaseException) -> None:
        self._attempt = None
        await tell(self._store, aborted_key(attempt.epoch, attempt.attempt), ending(0, error))

    async def _collect(self) -> list[Vote]:
        """The votes of all other writers, by rank; ``ConflictError("aborted")`` names the rank at fault."""
        attempt = self._attempt
        if attempt is None:
            raise ValueError("no attempt is open")
        prefix = attempt_prefix(attempt.epoch, attempt.attempt)
        missing = set(self._joins)
        votes: dict[int, Vote] = {}

        async def look(_tick: int) -> list[Vote] | None:
            found, objection = await asyncio.gather(
                fetch_of_writers(self._store, prefix, missing, Vote),
                fetch_sealed(self._store, objection_key(attempt.epoch, attempt.attempt), Ending),
            )
            if objection is not None:
                raise ConflictError("aborted", f"rank {objection.rank} cannot vote: {objection.reason}")
            for rank, vote in found.items():
                problem = vote_problem(attempt, self._joins[rank], vote)
                if problem is not None:
                    raise ConflictError("aborted", f"the vote of rank {rank} {problem}")
            votes.update(found)
            missing.difference_update(found)
            return None if missing else [votes[rank] for rank in sorted(votes)]

        complete = await found_within(self._timeout if missing else 0, look)
        if complete is not None:
            return complete
        raise ConflictError(
            "aborted",
            f"{ranks_text(missing)} did not vote for version {attempt.version} within {self._timeout:g} s; "
            "nothing was published: publish again, from all ranks",
        )


def _all_packs(mine: Uploaded, votes: Sequence[Vote]) -> list[PackRef]:
    packs = [*mine.packs, *(pack for vote in votes for pack in vote.packs)]
    if len(packs) > PACKS_PER_VERSION:
        message = f"all writers together have {len(packs)} packs, above {PACKS_PER_VERSION}: make larger ones"
        raise ConflictError("aborted", message)
    return packs


def _all_differences(mine: Uploaded, votes: Sequence[Vote]) -> int:
    return (mine.difference + sum(int(vote.difference, 16) for vote in votes)) % MODULUS


def _all_found(mine: Uploaded, votes: Sequence[Vote]) -> Certificate | None:
    found = [one for one in (mine.certificate, *(vote.certificate for vote in votes)) if one is not None]
    return (
        Certificate(**{name: sum(getattr(one, name) for one in found) for name in Certificate.model_fields})
        if found
        else None
    )


def _all_names(mine: str, votes: Sequence[Vote]) -> str:
    return "+".join(sorted({mine, *(vote.detector for vote in votes)}))
