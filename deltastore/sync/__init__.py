"""The sync face: the same calls as the async core, each run to its end on the stream's own event loop.

No loop is shared: a ``Stream`` owns one ``asyncio.Runner`` and lends it to the writers and readers that it
makes. No thread is started but by ``Writer.publish_async``. Inside an event loop, use ``AsyncStream``.
"""

from __future__ import annotations

from deltastore.sync.reader import Reader
from deltastore.sync.stream import Stream, create, open
from deltastore.sync.writer import Pending, Writer

__all__ = ["Pending", "Reader", "Stream", "Writer", "create", "open"]
