"""What a server refused, as one :class:`StoreError` that says what to do and repeats nothing it said."""

from __future__ import annotations

import re
from typing import Final

from deltastore.errors import StoreError
from deltastore.stores.address import BucketAddress

__all__ = ["RefusedError", "cannot_create", "explained", "no_credentials"]

_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{2,63}", re.ASCII)
_DENIED: Final = "check what these credentials may do in bucket {bucket}"
_KEYS: Final = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile"
_EXPIRED: Final = "the credentials have expired: get new ones"
_ELSEWHERE: Final = "the bucket is in another region or at another endpoint: give ?region= (now {region})"
_ADVICE: Final = {
    "NoSuchBucket": "create bucket {bucket}, or correct the URL",
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "ExpiredToken": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "RequestTimeTooSkewed": "set this machine's clock",
    "PermanentRedirect": _ELSEWHERE,
    "TemporaryRedirect": _ELSEWHERE,
    "AuthorizationHeaderMalformed": _ELSEWHERE,
    "IllegalLocationConstraintException": _ELSEWHERE,
    "AllAccessDisabled": _DENIED,
}
_BY_STATUS: Final = {
    301: _ELSEWHERE,
    302: _ELSEWHERE,
    307: _ELSEWHERE,
    308: _ELSEWHERE,
    401: _KEYS,
    403: _DENIED,
    404: "create bucket {bucket}, or correct the URL",
}
# Reads: whether the key is absent is something that S3 tells only to those who may list.
_READ_DENIED: Final = (
    "an absent object answers 403, not 404, when the credentials lack s3:ListBucket; "
    "grant s3:ListBucket and s3:GetObject on bucket {bucket}"
)


class RefusedError(Exception):
    """The server's definite no: the status, and the code of S3 (``""`` where the reply has none)."""

    def __init__(self, status: int, code: str) -> None:
        self.status = status
        self.code = code if _CODE.fullmatch(code) else ""
        super().__init__(f"{status} {self.code}".rstrip())


def explained(refused: RefusedError, action: str, key: str, address: BucketAddress) -> StoreError:
    """The error for a refusal that the operation has no meaning for."""
    advice = _ADVICE.get(refused.code) or _BY_STATUS.get(refused.status) or "check the server's log"
    if refused.status == 403 and action in ("read", "stat") and advice == _DENIED:
        advice = _READ_DENIED
    region = address.region or "the one of the environment"
    said = advice.format(bucket=address.bucket, region=region)
    what = key or f"bucket {address.bucket}"
    return StoreError(
        "store_failed", f"cannot {action} {what}: the server answers {refused}; {said}", where=key or None
    )


def cannot_create(refused: RefusedError, key: str) -> StoreError:
    """The error for a server that does not know ``If-None-Match: *``."""
    message = (
        f"cannot create {key}: the server answers {refused} to a PUT with If-None-Match; "
        "it cannot create an object only if absent, so use another store"
    )
    return StoreError("store_unfit", message, where=key)


def no_credentials(action: str, key: str) -> StoreError:
    """The error for an environment without usable credentials."""
    message = (
        f"cannot {action} {key or 'the store'}: no credentials for S3; set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or name a profile with ?profile="
    )
    return StoreError("store_failed", message, where=key or None)
