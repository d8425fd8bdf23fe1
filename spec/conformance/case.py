"""A case: what is asked, and what an answer must be like."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

Fields = dict[str, Any]
Judge = Callable[[Fields], str | None]
"""What is wrong with a reply, in one line; None where it is as it must be."""

_SHOWN = 100


def _unprepared() -> AbstractContextManager[object]:
    return nullcontext()


@dataclass(frozen=True)
class Case:
    """One request. ``prepare`` makes what it needs, such as a store, for as long as it is asked."""

    file: str
    name: str
    request: Fields
    judge: Judge
    prepare: Callable[[], AbstractContextManager[object]] = field(default=_unprepared)


def shown(value: object) -> str:
    """A value, cut short."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def plain(value: object) -> Any:
    """A value as JSON gives it back."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def expects(expected: Fields, *, unordered: tuple[str, ...] = ()) -> Judge:
    """The answer has these members; of ``unordered`` ones any order will do."""

    def judge(reply: Fields) -> str | None:
        answer = reply.get("ok")
        if not isinstance(answer, dict):
            return f"expected an answer, got {shown({key: reply[key] for key in reply if key != 'id'})}"
        for name, wanted in expected.items():
            wanted, got = plain(wanted), answer.get(name)
            if name in unordered and isinstance(got, list):
                wanted, got = sorted(wanted, key=repr), sorted(got, key=repr)
            if got != wanted or type(got) is not type(wanted):
                return f"{name}: {_difference(wanted, got)}"
        return None

    return judge


def _difference(wanted: Any, got: Any) -> str:
    """Where two values differ first."""
    if isinstance(wanted, str) and isinstance(got, str):
        at = next((at for at, pair in enumerate(zip(wanted, got, strict=False)) if pair[0] != pair[1]), None)
        if at is not None and len(wanted) > _SHOWN:
            return f"expected …{wanted[at : at + 16]!r} from character {at} on, got …{got[at : at + 16]!r}"
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key, item in wanted.items():
            if got.get(key) != item:
                return f"{key}: {_difference(item, got.get(key))}"
    return f"expected {shown(wanted)}, got {shown(got)}"


def refuses(expected: Fields, *, where: bool = False) -> Judge:
    """The answer is this error; ``check``, and with ``where`` the object, are compared if it names them.

    Of an object that breaks several requirements ``checks`` are those of which any may be named.
    """
    checks = expected.get("checks", [expected["check"]])

    def judge(reply: Fields) -> str | None:
        error = reply.get("error")
        wanted = f"{expected['code']} ({' or '.join(map(str, checks))})"
        if not isinstance(error, dict):
            return (
                f"expected the error {wanted}, got {shown({key: reply[key] for key in reply if key != 'id'})}"
            )
        for name in ("code", "check", *(("where",) if where else ())):
            if name != "code" and (error.get(name) is None or expected[name] is None):
                continue
            if error.get(name) not in (checks if name == "check" else [expected[name]]):
                return f"expected the error {wanted}, got {name} {shown(error.get(name))}"
        return None

    return judge
