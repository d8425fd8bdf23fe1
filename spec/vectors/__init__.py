"""Test vectors, and what makes them."""

from __future__ import annotations

from typing import Final

RELEASE: Final = "0.1.0"
"""The release of the package that these vectors are of."""
