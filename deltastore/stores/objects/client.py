"""From an address to obstore's object for it, with its retries off and its bounds set."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import obstore.store

from deltastore.errors import StoreError
from deltastore.stores.address import BucketAddress
from deltastore.stores.retrying import Retrying

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Config

__all__ = ["object_store"]

# Retries are ours: obstore's would take a second answer to a creation for the first.
_ONCE: RetryConfig = {"max_retries": 0, "retry_timeout": timedelta(0)}


def object_store(address: BucketAddress, retrying: Retrying) -> ObjectStore:
    """obstore's store of the bucket. Raises ``StoreError("store_failed")`` for a wrong environment."""
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=retrying.connect),
        "read_timeout": timedelta(seconds=retrying.read),
        # Each attempt has its own end, which grows with what it moves.
        "timeout": timedelta(days=1),
        "allow_http": address.endpoint is not None and address.endpoint.startswith("http://"),
    }
    try:
        if address.scheme == "gs":
            return obstore.store.GCSStore(address.bucket, client_options=client, retry_config=_ONCE)
        if address.scheme == "az":
            return obstore.store.AzureStore(address.bucket, client_options=client, retry_config=_ONCE)
        return obstore.store.S3Store(
            address.bucket, config=_s3(address), client_options=client, retry_config=_ONCE
        )
    except (obstore.exceptions.BaseError, ValueError) as error:
        # Its text may repeat what the environment holds.
        name = type(error).__name__
        message = f"cannot open {address.url}: {name}; check the credentials and settings in the environment"
        raise StoreError("store_failed", message) from None


def _s3(address: BucketAddress) -> S3Config:
    config: S3Config = {"checksum_algorithm": "SHA256", "conditional_put": "etag"}
    if address.endpoint is not None:
        config["endpoint"] = address.endpoint
    if address.region is not None:
        config["region"] = address.region
    if address.path_style is not None:
        config["virtual_hosted_style_request"] = not address.path_style
    return config
