"""Connections that no further attempt will make: what is wrong, and what to correct."""

from __future__ import annotations

from deltastore.errors import StoreError

__all__ = ["UnreachableError", "no_handshake", "no_host"]


class UnreachableError(Exception):
    """There is no way to this server as it is named; the text says why, and what to check."""

    def during(self, action: str, key: str) -> StoreError:
        """The error of the operation that found out."""
        message = f"cannot {action} {key or 'the store'}: {self}"
        return StoreError("store_failed", message, where=key or None)


def no_handshake(reason: str) -> UnreachableError:
    """What is at the address does not speak TLS, or is not whom the certificate names."""
    advice = "check http:// or https:// in endpoint=, the server's certificate, and the CA that is trusted"
    return UnreachableError(f"no TLS connection: {reason}; {advice}")


def no_host() -> UnreachableError:
    """The name of the server is unknown."""
    return UnreachableError("no host has the server's name; check endpoint= and region=")
