"""The model at the size of a test run; ``DELTASTORE_HISTORIES=3000`` plays as many histories as that."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from .machine import Histories

TestHistories = pytest.mark.spec("DS085", "DS086", "DS087", "DS088")(Histories.TestCase)
TestHistories.settings = settings(
    max_examples=int(os.environ.get("DELTASTORE_HISTORIES", "40")),
    stateful_step_count=20,
    suppress_health_check=list(HealthCheck),
)
