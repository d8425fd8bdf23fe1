"""The processes that the trainings of these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from .ranks import Ranks


@pytest.fixture(scope="package")
def ranks() -> Iterator[Ranks]:
    """Processes for one training after another; they start with the first."""
    with closing(Ranks()) as made:
        yield made
