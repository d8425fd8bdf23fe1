"""What botocore may write into logs: no token, no key and no signature, at any level.

At DEBUG it logs requests with all their headers, among them ``x-amz-security-token`` and ``Authorization``,
and replies with all they say: the credentials of a role, or a refusal that repeats what was sent.
"""

from __future__ import annotations

import logging
import re
from typing import Final

__all__ = ["keep_secrets"]

_HIDDEN: Final = "(hidden)"
_REQUESTS: Final = ("botocore.auth", "botocore.endpoint")
_REPLIES: Final = ("botocore.parsers",)
# In a dict ('name': b'value'), in the canonical form (name:value), and in a query (name=value).
_SECRET: Final = re.compile(
    r"""((?:x-amz-[a-z0-9-]*token|x-amz-credential|x-amz-signature|authorization)['"]?\s*[:=]\s*)"""
    r"""(?:b?'[^']*'|b?"[^"]*"|[^\s,;&}]+)""",
    re.IGNORECASE | re.ASCII,
)


class _Requests(logging.Filter):
    """Hides in the text of a record the values of headers and parameters that tell who asks."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _SECRET.sub(rf"\1{_HIDDEN}", record.getMessage()), ()
        return True


class _Replies(logging.Filter):
    """Hides everything that a record was given: a server may say anything."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.args:
            record.msg, record.args = str(record.msg).partition("%")[0] + _HIDDEN, ()
        return True


_FILTERS: Final = {name: _Requests() for name in _REQUESTS} | {name: _Replies() for name in _REPLIES}


def keep_secrets() -> None:
    """Put the filters on botocore's loggers; again does nothing."""
    for name, hides in _FILTERS.items():
        logging.getLogger(name).addFilter(hides)
