"""What the server that forks processes loads: all that they need but tensorstore, which no fork survives."""

from __future__ import annotations

import gc
from importlib import import_module

for _module in ("tests.crash.writers_process", "deltastore.stores.s3.connection"):
    import_module(_module)
# Nothing of this is ever freed: collections in the children need not touch, and so copy, its memory.
gc.freeze()
