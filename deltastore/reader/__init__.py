"""What an engine holds: follows a stream and writes each version into live tensors."""

from __future__ import annotations

from deltastore.reader.following import AsyncReader, Synced
from deltastore.reader.opening import open_reader

__all__ = ["AsyncReader", "Synced", "open_reader"]
