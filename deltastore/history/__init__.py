"""A stream over its versions: how they differ, what they cost, where an element came from."""

from __future__ import annotations
