"""Any rank but 0 of several writers: votes for attempts that rank 0 opens, and learns what came of them.

SPEC section "Several writers". A member appends nothing; what stands in the log is the outcome.
"""

from __future__ import annotations

from deltastore.detect.changes import LiveDetector
from deltastore.errors import ConflictError, FencedError
from deltastore.format.digest import digest_text
from deltastore.format.records import AnchorRecord, DeltaRecord, EpochRecord, Record
from deltastore.format.table import TensorTable
from deltastore.format.votes import Attempt, Ending, Join, Vote
from deltastore.log import Log, Manifest, describe
from deltastore.stores.base import Store
from deltastore.writer.attempts import aborted_key, attempt_key, objection_key, vote_key
from deltastore.writer.committing import Opened, Wanted
from deltastore.writer.epoch import refuse_newer_epoch
from deltastore.writer.exchange import create_sealed, fetch_sealed, tell
from deltastore.writer.gathering import ending
from deltastore.writer.packing import Packing, Progress, Uploaded, upload_changes
from deltastore.writer.waiting import found_within

__all__ = ["Member"]


class Member:
    """Votes in the epoch of ``record`` as the writer that joined it with ``join``."""

    def __init__(
        self, store: Store, table: TensorTable, record: EpochRecord, join: Join, timeout: float
    ) -> None:
        self._store = store
        self._log = Log(store)
        self._table = table
        self._epoch = record
        self._join = join
        self._timeout = timeout
        self._last: Record = record
        self._next = 0
        self._attempt: Attempt | None = None
        self._voted = False

    @property
    def number(self) -> int:
        """The epoch's number."""
        return self._epoch.epoch

    @property
    def in_doubt(self) -> bool:
        """Whether a version that this writer voted for may be committed, or may be yet."""
        return self._voted

    async def open(self, wanted: Wanted, base: Manifest | None) -> Opened:
        """Wait for the next attempt that is not aborted.

        Raises ``FencedError``, and ``ConflictError("aborted")`` when none comes in time or it contradicts
        what this writer holds or was asked for; the coordinator is told that.
        """
        attempt = await self._next_attempt()
        self._attempt = attempt
        problem = self._problem(attempt, wanted, base)
        if problem is not None:
            error = ConflictError("aborted", f"rank {self._join.rank} {problem}")
            await self._object(error)
            raise error
        return Opened(attempt.version, attempt.nonce, None if attempt.base is None else base)

    async def _next_attempt(self) -> Attempt:
        async def look(tick: int) -> Attempt | None:
            attempt = await self._find(self._next)
            while attempt is not None:
                if await self._aborted(attempt) is None:
                    return attempt
                self._next += 1
                attempt = await self._find(self._next)
            if tick % 4 == 0:
                await self._read_log(None)
            return None

        opened = await found_within(self._timeout, look)
        if opened is not None:
            return opened
        raise ConflictError(
            "aborted",
            f"rank 0 opened no attempt at a version within {self._timeout:g} s: see whether it runs, "
            "then publish again, from all ranks",
        )

    def _problem(self, attempt: Attempt, wanted: Wanted, base: Manifest | None) -> str | None:
        parent = None if base is None else base.sha256
        if attempt.epoch_nonce != self._epoch.nonce or attempt.table != self._table.sha256:
            return "joined another epoch, or with another tensor table"
        if attempt.base is not None and attempt.parent != parent:
            standing = "no version" if base is None else f"version {base.version}"
            return f"holds {standing}, and the attempt builds on version {attempt.base}"
        if wanted.step is not None and wanted.step != attempt.step:
            return f"is at step {wanted.step}, and the attempt is of step {attempt.step}"
        if wanted.version is not None and wanted.version != attempt.version:
            return f"was asked for version {wanted.version}, and the attempt is at {attempt.version}"
        return None

    async def commit(self, opened: Opened, wanted: Wanted, uploaded: Uploaded, detector: str) -> Manifest:
        """Vote, and wait for the outcome."""
        attempt = self._attempt
        if attempt is None:
            raise ValueError("no attempt is open")
        vote = Vote.seal_new(
            attempt=attempt.sha256,
            rank=self._join.rank,
            nonce=self._join.nonce,
            epoch_nonce=self._epoch.nonce,
            parent=None if opened.base is None else opened.base.sha256,
            step=wanted.step,
            claim=self._join.claim,
            packs=tuple(uploaded.packs),
            changed=uploaded.changed,
            difference=digest_text(uploaded.difference),
            detector=detector,
            certificate=uploaded.certificate,
        )
        self._voted = True
        if not await create_sealed(
            self._store, vote_key(attempt.epoch, attempt.attempt, self._join.rank), vote
        ):
            error = ConflictError("aborted", f"another process voted as rank {self._join.rank}")
            await self._object(error)
            self._voted = False
            raise error
        return await self._outcome(attempt)

    async def commit_whole(
        self,
        opened: Opened,
        wanted: Wanted,
        detector: LiveDetector,
        packing: Packing,
        progress: Progress | None,
    ) -> Manifest:
        """Upload everything that this writer holds, vote, and wait for the outcome."""
        uploaded = await upload_changes(
            self._store,
            self._table,
            detector.everything(),
            opened.version,
            opened.nonce,
            packing=packing,
            progress=progress,
        )
        return await self.commit(opened, wanted, uploaded, "none")

    async def settle(self) -> Manifest | None:
        """The manifest of the attempt voted for if it is committed; None if it never will be."""
        attempt = self._attempt
        if not self._voted or attempt is None:
            return None
        try:
            return await self._outcome(attempt)
        except ConflictError as error:
            if error.code != "aborted":
                raise
            return None

    async def _outcome(self, attempt: Attempt) -> Manifest:
        """The manifest, once it stands in the log. ``FencedError``, ``ConflictError("aborted")``.

        ``ConflictError("undecided")`` when nothing is known in time: the writer stays in doubt.
        """

        async def look(tick: int) -> Manifest | None:
            # Read before the log: what is decided then stands in the log already.
            verdict = await self._verdict(attempt) if tick % 4 == 3 else None
            landed = await self._read_log(attempt)
            if landed is None and verdict is not None:
                self._decided(attempt)
                raise ConflictError(
                    "aborted", f"version {attempt.version} was not published: {verdict}; publish again"
                )
            return landed

        outcome: Manifest | None = await found_within(self._timeout, look)
        if outcome is not None:
            self._decided(attempt)
            return outcome
        raise ConflictError(
            "undecided",
            f"rank 0 has not said within {self._timeout:g} s whether version {attempt.version} is committed; "
            "the next call finds out",
        )

    async def _verdict(self, attempt: Attempt) -> str | None:
        """Why the attempt is over, if it is: aborted, or followed by another."""
        reason = await self._aborted(attempt)
        if reason is None and await self._find(attempt.attempt + 1) is not None:
            return "a newer attempt was opened"
        return reason

    async def _read_log(self, attempt: Attempt | None) -> Manifest | None:
        """Read on in the log; the manifest of ``attempt`` if it is among what was read."""
        async for record in self._log.newest_after(self._last):
            try:
                refuse_newer_epoch(record, self._epoch.epoch)
            except FencedError:
                self._voted = False  # what this epoch did not commit by now, it never will
                raise
            self._last = record
            if isinstance(record, AnchorRecord | DeltaRecord):
                if attempt is None or record.nonce != attempt.nonce:
                    raise ConflictError(
                        "version_taken",
                        f"slot {record.slot} holds {describe(record)}, for which rank {self._join.rank} did "
                        "not vote: open a new writer",
                    )
                return record
        return None

    async def give_up(self, opened: Opened, error: BaseException) -> None:  # noqa: ARG002
        """Tell the coordinator, unless it has the vote already."""
        if self._attempt is not None and not self._voted:
            await self._object(error)

    async def _object(self, error: BaseException) -> None:
        """Ask the coordinator to abort; this writer takes no further part in the attempt."""
        attempt = self._attempt
        if attempt is None:
            return
        self._decided(attempt)
        await tell(self._store, objection_key(attempt.epoch, attempt.attempt), ending(self._join.rank, error))

    def _decided(self, attempt: Attempt) -> None:
        self._attempt, self._voted, self._next = None, False, attempt.attempt + 1

    async def _find(self, number: int) -> Attempt | None:
        return await fetch_sealed(self._store, attempt_key(self._epoch.epoch, number), Attempt)

    async def _aborted(self, attempt: Attempt) -> str | None:
        found = await fetch_sealed(self._store, aborted_key(attempt.epoch, attempt.attempt), Ending)
        return None if found is None else found.reason
