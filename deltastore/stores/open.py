"""From a URL to a store."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from deltastore.errors import InputError
from deltastore.stores.address import BucketAddress, parse_bucket
from deltastore.stores.base import Store
from deltastore.stores.local import LocalStore
from deltastore.stores.memory import MemoryStore
from deltastore.stores.retrying import Retrying

__all__ = ["open_store"]

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})", re.ASCII)
_FORMS: Final = "file:///abs/path, memory://name, s3://bucket/prefix, or a path that starts with / or ./"
_OBSTORE: Final = "s3+obstore"
_OBSTORE_PARAMETERS: Final = ("endpoint", "region", "path_style", "concurrency")


def open_store(url: str | os.PathLike[str], *, retrying: Retrying | None = None) -> Store:
    """Return the store that ``url`` names. Nothing is read, written or created before the first operation.

    ``file:///abs/path`` (percent-encoded; the host may be ``localhost``) and a plain path that starts with
    ``/``, ``./`` or ``../`` give a :class:`LocalStore`; ``memory://name`` gives a :class:`MemoryStore`. So
    does any :class:`os.PathLike`. ``s3://bucket/prefix`` gives an :class:`S3Store`, and ``gs://``, ``az://``
    and ``s3+obstore://`` an :class:`ObjectsStore`; both need an extra to be installed, and ``s3`` takes
    ``?endpoint=http://host:port&region=...&path_style=true&profile=...&concurrency=32``. ``retrying`` is how
    these repeat what fails; :class:`Retrying` names the defaults. Raises ``InputError("bad_url")`` for
    anything else, and never repeats what may be a secret.
    """
    if isinstance(url, os.PathLike):
        return LocalStore(Path(url))
    if not isinstance(url, str):
        raise InputError("bad_url", f"a store is named by a URL or a path, not by a {type(url).__name__}")
    if "\0" in url:
        raise InputError("bad_url", "the URL of the store holds a NUL character; give it without")
    match = _SCHEME.match(url)
    if match is None:
        return LocalStore(_plain_path(url))
    scheme = match[1].lower()
    rest = url[match.end() :]
    if scheme == "file":
        return LocalStore(_file_path(rest))
    if scheme == "memory":
        return MemoryStore(f"memory://{rest}")
    if scheme == "s3":
        return _s3(parse_bucket(scheme, rest), retrying)
    if scheme == _OBSTORE:
        return _objects(parse_bucket(scheme, rest, parameters=_OBSTORE_PARAMETERS), retrying)
    if scheme in ("gs", "az"):
        return _objects(parse_bucket(scheme, rest, parameters=("concurrency",)), retrying)
    # Only the scheme is repeated: the rest may hold a password or a signed query.
    message = f"this release opens file, memory, s3, gs and az URLs, not {scheme}://; give {_FORMS}"
    raise InputError("bad_url", message)


def _s3(address: BucketAddress, retrying: Retrying | None) -> Store:
    _check_installed("aiobotocore", "s3", address.scheme)
    from deltastore.stores.s3 import S3Store

    return S3Store(address, retrying=retrying)


def _objects(address: BucketAddress, retrying: Retrying | None) -> Store:
    _check_installed("obstore", "objects", address.scheme)
    from deltastore.stores.objects import ObjectsStore

    return ObjectsStore(address, retrying=retrying)


def _check_installed(module: str, extra: str, scheme: str) -> None:
    if importlib.util.find_spec(module) is None:
        message = f"{scheme}:// needs the package {module}: pip install 'deltastore[{extra}]'"
        raise InputError("bad_url", message)


def _plain_path(text: str) -> Path:
    if text in (".", "..") or text.startswith(("/", "./", "../")):
        return Path(text)
    # A bare name may be a mistyped URL ("file:/x", "s3:/bucket"), which must not create a folder.
    raise InputError("bad_url", f"'{_public(text)}' names no store; give {_FORMS}")


def _file_path(rest: str) -> Path:
    if "?" in rest or "#" in rest:
        raise InputError("bad_url", "a file URL has no query or fragment; write %3F for ? and %23 for #")
    host, slash, path = rest.partition("/")
    if not slash or host.lower() not in ("", "localhost"):
        path = _public(rest).lstrip("./")
        message = (
            f"a file URL is absolute: write file:///abs/{path} (three slashes), or ./{path} without file://"
        )
        raise InputError("bad_url", message)
    if _BAD_ESCAPE.search(path):
        raise InputError("bad_url", "a % in a file URL starts two hexadecimal digits; write %25 for % itself")
    decoded = os.fsdecode(unquote_to_bytes(path))
    return Path("/" + decoded)


def _public(text: str) -> str:
    """Return what may be repeated of an unusable URL: nothing if it may hold a secret, and never much."""
    return "..." if re.search(r"[@?#]", text) else ascii(text[:80])[1:-1]
