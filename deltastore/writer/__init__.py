"""What a trainer holds: finds changes, uploads packs, commits versions."""

from __future__ import annotations

from deltastore.writer.background import Publishing
from deltastore.writer.opening import open_writer
from deltastore.writer.published import Published
from deltastore.writer.publishing import AsyncWriter
from deltastore.writer.whole import create_stream, publish_weights

__all__ = ["AsyncWriter", "Published", "Publishing", "create_stream", "open_writer", "publish_weights"]
