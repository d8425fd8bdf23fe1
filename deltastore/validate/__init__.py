"""Checking a whole stream: chain, hashes, indexes, patches, and digests by replay."""

from __future__ import annotations

from deltastore.validate.report import Problem, Report
from deltastore.validate.run import validate

__all__ = ["Problem", "Report", "validate"]
