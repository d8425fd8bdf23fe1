"""A process that asks a server which is not there, and exits with 1.

Its event loop is slow to let go of the threads that hand it an answer.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections.abc import Callable
from typing import TypeVarTuple

from deltastore.errors import StoreError
from deltastore.stores import open_store
from deltastore.stores.retrying import Retrying

Arguments = TypeVarTuple("Arguments")


class SlowLoop(asyncio.SelectorEventLoop):
    """Goes on as soon as it is woken, and returns to the thread that woke it much later."""

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Arguments], object],
        *arguments: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = super().call_soon_threadsafe(callback, *arguments, context=context)
        time.sleep(0.5)
        return handle


async def main() -> None:
    url = "s3+obstore://bucket?endpoint=http://127.0.0.1:1"
    async with open_store(url, retrying=Retrying(deadline=0.0)) as store:
        await store.get("k", limit=1)


if __name__ == "__main__":
    try:
        with asyncio.Runner(loop_factory=SlowLoop) as runner:
            runner.run(main())
    except StoreError:
        sys.exit(1)
