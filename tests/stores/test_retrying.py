"""The policy of retries, without a server."""

from __future__ import annotations

import pytest

from deltastore.errors import StoreError
from deltastore.stores.retrying import Retrying, TransientError

from .patience import FakeTime


def failing(*errors: Exception) -> tuple[list[bool], object]:
    told: list[bool] = []
    left = list(errors)

    async def attempt(unknown: bool) -> str:
        told.append(unknown)
        if left:
            raise left.pop(0)
        return "done"

    return told, attempt


async def test_doubt_stays_once_it_is_there() -> None:
    time = FakeTime()
    refused, lost = TransientError("a", unknown=False), TransientError("b", unknown=True)
    told, attempt = failing(refused, lost, refused)
    assert await time.retrying().run("write", "k", attempt) == "done"  # type: ignore[arg-type]
    assert told == [False, False, True, True]


async def test_pauses_double_up_to_a_cap_and_the_deadline_ends_it() -> None:
    time = FakeTime()
    _, attempt = failing(*[TransientError("it is busy", unknown=True)] * 99)
    with pytest.raises(StoreError, match="after 18 attempts: it is busy; the outcome is unknown") as caught:
        await time.retrying().run("write", "k", attempt)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.where) == ("store_failed", "k")
    assert time.pauses[:9] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert 55 <= sum(time.pauses) <= 60


async def test_a_longer_pause_that_is_asked_for_is_kept() -> None:
    time = FakeTime()
    _, attempt = failing(TransientError("a", unknown=False, after=7))
    await time.retrying().run("read", "k", attempt)  # type: ignore[arg-type]
    assert time.pauses == [7]


async def test_a_pause_beyond_the_deadline_is_not_begun() -> None:
    time = FakeTime()
    _, attempt = failing(TransientError("a", unknown=False, after=3600))
    with pytest.raises(StoreError, match="after 1 attempt: a; check the server"):
        await time.retrying().run("read", "k", attempt)  # type: ignore[arg-type]
    assert time.pauses == []


def test_jitter_is_full() -> None:
    chances = iter([0.0, 0.5, 1.0])
    policy = Retrying(chance=lambda: next(chances))
    assert [policy.pause(3) for _ in range(3)] == [0.0, 0.1, 0.2]
    assert Retrying(chance=lambda: 1.0).pause(10**6) == 5.0
