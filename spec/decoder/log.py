"""SPEC 11: the log, and the manifests that it holds."""

from __future__ import annotations

from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from spec.decoder.records import decode_record, record_key
from spec.decoder.refusal import need
from spec.decoder.storage import at, get, is_there


class State:
    """DS051, DS053 to DS055, DS060: what the records so far say of the next one."""

    def __init__(self) -> None:
        self.manifests: dict[int, dict[str, Any]] = {}
        self.slots = 0
        self._base: dict[str, Any] = {}
        self._parent: str | None = None
        self._epoch, self._last = 0, -1

    def take(self, record: dict[str, Any]) -> None:
        """The next record."""
        need(record["parent"] == self._parent, "bad_chain", "DS051", "the parent's hash")
        self._parent, kind = record["sha256"], record["kind"]
        self.slots += 1
        self._epoch += kind == "epoch"
        need(record["epoch"] == self._epoch, "bad_chain", "DS053", "the epoch")
        if kind == "epoch":
            resumed = record["resumes"]
            there = resumed is None or resumed in self.manifests
            need(there, "bad_chain", "DS054", "it resumes a version that the log does not have")
            self._base = self.manifests.get(resumed, {})
        if kind in ("delta", "anchor"):
            need(self._epoch > 0, "bad_chain", "DS055", "a version before any epoch")
            need(record["version"] > self._last, "bad_chain", "DS054", "the version is not above the last")
            if kind == "delta":
                due = self._base.get("version") == record["base"]
                need(due, "bad_chain", "DS055", "the base is not the version that the epoch is at")
                same = self._base["table"] == record["table"]
                need(same, "bad_chain", "DS060", "another table than that of the base")
            self._last, self._base = record["version"], record
            self.manifests[self._last] = record


class Read(NamedTuple):
    """A log as far as it goes: the manifests by version, and the first slot that is absent."""

    manifests: dict[int, dict[str, Any]]
    slots: int


def read_log(root: Path) -> Read:
    """The log of a stream, every record of it checked; `no_stream` where slot 0 is absent."""
    state = State()
    for slot in takewhile(lambda slot: slot == 0 or is_there(root, record_key(slot)), count()):
        with at(record_key(slot)):
            state.take(decode_record(get(root, record_key(slot), 4 * 2**20, absent="no_stream"), slot))
    return Read(state.manifests, state.slots)
