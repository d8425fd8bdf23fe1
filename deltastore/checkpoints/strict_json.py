"""JSON of untrusted files: an object, no key twice, no surprises from the parser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltastore.checkpoints.refusal import bad_checkpoint, shown

__all__ = ["parse_object"]


class _TwiceError(ValueError):
    """A key that an object has twice: parsers differ in which value they keep."""


def parse_object(data: bytes, path: Path, what: str) -> dict[str, Any]:
    """The JSON object in ``data``; ``InputError("bad_checkpoint")`` names ``path`` and ``what`` it is not."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except _TwiceError as error:
        raise bad_checkpoint(path, f"{what} lists {error} twice; write the file again") from None
    except RecursionError:
        raise bad_checkpoint(path, f"{what} is nested too deep; write the file again") from None
    except ValueError as error:
        raise bad_checkpoint(path, f"{what} is not JSON ({error}); write the file again") from None
    if not isinstance(value, dict):
        raise bad_checkpoint(path, f"{what} is not a JSON object; write the file again")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _TwiceError(shown(key))
            seen.add(key)
    return found
