"""A store that fails on purpose, for chaos tests: see :class:`FaultyStore`."""

from __future__ import annotations

from deltastore.stores.faults.journal import Injected
from deltastore.stores.faults.plan import Fault, Faults, Kind, Operation
from deltastore.stores.faults.store import FaultyStore

__all__ = ["Fault", "Faults", "FaultyStore", "Injected", "Kind", "Operation"]
