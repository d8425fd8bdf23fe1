"""What an exception of obstore means. It has few kinds, so the status is read from its text."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from deltastore.errors import StoreError
from deltastore.stores.base import no_object
from deltastore.stores.objects.answers import ExistsError, OutOfRangeError, UnchangedError
from deltastore.stores.retrying import TransientError
from deltastore.stores.unreachable import no_handshake

__all__ = ["judged"]

_STATUS: Final = re.compile(r"status:? (?:code )?([1-5][0-9][0-9])\b", re.ASCII)
_BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
_NO_CONNECTION: Final = {
    "ConnectionRefused": "connection refused",
    '"dns error"': "the name of the server was not found",
    "TimedOut": "no connection in time",
}


@contextlib.contextmanager
def judged(action: str, key: str, scheme: str) -> Iterator[None]:
    """Turn obstore's exceptions into ours: ``TransientError``, ``DeltastoreError``, and those of ``answers``.

    Texts of servers are dropped, not chained: nobody knows what they repeat.
    """
    try:
        yield
    except NotModifiedError:
        raise UnchangedError from None
    except (AlreadyExistsError, PreconditionError) as error:
        # On S3 a 409 means that another request is in the way, and that this one was not done.
        if scheme == "s3+obstore" and _status(error) == 409:
            raise TransientError("the server answers 409", unknown=False) from None
        raise ExistsError from None
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise _failed(action, key, "the server answers 404: there is no such bucket; create it") from None
        raise no_object(key) from None
    except (PermissionDeniedError, UnauthenticatedError):
        advice = "grant reading, writing and listing; without leave to list, an absent object is denied too"
        raise _failed(action, key, f"the server denies it to these credentials; {advice}") from None
    except TimeoutError as error:
        raise TransientError("no answer in time", unknown=True) from error
    except (BaseError, OSError, ValueError) as error:
        raise _other(error, action, key) from None


def _other(error: Exception, action: str, key: str) -> Exception:
    status = _status(error)
    if status == 416:
        return OutOfRangeError()
    if status is None:
        return _unanswered(error, action, key)
    if status in _BUSY:
        return TransientError(f"the server answers {status}", unknown=status not in (408, 429))
    if action == "create" and status == 501:
        message = f"cannot create {key}: the server cannot create an object only if absent; use another store"
        return StoreError("store_unfit", message, where=key)
    return _failed(action, key, f"the server answers {status}; check the URL, the region and the credentials")


def _unanswered(error: Exception, action: str, key: str) -> Exception:
    # What its HTTP client writes into the text, for want of anything better.
    text = str(error)
    if "kind: Connect," not in text:
        return TransientError(f"the connection failed or broke off ({type(error).__name__})", unknown=True)
    if "InvalidCertificate(" in text:
        return no_handshake("the server's certificate is not valid here").during(action, key)
    if "InvalidContentType" in text:
        return no_handshake("what answers is not TLS").during(action, key)
    for sign, reason in _NO_CONNECTION.items():
        if sign in text:
            return TransientError(reason, unknown=False)
    return TransientError("no connection", unknown=False)


def _status(error: Exception) -> int | None:
    found = _STATUS.search(str(error))
    return None if found is None else int(found[1])


def _failed(action: str, key: str, reason: str) -> StoreError:
    return StoreError("store_failed", f"cannot {action} {key or 'the store'}: {reason}", where=key or None)
