"""A process that has a value for its event loop, forks, and asks for one on both sides.

Prints what each side was given, and the values that were closed there by then.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from collections.abc import AsyncGenerator

from deltastore.stores.loops import PerLoop

numbers = itertools.count()
closed: list[int] = []


async def make() -> AsyncGenerator[int, None]:
    number = next(numbers)
    try:
        yield number
    finally:
        closed.append(number)


def main() -> None:
    loops = PerLoop(make)
    runner = asyncio.Runner()
    runner.run(loops.get())
    child = os.fork()
    if child != 0:
        status = os.waitpid(child, 0)[1]
        print("parent", os.waitstatus_to_exitcode(status), runner.run(loops.get()), closed)
        runner.close()
        return
    given = runner.run(loops.get())
    gc.collect()
    before = list(closed)
    runner.run(loops.close())
    print("child", given, before, closed, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
