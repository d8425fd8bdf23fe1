"""The detector by inversion under any history; ``DELTASTORE_HISTORIES=3000`` plays as many as that."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from .histories import InverseHistories

TestHistories = pytest.mark.spec("DS084")(InverseHistories.TestCase)
TestHistories.settings = settings(
    max_examples=int(os.environ.get("DELTASTORE_HISTORIES", "40")),
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
)
