"""What a store is: bytes by key, and the few rules that every store keeps.

Implements SPEC.md section "Storage". A store knows no format; it moves whole objects and byte ranges
of objects. Everything else in deltastore is built on the six operations of :class:`Store`, and
only one of them, :meth:`Store.put_if_absent`, ever commits anything.
"""

from __future__ import annotations

import abc
import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

from deltastore.errors import CorruptError, InputError, NotFoundError

__all__ = [
    "MAX_KEY_LENGTH",
    "MAX_SEGMENT_LENGTH",
    "Data",
    "ObjectInfo",
    "Store",
    "Tagged",
    "as_octets",
    "check_key",
    "check_limit",
    "check_prefix",
    "check_range",
    "no_object",
    "too_large",
    "too_short",
]

MAX_KEY_LENGTH: Final = 1024
MAX_SEGMENT_LENGTH: Final = 200

Data: TypeAlias = bytes | bytearray | memoryview

# The alphabet is what file systems, object stores and URLs all take unescaped and unchanged. Nothing that
# starts with "." or "-" is a segment: this keeps out "..", hidden files, temporary names and options.
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a store: its key, and its size in bytes."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Tagged:
    """An object's bytes, and a tag that another content has not."""

    data: bytes
    tag: str


class Store(abc.ABC):
    """Bytes by key. Every operation may raise the errors named here, and ``StoreError("store_failed")``.

    An object is seen whole or not at all. A write that returned is durable: it outlives a crash of the
    machine. A write that raised ``StoreError``, or that was cancelled, has an unknown outcome: read the
    key back. Keys obey :func:`check_key`. Whether a key may also be a folder of another key (``a`` and
    ``a/b``), even after that one was deleted, differs between stores; deltastore never writes such pairs.

    The data given to a write must not change until the call has ended. A store may be used by many tasks
    of one event loop at once.
    """

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """How a human would name the store; ``open_store`` takes it back. Never holds credentials."""

    @property
    def probed_at_start(self) -> bool:
        """Whether a writer first finds out if ``put_if_absent`` keeps its promise here."""
        return True

    @abc.abstractmethod
    async def get(self, key: str, *, limit: int) -> bytes:
        """Return the whole object.

        Raises ``NotFoundError("no_object")``, ``CorruptError("too_large")`` for an object of more than
        ``limit`` bytes (before anything of its size is allocated), ``InputError("bad_key")``, and
        ``InputError("bad_argument")`` for a negative limit.
        """

    @abc.abstractmethod
    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly the bytes ``[start, start + length)`` of the object; ``length`` may be 0.

        Raises ``NotFoundError("no_object")``, ``CorruptError("bad_length")`` for an object that ends
        before ``start + length`` (before anything of that size is allocated), ``InputError("bad_key")``,
        and ``InputError("bad_argument")`` for a negative start or length.
        """

    @abc.abstractmethod
    async def put(self, key: str, data: Data) -> None:
        """Create or replace an object. Readers see the old one, the new one or none, never a part.

        Raises ``InputError("bad_key")``, and ``InputError("bad_argument")`` for a memoryview that is not
        contiguous.
        """

    @abc.abstractmethod
    async def put_if_absent(self, key: str, data: Data) -> bool:
        """Create an object unless the key has one. This is the only operation that commits.

        Returns True when this call created the object and False when the key had one. Either way the
        object under the key is durable on return; of any number of racing calls exactly one creates it.
        Raises what :meth:`put` raises, and ``StoreError("store_unfit")`` where the store cannot do this.
        """

    @abc.abstractmethod
    def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix``, in byte order of the whole key.

        Only keys strictly greater than ``after`` are yielded; ``after`` need not exist. ``prefix`` may
        end inside a segment, and both obey :func:`check_prefix`. An object that is created or deleted
        meanwhile may or may not be yielded; every other object is yielded exactly once. Raises
        ``InputError("bad_key")`` at the first step.
        """

    @abc.abstractmethod
    async def delete(self, key: str) -> None:
        """Remove an object; one that is absent already is not an error. Raises ``InputError("bad_key")``."""

    @abc.abstractmethod
    async def stat(self, key: str) -> ObjectInfo | None:
        """Return an object's size, or None where the key has none. Raises ``InputError("bad_key")``."""

    async def get_changed(self, key: str, *, tag: str | None, limit: int) -> Tagged | None:
        """The object, or None where it is still the one that had ``tag`` (None: always the object).

        A tag is opaque and belongs to this key of this store. A store that can asks its server for no bytes
        of an object that has not changed. Raises what :meth:`get` raises.
        """
        data = await self.get(key, limit=limit)
        found = hashlib.sha256(data).hexdigest()
        return None if found == tag else Tagged(data, found)

    async def close(self) -> None:
        """Release what the store holds open; may be called more than once. The objects stay."""
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def check_key(key: str) -> str:
    """Return ``key`` if every store accepts it; raise ``InputError("bad_key")`` otherwise.

    A key has 1 to 1024 characters: segments joined by single slashes. A segment has 1 to 200 characters
    of ``A-Z a-z 0-9 . _ -``, the first of which is a letter, a digit or ``_``.
    """
    if not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise _bad_key("key", key, f"a key has 1 to {MAX_KEY_LENGTH} characters")
    for segment in key.split("/"):
        _check_segment("key", key, segment)
    return key


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if some key starts with it; raise ``InputError("bad_key")`` otherwise."""
    if len(prefix) > MAX_KEY_LENGTH:
        raise _bad_key("prefix", prefix, f"a prefix has at most {MAX_KEY_LENGTH} characters")
    *folders, last = prefix.split("/")
    for segment in folders:
        _check_segment("prefix", prefix, segment)
    if last:
        # Every beginning of a segment is itself a segment, so a cut one needs no rule of its own.
        _check_segment("prefix", prefix, last)
    return prefix


def check_limit(key: str, limit: int) -> None:
    """Raise ``InputError("bad_argument")`` for a negative limit, in bytes."""
    if limit < 0:
        raise InputError("bad_argument", f"the limit for {key} is {limit} bytes; give 0 or more", where=key)


def check_range(key: str, start: int, length: int) -> None:
    """Raise ``InputError("bad_argument")`` for a negative start or length, in bytes."""
    if start < 0 or length < 0:
        message = f"the range of {key} starts at {start} and has {length} bytes; give 0 or more for both"
        raise InputError("bad_argument", message, where=key)


def as_octets(key: str, data: Data) -> memoryview:
    """Return ``data`` as a flat view of its bytes, without a copy.

    Raises ``InputError("bad_argument")`` for a memoryview that is not C-contiguous.
    """
    view = memoryview(data)
    if not view.c_contiguous:
        message = f"the data for {key} is not contiguous in memory; copy it with bytes() first"
        raise InputError("bad_argument", message, where=key)
    return view.cast("B") if view.nbytes else memoryview(b"")


def no_object(key: str) -> NotFoundError:
    """Return the error for a key that has no object."""
    message = f"the store has no object {key}; check the store's URL and the key"
    return NotFoundError("no_object", message, where=key)


def too_large(key: str, size: int, limit: int) -> CorruptError:
    """Return the error for an object of ``size`` bytes where at most ``limit`` are allowed."""
    message = f"{key} has {size} bytes where at most {limit} are allowed; it is not what its name says"
    return CorruptError("too_large", message, where=key, rule="DS100")


def too_short(key: str, size: int, start: int, length: int) -> CorruptError:
    """Return the error for an object of ``size`` bytes that ends before ``start + length``."""
    message = f"{key} has {size} bytes, too few for {length} bytes from {start}; restore the object"
    return CorruptError("bad_length", message, where=key, rule="DS061")


def _check_segment(what: str, text: str, segment: str) -> None:
    if len(segment) > MAX_SEGMENT_LENGTH:
        raise _bad_key(what, text, f"a segment has at most {MAX_SEGMENT_LENGTH} characters")
    if _SEGMENT.fullmatch(segment) is None:
        rule = 'a segment is one or more of A-Z a-z 0-9 . _ - and does not start with "." or "-"'
        raise _bad_key(what, text, rule)


def _bad_key(what: str, text: str, rule: str) -> InputError:
    shown = repr(text if len(text) <= 80 else text[:80] + "...")
    return InputError("bad_key", f"{shown} is not a {what}: {rule}", where=shown, rule="DS001")
