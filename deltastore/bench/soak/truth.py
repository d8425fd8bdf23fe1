"""What the bits of every version are, known by means other than the stream's own digests."""

from __future__ import annotations

from typing import Final

from deltastore.bench.soak.model import Tensors, fingerprint
from deltastore.bench.soak.tally import Tally
from deltastore.format.records import AnchorRecord, DeltaRecord, Record
from deltastore.log import Log
from deltastore.stores.base import Store

__all__ = ["TOKEN", "Truth"]

TOKEN: Final = "soak"
"""The metadata key under which a version carries the token of the publish that made it."""


class Truth:
    """The fingerprint of each model before it was published, and which of them became which version.

    A publish whose outcome nobody was told is no gap: if its version stands in the log, its token does.
    ``store`` is one without faults.
    """

    def __init__(self, store: Store, tally: Tally) -> None:
        self._log = Log(store)
        self._tally = tally
        self._fingerprints: dict[str, str] = {}
        self._last: Record | None = None
        self._epoch = 0
        self.tokens: dict[int, str] = {}

    def note(self, model: Tensors) -> str:
        """The token for a publish of the model as it is now."""
        token = str(len(self._fingerprints))
        self._fingerprints[token] = fingerprint(model)
        return token

    async def published(self, version: int, token: str) -> None:
        """A publish said that its version is committed: it must stand in the log, and be that very one."""
        self._tally.published += 1
        await self.learn()
        if self.tokens.get(version) != token:
            self._problem(f"version {version} was reported as committed, but the log has another or none")

    async def compare(self, version: int, tensors: Tensors, who: str) -> None:
        """Somebody says to hold ``version`` in these tensors."""
        await self.learn()
        self._tally.compared += 1
        token = self.tokens.get(version)
        if token is None:
            self._problem(f"{who} says to hold version {version}, which the log does not have")
        elif self._fingerprints[token] != fingerprint(tensors):
            self._problem(f"{who} says to hold version {version}, but its bits are others")

    async def learn(self) -> None:
        """Read what was appended to the log since the last time."""
        if self._last is None:
            self._observe(await self._log.birth())
        while self._last is not None:
            record = await self._log.after(self._last)
            if record is None:
                return
            self._observe(record)

    def _observe(self, record: Record) -> None:
        if self._last is not None and record.slot <= self._last.slot:
            return  # another task learned it meanwhile
        self._last = record
        self._tally.records += 1
        if not isinstance(record, AnchorRecord | DeltaRecord):
            self._epoch = max(self._epoch, record.epoch)
            return
        self._tally.versions += 1
        if record.epoch != self._epoch:
            self._problem(f"slot {record.slot} is of epoch {record.epoch}, which epoch {self._epoch} fences")
        if self.tokens and record.version <= max(self.tokens):
            self._problem(f"version {record.version} follows version {max(self.tokens)}")
        token = str(record.metadata.get(TOKEN))
        if token not in self._fingerprints or token in self.tokens.values():
            self._problem(f"version {record.version} has the token {token}, of no publish or of two versions")
        self.tokens[record.version] = token

    def _problem(self, text: str) -> None:
        self._tally.problems.append(text)
