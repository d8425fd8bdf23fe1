"""What every test runs under: drawn examples that are the same on every machine, and no clock."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("deltastore", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("deltastore")
