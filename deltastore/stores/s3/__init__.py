"""Buckets of S3 and of servers that speak its protocol, over aiobotocore."""

from __future__ import annotations

from deltastore.stores.s3.store import MULTIPART_BYTES, S3Store

__all__ = ["MULTIPART_BYTES", "S3Store"]
