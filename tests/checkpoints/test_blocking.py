"""File work in a thread ends before the call does."""

from __future__ import annotations

import asyncio
import threading

import pytest

from deltastore.checkpoints.blocking import blocking


async def test_results_and_errors_come_back() -> None:
    assert await blocking(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await blocking(lambda: 1 // 0)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_call_waits_for_the_work(fails: bool) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(60)
        done.set()
        if fails:
            raise OSError("nobody will see this")

    call = asyncio.create_task(blocking(work))
    assert await asyncio.to_thread(begun.wait, 60)
    call.cancel()
    await asyncio.sleep(0.01)
    call.cancel()
    await asyncio.sleep(0.01)
    assert not call.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert done.is_set()
