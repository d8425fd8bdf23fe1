"""All figures of ``deltastore bench inversion``, in a folder that is gone at the end."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path

from deltastore.bench.figure import Figure
from deltastore.bench.inversion.memory import measure_memory
from deltastore.bench.inversion.plan import InversionPlan
from deltastore.bench.inversion.speed import measure_speed
from deltastore.bench.inversion.trainer import require_torch

__all__ = ["measure_inversion"]


def measure_inversion(plan: InversionPlan) -> Iterator[Figure]:
    """Figures come as they are found; one trainer at a time is in memory.

    Raises InputError where torch is not installed. The folder takes three times the size of the BF16 model.
    """
    require_torch()
    with tempfile.TemporaryDirectory(prefix="deltastore-bench-") as folder:
        place = Path(folder).as_uri()
        yield from measure_speed(f"{place}/speed", plan)
        gc.collect()  # else the trainer is still there, beside those of the next figures
        yield from measure_memory(place, plan)
