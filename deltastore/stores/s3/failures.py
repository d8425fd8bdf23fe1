"""What an attempt's exception means: try again, a definite no, or an error of the caller's environment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    ResponseStreamingError,
)
from botocore.parsers import ResponseParserError

from deltastore.errors import StoreError
from deltastore.stores.retrying import TransientError
from deltastore.stores.s3.wording import RefusedError, no_credentials
from deltastore.stores.unreachable import UnreachableError

__all__ = ["judged"]

_BUSY: Final = frozenset({429, 500, 502, 503, 504})
# A server that says one of these has not done what it was asked.
_UNDONE: Final = frozenset(
    {
        "BadDigest",
        "ConditionalRequestConflict",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "TooManyRequestsException",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    }
)
_AGAIN: Final = _UNDONE | {"InternalError", "ServiceUnavailable"}
_BROKEN: Final = (
    aiohttp.ClientError,
    IncompleteReadError,
    OSError,
    ReadTimeoutError,
    ResponseParserError,
    ResponseStreamingError,
)


@contextlib.contextmanager
def judged(action: str, key: str) -> Iterator[None]:
    """Turn the body's exceptions into ``TransientError``, ``RefusedError`` or ``StoreError``.

    What servers and credential providers said is dropped, not chained: nobody knows what they repeat.
    """
    try:
        yield
    except ClientError as error:
        raise _answer(error.response) from None
    except UnreachableError as error:
        raise error.during(action, key) from None
    except CredentialRetrievalError:
        raise TransientError("the credentials could not be fetched", unknown=False) from None
    except (NoCredentialsError, PartialCredentialsError):
        raise no_credentials(action, key) from None
    except ProfileNotFound:
        message = (
            f"cannot {action} {key or 'the store'}: the profile is in no AWS configuration; correct ?profile="
        )
        raise StoreError("store_failed", message, where=key or None) from None
    except _BROKEN as error:
        raise TransientError(_reason(error), unknown=True) from None
    except BotoCoreError as error:
        message = f"cannot {action} {key or 'the store'}: {type(error).__name__}; check the AWS configuration"
        raise StoreError("store_failed", message, where=key or None) from None


def _answer(response: Mapping[str, Any]) -> Exception:
    about = response.get("ResponseMetadata", {})
    status = int(about.get("HTTPStatusCode", 0))
    code = str(response.get("Error", {}).get("Code", ""))
    refused = RefusedError(status, code)
    if status in _BUSY or code in _AGAIN:
        unknown = code not in _UNDONE and status != 429
        after = _seconds(about.get("HTTPHeaders", {}).get("retry-after", ""))
        return TransientError(f"the server answers {refused}", unknown=unknown, after=after)
    return refused


def _seconds(text: str) -> float:
    # The other form, a date, is compared with a clock that may be wrong; the backoff serves as well.
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0.0


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    text = cause.strerror if isinstance(cause, OSError) else None
    return text.lower() if text else f"the reply broke off ({type(error).__name__})"
