"""Free ports on loopback."""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
# Below where Linux takes the local ports of outgoing connections from, also after adding 10000.
_FIRST, _LAST = 12_000, 22_000


def free_ports(count: int, *, beside: int = 0) -> tuple[int, ...]:
    """``count`` ports that nothing listens on; port + ``beside`` is free with each.

    Drawn by the system's own chance, so that test runs side by side draw others.
    """
    drawn = random.SystemRandom().sample(range(_FIRST, _LAST), 50 * count)
    free = [port for port in drawn if _is_free(port) and _is_free(port + beside)]
    if len(free) < count:
        raise RuntimeError(f"fewer than {count} free ports from {_FIRST} to {_LAST} on {LOOPBACK}")
    return tuple(free[:count])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
