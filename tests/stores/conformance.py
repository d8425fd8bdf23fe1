"""The one suite that every store passes.

A store's test file subclasses :class:`StoreConformance` under a name that starts with ``Test``, and gives
the fixture ``store``: a store that is empty and each test's own.
"""

from __future__ import annotations

from .data_conformance import DataConformance
from .key_conformance import KeyConformance
from .presence_conformance import PresenceConformance


class StoreConformance(DataConformance, PresenceConformance, KeyConformance):
    """Everything that a store promises."""
