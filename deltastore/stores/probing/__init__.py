"""What a store can really do, found out by asking it. Knows no format.

:func:`check_creates` is the cheap question that a writer asks at its start; :func:`probe` asks everything.
"""

from __future__ import annotations

from deltastore.stores.probing.creation import check_creates
from deltastore.stores.probing.probe import probe
from deltastore.stores.probing.report import Capability, Need, Report, Verdict

__all__ = ["Capability", "Need", "Report", "Verdict", "check_creates", "probe"]
