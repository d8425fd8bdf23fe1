"""Numbers that callers give: whole ones, in their range."""

from __future__ import annotations

from deltastore.errors import InputError

__all__ = ["check_integer"]


def check_integer(name: str, value: object, *, least: int = 0, below: int | None = None) -> None:
    """``InputError("bad_argument")`` unless ``value`` is an ``int``, and no bool, in ``[least, below)``."""
    if type(value) is int and least <= value and (below is None or value < below):
        return
    allowed = f"of at least {least}" if below is None else f"from {least} to {below - 1}"
    raise InputError("bad_argument", f"{name}={value!r:.40}: give an integer {allowed}")
