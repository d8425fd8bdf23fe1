"""Tests of deltastore.stores."""

from __future__ import annotations

import pytest

# The parts of the suite are not test modules, and their bare asserts should explain themselves all the same.
pytest.register_assert_rewrite(
    *(f"{__name__}.{part}_conformance" for part in ("data", "key", "presence", "s3", "wrapper"))
)
