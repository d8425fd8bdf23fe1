"""``deltastore bench shards``: what each rank of a sharded engine fetches of a delta, and how it applies."""

from __future__ import annotations
