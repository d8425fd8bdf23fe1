"""SPEC 17: what a reader refuses, by its code and by the requirement that is broken."""

from __future__ import annotations

from typing import Any, NoReturn


class SpecError(Exception):
    """What a reader refuses: a `code` of SPEC 17, and as `check` the MUST that is broken, None where none is.

    `where` is the object, once one is known.
    """

    def __init__(self, code: str, check: str | None, what: str) -> None:
        super().__init__(f"{code} ({check}): {what}" if check else f"{code}: {what}")
        self.code = code
        self.check = check
        self.where: str | None = None


def fail(code: str, check: str | None, what: str) -> NoReturn:
    """Refuse."""
    raise SpecError(code, check, what)


def need(condition: Any, code: str, check: str | None, what: str) -> None:
    """Refuse unless the condition holds."""
    if not condition:
        fail(code, check, what)
