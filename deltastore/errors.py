"""Every error that deltastore raises on purpose, as one small tree.

    DeltastoreError
    ├── InputError            the caller gave something that cannot be used        exit 1
    │   └── UsageError        a command line that contradicts itself               exit 2
    ├── StoreError            the store failed or cannot do what is asked of it    exit 1
    ├── TornError             live weights are a mixture of two versions           exit 1
    ├── NotFoundError         no such stream, version or object                    exit 10
    ├── ConflictError         somebody else was first                              exit 11
    │   └── FencedError       a newer epoch owns the stream                        exit 11
    ├── CorruptError          bytes that are not what their record says            exit 12
    │   └── PatchError        a patch that breaks a rule, before its names are known
    └── UnsupportedError      bytes of a format that this release does not know    exit 13

Handlers match ``code`` (append-only, listed in SPEC.md section "Errors"), never the text.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

__all__ = [
    "CODES",
    "ConflictError",
    "CorruptError",
    "DeltastoreError",
    "FencedError",
    "InputError",
    "NotFoundError",
    "PatchError",
    "RuleError",
    "StoreError",
    "TornError",
    "UnsupportedError",
    "UsageError",
]

CODES: Final[dict[str, str]] = {
    "bad_url": "a URL that names no store",
    "bad_key": "a key that could leave the stream, or that no store would accept",
    "bad_argument": "a value outside its range",
    "bad_checkpoint": "a safetensors checkpoint that breaks its own rules",
    "unknown_tensor": "a tensor that the stream does not have",
    "missing_tensor": "a tensor of the stream that was not given",
    "wrong_shape": "a tensor whose shape is not the stream's",
    "wrong_dtype": "a tensor whose dtype is not the stream's",
    "wrong_memory": "a tensor whose memory cannot be read or written in place",
    "bad_layout": "a layout that leaves a hole, overlaps, or does not fit its model",
    "private_layout": "a layout that only a kernel knows; nothing can be written into it in place",
    "unknown_model": "a model or configuration that no converter knows",
    "usage": "a command line that contradicts itself",
    "store_failed": "the store answered with an error",
    "store_unfit": "the store lacks an operation that the format needs",
    "torn": "an apply stopped half way; the weights are of no version",
    "no_stream": "the URL holds no stream",
    "no_version": "the stream has no such version",
    "no_object": "the store has no object under that key",
    "exists": "the stream exists already",
    "slot_taken": "another record took the slot",
    "version_taken": "the version is not above the tip",
    "fenced": "a newer epoch owns the stream",
    "aborted": "several writers could not agree on a version; nothing was published",
    "undecided": "it is not known yet whether a version was committed",
    "bad_json": "a JSON object that is not in canonical form or not of its schema",
    "bad_hash": "bytes whose sha256 is not the one that names them",
    "bad_chain": "a record that does not fit the records before it",
    "bad_length": "an object shorter or longer than its record says",
    "bad_index": "a pack index that breaks a rule",
    "bad_patch": "a patch that breaks a rule",
    "bad_anchor": "an anchor that does not hold what its record says",
    "bad_digest": "weights whose digest is not the one recorded",
    "lost_object": "an object that a record names is gone",
    "too_large": "an object above the limit for its kind",
    "newer_format": "a format version that this release does not know",
    "unknown_kind": "a record kind that this release does not know and may not skip",
}


class DeltastoreError(Exception):
    """Base of the tree. ``code`` is stable; ``where`` names the object or tensor concerned.

    Of bytes that break the specification, ``rule`` is the requirement (``DS042``); where they are known,
    ``offset`` is the byte in the object and ``tensor`` the tensor, or the pattern of the tensors, concerned.
    """

    exit_status: ClassVar[int] = 1

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: str | None = None,
        rule: str | None = None,
        offset: int | None = None,
        tensor: str | None = None,
    ) -> None:
        if code not in CODES:
            raise ValueError(f"unlisted error code {code!r}")
        super().__init__(message)
        self.code = code
        self.where = where
        self.rule = rule
        self.offset = offset
        self.tensor = tensor

    def __reduce__(self) -> tuple[object, ...]:
        details = {name: getattr(self, name) for name in ("where", "rule", "offset", "tensor")}
        return (_rebuild, (type(self), self.code, str(self), details))


def _rebuild(
    kind: type[DeltastoreError], code: str, message: str, details: dict[str, Any]
) -> DeltastoreError:
    return kind(code, message, **details)


class RuleError(ValueError):
    """A value breaks requirement ``rule``; whoever knows the object makes a ``DeltastoreError`` of it."""

    def __init__(self, rule: str, problem: str) -> None:
        super().__init__(problem)
        self.rule = rule


class InputError(DeltastoreError):
    """The caller gave something that cannot be used; nothing was changed."""


class UsageError(InputError):
    """A command line that contradicts itself."""

    exit_status = 2


class StoreError(DeltastoreError):
    """The store failed; the outcome of the request may be unknown."""


class TornError(DeltastoreError):
    """An apply stopped half way: the live weights are of no version until a repair succeeds."""


class NotFoundError(DeltastoreError):
    """No such stream, version or object."""

    exit_status = 10


class ConflictError(DeltastoreError):
    """Somebody else was first; the message says who."""

    exit_status = 11


class FencedError(ConflictError):
    """A newer epoch owns the stream; this writer can never commit again."""


class CorruptError(DeltastoreError):
    """Bytes that are not what their record says; ``where`` names the first bad object."""

    exit_status = 12


class PatchError(CorruptError):
    """Patch number ``row`` of those given to a kernel breaks a rule; the kernel knows no names to tell."""

    def __init__(self, row: int, reason: str, rule: str) -> None:
        super().__init__("bad_patch", f"patch {row}: {reason}", rule=rule)
        self.row = row
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (PatchError, (self.row, self.reason, self.rule))


class UnsupportedError(DeltastoreError):
    """Bytes of a format that this release does not know."""

    exit_status = 13
