"""Live weights of an engine beside a version: files that they come in, and what differs."""

from __future__ import annotations

from deltastore.validate.live.comparing import compare_live
from deltastore.validate.live.files import Attestations, Dump, LiveFiles, open_live, read_layout
from deltastore.validate.live.report import LiveReport

__all__ = ["Attestations", "Dump", "LiveFiles", "LiveReport", "compare_live", "open_live", "read_layout"]
