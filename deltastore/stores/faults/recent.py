"""Which objects are so new that a stale answer may miss them."""

from __future__ import annotations

__all__ = ["RecentKeys"]


class RecentKeys:
    """Keys by the call that created them; they are recent for ``calls`` further calls."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._created: dict[str, int] = {}

    def created(self, key: str, number: int) -> None:
        self._created = {old: at for old, at in self._created.items() if number - at <= self._calls}
        self._created[key] = number

    def deleted(self, key: str) -> None:
        self._created.pop(key, None)

    def covers(self, key: str, number: int) -> bool:
        """Whether ``key`` is recent at call ``number``."""
        at = self._created.get(key)
        return at is not None and number - at <= self._calls
