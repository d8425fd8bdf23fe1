"""Batches worked on side by side: their results come in order, few wait, and no thread is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from deltastore.detect.in_order import in_order
from deltastore.detect.laid import Room

PATIENCE_SECONDS = 20.0
"""Nothing here takes so long, unless it never ends."""


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Generator[None]:
    """Whatever became of the work."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) - before == set()


def rooms_for(count: int) -> list[Room]:
    return [Room(8) for _ in range(count)]


class Gate:
    """Work that waits in threads until it may go on; numbers in the order in which they were begun."""

    def __init__(self, closed: set[int]) -> None:
        self.begun: list[int] = []
        self.closed = {number: threading.Event() for number in closed}
        self.changed = threading.Condition()

    def __call__(self, number: int, room: Room) -> int:
        assert room.lock.locked()
        with self.changed:
            self.begun.append(number)
            self.changed.notify_all()
        if number in self.closed:
            assert self.closed[number].wait(PATIENCE_SECONDS)
        return number * number

    def wait_for(self, what: Callable[[list[int]], bool]) -> None:
        """Until that is so of the numbers that were begun."""
        with self.changed:
            assert self.changed.wait_for(lambda: what(self.begun), PATIENCE_SECONDS), self.begun


@pytest.mark.parametrize("count", [0, 1, 2, 7, 50])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_results_come_in_order(count: int, threads: int) -> None:
    outcomes = in_order(lambda number, _: number * number, count, rooms_for(threads))
    assert [outcome.result() for outcome in outcomes] == [number * number for number in range(count)]


def test_the_first_comes_first_though_it_takes_longest() -> None:
    gate = Gate({0})
    with closing(in_order(gate, 10, rooms_for(2))) as outcomes:
        first = next(outcomes)
        gate.wait_for(lambda begun: 1 in begun)
        assert not first.done()
        gate.closed[0].set()
        results = [first.result(PATIENCE_SECONDS), *(outcome.result() for outcome in outcomes)]
    assert results == [number * number for number in range(10)]


@pytest.mark.parametrize("threads", [2, 3])
def test_at_most_two_for_each_room_wait(threads: int) -> None:
    """Beside the one that the caller has."""
    gate = Gate(set())
    with closing(in_order(gate, 100, rooms_for(threads))) as outcomes:
        for number, outcome in enumerate(outcomes):
            may_have = min(number + 1 + 2 * threads, 100)
            outcome.result(PATIENCE_SECONDS)
            gate.wait_for(lambda begun, all_of_them=may_have: len(begun) >= all_of_them)  # type: ignore[misc]
            assert sorted(gate.begun) == list(range(may_have))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_number_always_has_the_same_room_and_has_it_alone(threads: int) -> None:
    rooms = rooms_for(threads)
    inside = [0] * threads
    seen: dict[int, int] = {}

    def work(number: int, room: Room) -> None:
        place = rooms.index(room)
        inside[place] += 1
        assert inside[place] == 1
        seen[number] = place
        inside[place] -= 1

    for _ in range(2):
        for outcome in in_order(work, 40, rooms):
            outcome.result()
        assert seen == {number: number % threads for number in range(40)}


def test_one_room_is_the_callers_thread_and_nothing_is_done_ahead() -> None:
    done: list[int] = []

    def work(number: int, _: Room) -> int:
        assert threading.current_thread() is here
        done.append(number)
        return number

    here = threading.current_thread()
    for number, outcome in enumerate(in_order(work, 5, rooms_for(1))):
        assert outcome.done()
        assert done == list(range(number + 1))


def test_several_rooms_are_not_in_the_callers_thread() -> None:
    outcomes = in_order(lambda *_: threading.current_thread(), 30, rooms_for(3))
    threads = {outcome.result() for outcome in outcomes}
    assert 1 <= len(threads) <= 3
    assert all(thread.name.startswith("deltastore detect") for thread in threads)


class WorkError(Exception):
    """What went wrong in a test's work."""


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("bad", [0, 4, 29])
def test_what_a_worker_raises_reaches_who_waits_for_it(threads: int, bad: int) -> None:
    begun: list[int] = []

    def work(number: int, _: Room) -> int:
        begun.append(number)
        if number == bad:
            raise WorkError(number)
        return number

    results: list[int] = []
    with (
        pytest.raises(WorkError, match=str(bad)),
        closing(in_order(work, 30, rooms_for(threads))) as outcomes,
    ):
        results.extend(outcome.result() for outcome in outcomes)
    assert results == list(range(bad))
    assert len(begun) <= bad + 1 + 2 * threads


def test_rooms_are_free_again_after_an_error() -> None:
    rooms = rooms_for(2)

    def fail(number: int, _: Room) -> None:
        raise WorkError(number)

    for outcome in in_order(fail, 9, rooms):
        assert isinstance(outcome.exception(PATIENCE_SECONDS), WorkError)
    assert not any(room.lock.locked() for room in rooms)
    assert [outcome.result() for outcome in in_order(lambda number, _: number, 9, rooms)] == list(range(9))


def test_closed_early_what_was_not_begun_never_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is waited for: nobody works on memory that its owner has back."""
    gate, waits = Gate({0, 1}), threading.Event()
    shutdown = ThreadPoolExecutor.shutdown

    def shutting_down(*args: Any, **options: Any) -> None:
        waits.set()
        shutdown(*args, **options)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shutting_down)
    outcomes = in_order(gate, 100, rooms_for(2))
    first = next(outcomes)
    gate.wait_for(lambda begun: len(begun) == 2)
    closer = threading.Thread(target=outcomes.close)
    closer.start()
    assert waits.wait(PATIENCE_SECONDS)
    assert closer.is_alive()
    for closed in gate.closed.values():
        closed.set()
    closer.join(PATIENCE_SECONDS)
    assert not closer.is_alive()
    assert first.result(0) == 0
    assert sorted(gate.begun) == [0, 1]
    assert [*outcomes] == []


def test_closed_before_it_began() -> None:
    gate = Gate(set())
    outcomes = in_order(gate, 9, rooms_for(2))
    outcomes.close()
    assert gate.begun == []


def test_closed_while_the_last_ones_wait() -> None:
    gate = Gate(set())
    outcomes = in_order(gate, 4, rooms_for(3))
    assert next(outcomes).result(PATIENCE_SECONDS) == 0
    outcomes.close()
    assert set(gate.begun) <= set(range(4))
