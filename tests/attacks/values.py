"""Other values for a member of a JSON object, as somebody would try them who knows what the member is for."""

from __future__ import annotations

import copy
from typing import Any

from .damage import Draw, pick

Path = tuple[Any, ...]

_NUMBERS = (0, 1, -1, 2, 255, 2**20, 2**22 + 1, 2**31, 2**32, 2**53 - 1, 2**53, -(2**63), 10**40, 1.0, 1e3)
_TEXTS = ("", "0", "x" * 300, "../../etc/passwd", "é", "\x1b[2J\u202e", "\ud800", "null", "0" * 64, "F" * 32)
_OTHERS: tuple[Any, ...] = (None, True, False, 0, "0", [], {}, [[]], {"a": 1}, [None])


def paths_of(value: Any, at: Path = ()) -> list[Path]:
    """Where every value in it stands, itself left out."""
    members: list[Any] = []
    if isinstance(value, dict):
        members = sorted(value)
    elif isinstance(value, list):
        members = list(range(len(value)))
    return [path for name in members for path in ((*at, name), *paths_of(value[name], (*at, name)))]


def changed_member(value: Any, draw: Draw) -> tuple[str, Any]:
    """A copy in which one member has another value, is gone, or is new; and which."""
    after = copy.deepcopy(value)
    path = pick(draw, paths_of(after))
    *above, name = path
    holder = after
    for step in above:
        holder = holder[step]
    how = draw.random()
    said = ".".join(map(str, path))
    if how < 0.08:
        del holder[name]
        return f"without {said}", after
    if how < 0.14 and isinstance(holder, dict):
        holder[pick(draw, ("extra", "zz", name + "_", "FORMAT"))] = holder[name]
        return f"a member more beside {said}", after
    if how < 0.14:
        holder.insert(int(name), holder[name])
        return f"{said} twice", after
    holder[name] = other_value(holder[name], _alike(value, holder[name]), draw)
    return f"{said} = {holder[name]!r:.60}", after


def _alike(value: Any, like: Any) -> list[Any]:
    """All values of the same type that the object has elsewhere."""
    found = []
    for path in paths_of(value):
        here = value
        for step in path:
            here = here[step]
        if type(here) is type(like) and here != like:
            found.append(here)
    return found


def other_value(value: Any, alike: list[Any], draw: Draw) -> Any:
    """Something near, something else of its type, something of the same object, or of another type."""
    how = draw.random()
    if how < 0.1:
        return copy.deepcopy(pick(draw, _OTHERS))
    if how < 0.3 and alike:
        return copy.deepcopy(pick(draw, alike))
    if isinstance(value, bool) or value is None:
        return pick(draw, (not value, 0, 1, "", "0" * 64, None))
    if isinstance(value, int):
        return pick(draw, (*_NUMBERS, value + 1, value - 1, value + 1, value - 1, 2 * value, -value))
    if isinstance(value, str):
        return _other_text(value, draw)
    if isinstance(value, list):
        return _other_list(value, draw)
    return _other_object(value, draw) if isinstance(value, dict) else pick(draw, (1.0, -0.0, 7, 1e300))


def _other_text(value: str, draw: Draw) -> str:
    if not value or draw.random() < 0.2:
        return pick(draw, _TEXTS)
    at = int(draw.integers(len(value)))
    options = (
        value[:at] + pick(draw, "0123456789abcdef") + value[at + 1 :],
        value[:at] + value[at + 1 :],
        value[:at] + pick(draw, "0aA./ *\n\x7f") + value[at:],
        value.upper(),
        value + "0",
        value[::-1],
    )
    return pick(draw, options)


def _other_list(value: list[Any], draw: Draw) -> list[Any]:
    after = copy.deepcopy(value)
    how = int(draw.integers(5))
    if not after or how == 0:
        return []
    one, other = (int(at) for at in draw.integers(0, len(after), 2))
    if how == 1:
        after[one], after[other] = after[other], after[one]
    elif how == 2:
        after.reverse()
    elif how == 3:
        del after[one]
    else:
        after.append(after[one])
    return after


def _other_object(value: dict[str, Any], draw: Draw) -> dict[str, Any]:
    after = copy.deepcopy(value)
    if after and draw.random() < 0.5:
        del after[pick(draw, sorted(after))]
    else:
        after["more"] = 1
    return after
