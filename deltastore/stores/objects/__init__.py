"""Buckets of S3, Google Cloud Storage and Azure, over obstore."""

from __future__ import annotations

from deltastore.stores.objects.store import ObjectsStore

__all__ = ["ObjectsStore"]
