"""The environment in which S3 clients find the servers' credentials, and nothing of the developer's own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from .server import ACCESS_KEY, SECRET_KEY


@contextlib.contextmanager
def only_our_credentials() -> Iterator[None]:
    """Every ``AWS_...`` variable is ours until the end, then what it was."""
    ours = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in ours.items():
            patch.setenv(name, value)
        yield
