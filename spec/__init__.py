"""The executable half of the specification: a decoder that stands on SPEC.md alone."""

from __future__ import annotations
