"""Answers of a server that are no failures, but that obstore raises."""

from __future__ import annotations

__all__ = ["ExistsError", "OutOfRangeError", "UnchangedError"]


class ExistsError(Exception):
    """The object that was to be created exists."""


class OutOfRangeError(Exception):
    """The object ends before the range begins."""


class UnchangedError(Exception):
    """The object is still the one of the tag."""
