"""Anchors: versions stored whole, as Zarr v3 groups that any Zarr reader opens."""

from __future__ import annotations

from deltastore.anchors.reading import AnchorWeights
from deltastore.anchors.writing import write_anchor

__all__ = ["AnchorWeights", "write_anchor"]
