"""How often a function is called: work is counted, not timed."""

from __future__ import annotations

from typing import Any

import pytest


class Counted:
    """Stands in for a function of a module, and counts its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.calls = 0
        self._real = getattr(module, name)
        monkeypatch.setattr(module, name, self)

    def __call__(self, *given: Any) -> Any:
        self.calls += 1
        return self._real(*given)
