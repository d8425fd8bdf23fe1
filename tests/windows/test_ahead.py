"""Fetching ahead: in order, and never more than there is room for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from deltastore.windows.ahead import by_weight


@pytest.mark.parametrize("seed", range(6))
async def test_neither_too_many_nor_too_much(seed: int) -> None:
    chance = random.Random(seed)
    weights = [chance.choice((0, 1, 7, 30, 150)) for _ in range(60)]
    budget, most = 100, chance.randint(1, 6)
    begun: list[int] = []
    given = 0

    async def numbers() -> AsyncGenerator[int, None]:
        for number in range(len(weights)):
            yield number

    async def fetch(number: int) -> int:
        begun.append(number)
        for _ in range(chance.randint(0, 3)):
            await asyncio.sleep(0)
        return number

    async with aclosing(by_weight(numbers(), fetch, weights.__getitem__, budget=budget, most=most)) as values:
        async for value in values:
            assert value == given
            await asyncio.sleep(0)
            held = begun[given:]
            assert len(held) <= most
            assert len(held) == 1 or sum(weights[number] for number in held) <= budget
            given += 1
    assert begun == list(range(len(weights)))


async def test_what_is_on_its_way_is_given_up() -> None:
    stopped: list[int] = []

    async def numbers() -> AsyncGenerator[int, None]:
        for number in range(9):
            yield number

    async def fetch(number: int) -> int:
        try:
            await asyncio.sleep(0 if number == 0 else 3600)
        except asyncio.CancelledError:
            stopped.append(number)
            raise
        return number

    async with aclosing(by_weight(numbers(), fetch, lambda _: 1, budget=3, most=9)) as values:
        assert await anext(values) == 0
        await asyncio.sleep(0)
    assert stopped == [1, 2]
