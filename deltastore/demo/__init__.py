"""``deltastore demo``: a model is trained, published and followed on this machine, and every bit compared."""

from __future__ import annotations
