"""Run a command line in this process, which gets a signal when an object of its store is first asked for.

python interrupted.py SIGNAL PREFIX ARGUMENT...
"""

from __future__ import annotations

import os
import signal
import sys

from deltastore.cli import main
from deltastore.stores import open as opening
from deltastore.stores.base import Store
from deltastore.stores.retrying import Retrying
from tests.doubles.stores import Call, WatchedStore


def signalling(inner: Store, name: str, prefix: str) -> Store:
    """The same store; a signal comes with the first request for such a key."""
    waiting = [signal.Signals[name]]

    def before(call: Call) -> None:
        if call.operation.startswith("get") and call.key.startswith(prefix) and waiting:
            os.kill(os.getpid(), waiting.pop())

    return WatchedStore(inner, before=before)


if __name__ == "__main__":
    name, prefix, *arguments = sys.argv[1:]
    plain = opening.open_store

    def open_store(url: str | os.PathLike[str], *, retrying: Retrying | None = None) -> Store:
        return signalling(plain(url, retrying=retrying), name, prefix)

    opening.open_store = open_store
    sys.exit(main(arguments))
