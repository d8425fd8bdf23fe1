"""Batches worked on side by side, and their results one after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from deltastore.detect.laid import Room

__all__ = ["in_order"]

Result = TypeVar("Result")


def in_order(
    work: Callable[[int, Room], Result], count: int, rooms: Sequence[Room]
) -> Generator[Future[Result]]:
    """The outcome of ``work(number, room)`` for each number below ``count``, in their order.

    One thread for each room, while this is iterated; with one room all is done in the caller's. A number
    always has the same room. At most two results for each room wait for the caller, who closes this: with
    fewer, threads stand still while he is kept from the interpreter's lock.
    """
    if len(rooms) == 1:
        for number in range(count):
            done: Future[Result] = Future()
            done.set_result(work(number, rooms[0]))
            yield done
        return

    def alone(number: int) -> Result:
        room = rooms[number % len(rooms)]
        with room.lock:
            return work(number, room)

    with ThreadPoolExecutor(len(rooms), thread_name_prefix="deltastore detect") as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for number in range(count):
                waiting.append(pool.submit(alone, number))
                if len(waiting) > 2 * len(rooms):
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            for future in waiting:
                future.cancel()
