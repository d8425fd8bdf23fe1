"""What a reader of a part fetches of an anchor: which objects, all of them or which byte ranges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltastore.format.listed import ListedObject

__all__ = ["AnchorPlan", "ObjectPlan"]


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """What is fetched of one object, for ``chunks`` of ``array``, whose elements take ``needed_bytes``.

    ``ranges``: the bytes (start, end) that hold the chunks, which start at ``offsets`` (k,); the index, of
    ``index_bytes``, is one more request. None: all of the object, in one request.
    """

    array: int
    chunks: list[int]
    entry: ListedObject
    needed_bytes: int
    index_bytes: int = 0
    offsets: NDArray[np.int64] | None = None
    ranges: tuple[tuple[int, int], ...] | None = None

    @property
    def requests(self) -> int:
        """Requests for the object."""
        return 1 if self.ranges is None else 1 + len(self.ranges)

    @property
    def nbytes(self) -> int:
        """Bytes fetched of the object."""
        if self.ranges is None:
            return self.entry.bytes
        return self.index_bytes + sum(end - start for start, end in self.ranges)


@dataclass(frozen=True, slots=True)
class AnchorPlan:
    """What is fetched of an anchor: inventory and metadata in ``opening_requests``, then object by object.

    ``sums_bytes``: those of the object of sums, one request more, where an object is fetched by ranges.
    """

    opening_requests: int
    opening_bytes: int
    objects: tuple[ObjectPlan, ...]
    sums_bytes: int = 0

    @property
    def requests(self) -> int:
        """Requests, beside those for the log."""
        return self.opening_requests + (self.sums_bytes > 0) + sum(one.requests for one in self.objects)

    @property
    def nbytes(self) -> int:
        """Bytes fetched."""
        return self.opening_bytes + self.sums_bytes + sum(one.nbytes for one in self.objects)

    @property
    def needed_bytes(self) -> int:
        """Bytes of the elements of all needed chunks."""
        return sum(one.needed_bytes for one in self.objects)

    @property
    def index_bytes(self) -> int:
        """Bytes of inventory, metadata, sums, and indexes that are fetched by themselves."""
        return self.opening_bytes + self.sums_bytes + sum(one.index_bytes for one in self.objects)
