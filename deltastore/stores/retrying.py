"""When a request to a server is repeated, and for how long: the policy, and the loop that follows it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from deltastore.errors import StoreError

__all__ = ["Retrying", "TransientError", "outcome_unknown"]

_Result = TypeVar("_Result")


class TransientError(Exception):
    """An attempt failed in a way that another may not.

    ``unknown``: the server may have done, or may yet do, what it was asked. ``after``: seconds that it asked
    to be left alone.
    """

    def __init__(self, reason: str, *, unknown: bool, after: float = 0.0) -> None:
        super().__init__(reason)
        self.unknown = unknown
        self.after = after


@dataclass(frozen=True, slots=True)
class Retrying:
    """How long an operation is tried, in seconds: exponential backoff with full jitter until ``deadline``.

    ``connect`` and ``read`` bound how long one attempt waits for a connection and for the next bytes, in
    either direction; an attempt that moves ``n`` bytes ends after ``attempt + n / slowest`` at the latest.
    The deadline starts no attempt after it, and lets the one that runs end. Clock, sleep and chance are
    arguments for tests.
    """

    deadline: float = 60.0
    base: float = 0.05
    cap: float = 5.0
    connect: float = 5.0
    read: float = 30.0
    attempt: float = 60.0
    slowest: float = 256 * 1024
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = field(default_factory=lambda: random.Random().random)

    def patience(self, nbytes: int) -> float:
        """Seconds after which an attempt that moves this many bytes is given up."""
        return self.attempt + nbytes / self.slowest

    def pause(self, failed: int) -> float:
        """Seconds to wait after this many failed attempts."""
        return self.chance() * min(self.cap, self.base * 2.0 ** min(failed - 1, 30))

    async def run(self, action: str, key: str, attempt: Callable[[bool], Awaitable[_Result]]) -> _Result:
        """The result of the first attempt that does not raise :class:`TransientError`.

        ``attempt`` is told whether an earlier one may have been done after all. Raises what it raises else,
        and ``StoreError("store_failed")`` after the deadline.
        """
        until = self.clock() + self.deadline
        failed = 0
        unknown = False
        while True:
            try:
                return await attempt(unknown)
            except TransientError as error:
                failed += 1
                unknown = unknown or error.unknown
                pause = max(self.pause(failed), error.after)
                if self.clock() + pause > until:
                    raise _given_up(action, key, failed, str(error), unknown) from error.__cause__
            await self.sleep(pause)


def outcome_unknown(action: str, key: str) -> StoreError:
    """The error for a creation that is refused after an attempt whose outcome nobody knows."""
    message = (
        f"cannot {action} {key}: it exists, and an earlier attempt of this call may have made it; "
        "the outcome is unknown, so read the key back"
    )
    return StoreError("store_failed", message, where=key)


def _given_up(action: str, key: str, failed: int, reason: str, unknown: bool) -> StoreError:
    attempts = f"{failed} attempts" if failed > 1 else "1 attempt"
    doubtful = unknown and action in ("write", "create")
    doubt = "the outcome is unknown: read the key back, and " if doubtful else ""
    what = key or "the store"
    message = f"cannot {action} {what} after {attempts}: {reason}; {doubt}check the server and the network"
    return StoreError("store_failed", message, where=key or None)
