"""URLs of buckets, read and written: ``s3://bucket/prefix?endpoint=http://127.0.0.1:8333``.

Credentials are never part of one. A URL that holds some is refused, and no message repeats any of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from deltastore.errors import InputError
from deltastore.stores.base import check_key

__all__ = ["MAX_CONCURRENCY", "BucketAddress", "parse_bucket"]

MAX_CONCURRENCY: Final = 1024

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", re.ASCII)
_PROFILE: Final = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,40}", re.ASCII)
_PARAMETERS: Final = ("endpoint", "region", "path_style", "profile", "concurrency")
_TRUTH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A bucket, the prefix of its keys (``""``: none), and how to reach the server.

    None stands for what the environment says: the server and region of the usual AWS chain, its profile, and
    path-style requests wherever that server is not AWS. ``concurrency`` bounds the requests in flight.
    """

    scheme: str
    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    profile: str | None = None
    concurrency: int | None = None

    @property
    def url(self) -> str:
        """The address as :func:`parse_bucket` takes it back."""
        path = f"{self.bucket}/{self.prefix}" if self.prefix else self.bucket
        given = [(name, getattr(self, name)) for name in _PARAMETERS]
        query = "&".join(f"{name}={_text(value)}" for name, value in given if value is not None)
        return f"{self.scheme}://{path}" + (f"?{query}" if query else "")

    @property
    def under(self) -> str:
        """What every key of the store starts with in its bucket."""
        return f"{self.prefix}/" if self.prefix else ""


def parse_bucket(scheme: str, rest: str, *, parameters: tuple[str, ...] = _PARAMETERS) -> BucketAddress:
    """Read what follows ``scheme://``; it may have these parameters. Raises ``InputError("bad_url")``."""
    place, _, query = rest.partition("?")
    if "@" in place or "#" in rest:
        # "@" before the bucket is how people write a key and its secret.
        message = (
            "credentials have no place in the URL of a store, nor has #; give them as AWS tools take them"
        )
        raise InputError("bad_url", message)
    bucket, _, prefix = place.partition("/")
    form = f"{scheme}://bucket/prefix"
    if _BUCKET.fullmatch(bucket) is None:
        message = f"{form} names a bucket of 2 to 63 characters of A-Z a-z 0-9 . _ -; this URL does not"
        raise InputError("bad_url", message)
    prefix = prefix.removesuffix("/")
    if prefix:
        _check_prefix(prefix, form)
    return _with_parameters(scheme, bucket, prefix, _pairs(query, parameters, form))


def _check_prefix(prefix: str, form: str) -> None:
    try:
        check_key(prefix)
    except InputError:
        message = (
            f"the prefix in {form} is like a key: segments of A-Z a-z 0-9 . _ - joined by single slashes"
        )
        raise InputError("bad_url", message) from None


def _pairs(query: str, parameters: tuple[str, ...], form: str) -> dict[str, str]:
    taken = ", ".join(parameters)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=20)
    except ValueError:
        raise InputError("bad_url", f"what follows ? in {form}?... is name=value&name=value") from None
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InputError("bad_url", f"a parameter of {form}?... is given twice; give it once")
    if not set(found) <= set(parameters):
        allowed = f"takes the parameters {taken} and no others" if parameters else "takes no parameters"
        # Not even the name is repeated: a signed or mangled URL may hold a secret anywhere.
        raise InputError("bad_url", f"{form}?... {allowed}")
    return found


def _with_parameters(scheme: str, bucket: str, prefix: str, found: dict[str, str]) -> BucketAddress:
    endpoint = found.get("endpoint")
    path_style = found.get("path_style")
    if path_style is not None and path_style not in _TRUTH:
        raise InputError("bad_url", "path_style in the URL of a store is true or false")
    return BucketAddress(
        scheme,
        bucket,
        prefix,
        endpoint=None if endpoint is None else _checked_endpoint(endpoint),
        region=_checked(found, "region", _REGION),
        path_style=None if path_style is None else _TRUTH[path_style],
        profile=_checked(found, "profile", _PROFILE),
        concurrency=_concurrency(found),
    )


def _checked(found: dict[str, str], name: str, pattern: re.Pattern[str]) -> str | None:
    value = found.get(name)
    if value is not None and pattern.fullmatch(value) is None:
        raise InputError("bad_url", f"{name} in the URL of a store is made of letters, digits and - . _")
    return value


def _concurrency(found: dict[str, str]) -> int | None:
    text = found.get("concurrency")
    if text is None:
        return None
    value = int(text) if re.fullmatch("[0-9]{1,4}", text, re.ASCII) else 0
    if not 1 <= value <= MAX_CONCURRENCY:
        raise InputError("bad_url", f"concurrency in the URL of a store is 1 to {MAX_CONCURRENCY} requests")
    return value


def _checked_endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    host = parts.hostname or ""
    plain = parts.username is None and parts.path in ("", "/") and not parts.query and not parts.fragment
    named = re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:.]*:[0-9a-f:.]*", host, re.ASCII) is not None
    if parts.scheme not in ("http", "https") or not plain or not named:
        message = (
            "endpoint in the URL of a store is http://host:port or https://host, without path or credentials"
        )
        raise InputError("bad_url", message)
    where = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{where}" + (f":{port}" if port is not None else "")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else quote(str(value), safe=":/[]")
