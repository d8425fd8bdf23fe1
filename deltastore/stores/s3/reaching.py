"""What a connection that could not be made means: aiohttp says it, and here it is told apart."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator

import aiohttp

from deltastore.stores.retrying import TransientError
from deltastore.stores.unreachable import no_handshake, no_host

__all__ = ["reaching"]


@contextlib.contextmanager
def reaching(*, known: bool) -> Iterator[None]:
    """Turn the body's failures to connect into ``TransientError``, or ``UnreachableError`` if they will stay.

    ``known``: this server has answered before, so its name exists, whatever the resolver says now.
    """
    try:
        yield
    except aiohttp.ClientSSLError as error:
        cause = error.__cause__
        # A server that is going down, or a balancer without one, ends the handshake like this.
        if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            raise TransientError("the TLS handshake broke off", unknown=False) from error
        raise no_handshake(_tls_reason(cause)) from error
    except aiohttp.ClientConnectorDNSError as error:
        if error.errno == socket.EAI_NONAME and not known:
            raise no_host() from error
        raise TransientError("the name of the server was not found", unknown=False) from error
    except aiohttp.ClientConnectorError as error:
        number = error.errno
        reason = os.strerror(number).lower() if number is not None and number > 0 else "no connection"
        raise TransientError(reason, unknown=False) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise TransientError("no connection in time", unknown=False) from error


def _tls_reason(cause: BaseException | None) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message.removesuffix(".") or "the certificate is not valid"
    reason = cause.reason if isinstance(cause, ssl.SSLError) else None
    return reason.replace("_", " ").lower() if isinstance(reason, str) else "the handshake failed"
