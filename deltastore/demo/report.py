"""What an engine tells the demo after each version: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["Report"]


@dataclass(frozen=True, slots=True)
class Report:
    """One version that an engine has in memory.

    ``visible_at`` is when its weights were of that version, in seconds of ``time.monotonic()``, a clock that
    all processes of a machine share. ``pause_ms`` is how long they could not be used. ``sha256`` is the
    fingerprint of all their bits, ``tokens`` what the model then generated.
    """

    version: int
    visible_at: float
    pause_ms: float
    nbytes: int
    sha256: str
    tokens: list[int]

    def to_line(self) -> str:
        """The report as a line, with its end."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: bytes) -> Report:
        """The report on a line that ``to_line`` wrote."""
        return cls(**json.loads(line))
