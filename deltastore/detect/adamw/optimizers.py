"""The optimizers inside what a trainer calls its optimizer: wrappers are opened, by what they have.

Megatron-core chains optimizers and wraps them; others hold a list of them, or one. What counts in the end is
an object with the hooks, groups and state of ``torch.optim.Optimizer``. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from deltastore.errors import InputError

__all__ = ["check_optimizer", "optimizers_in"]

_NEEDED: Final = ("register_step_pre_hook", "register_step_post_hook", "param_groups", "state")
_LISTS: Final = ("chained_optimizers", "sub_optimizers", "optimizers")
_SINGLES: Final = ("optimizer", "optim")


def optimizers_in(given: object) -> tuple[Any, ...]:
    """Every optimizer in ``given``, once each: itself, those of a list or tuple, those that a wrapper holds.

    A wrapper whose ``optimizer`` is None, as on a process that owns no parameter, holds none. Raises
    ``InputError("bad_argument")`` naming the type of what is no optimizer.
    """
    found: dict[int, Any] = {}
    _open(given, found, set())
    return tuple(found.values())


def check_optimizer(optimizer: object) -> None:
    """``InputError("bad_argument")`` unless it has the hooks, groups and state of a torch optimizer."""
    missing = [name for name in _NEEDED if getattr(optimizer, name, None) is None]
    if missing:
        raise InputError(
            "bad_argument",
            f"a {type(optimizer).__name__} is no optimizer whose steps can be followed: it has no "
            f"{missing[0]}; give a torch.optim.Optimizer, or publish without one",
        )


def _open(given: object, found: dict[int, Any], opened: set[int]) -> None:
    if id(given) in opened:
        return
    opened.add(id(given))
    inner = list(_inside(given))
    if inner:
        for each in inner:
            _open(each, found, opened)
    elif not _is_empty(given):
        check_optimizer(given)
        found[id(given)] = given


def _inside(given: object) -> Iterator[object]:
    """What a list or wrapper holds: a wrapper with hooks of its own too, for not every one calls them."""
    if isinstance(given, list | tuple):
        yield from given
        return
    for name in _LISTS:
        several = getattr(given, name, None)
        if isinstance(several, list | tuple):
            yield from several
            return
    for name in _SINGLES:
        one = getattr(given, name, None)
        if one is not None and (_is_wrapper(one) or not _lacks(one)):
            yield one
            return


def _is_wrapper(given: object) -> bool:
    return isinstance(given, list | tuple) or any(hasattr(given, name) for name in (*_LISTS, *_SINGLES))


def _lacks(given: object) -> bool:
    return any(getattr(given, name, None) is None for name in _NEEDED)


def _is_empty(given: object) -> bool:
    """Whether it is a list of nothing, or a wrapper of nothing."""
    if isinstance(given, list | tuple):
        return True
    several = any(isinstance(getattr(given, name, None), list | tuple) for name in _LISTS)
    nothing = any(hasattr(given, name) and getattr(given, name) is None for name in _SINGLES)
    return several or (nothing and _lacks(given))
