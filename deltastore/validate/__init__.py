"""Checking a whole stream: chain, hashes, indexes, patches, and digests by replay."""

from __future__ import annotations

from deltastore.validate.checks import CHECKS, Check, Conduct, Level
from deltastore.validate.report import Problem, Report
from deltastore.validate.run import validate

__all__ = ["CHECKS", "Check", "Conduct", "Level", "Problem", "Report", "validate"]
