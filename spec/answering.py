"""The answering side of ``spec.conformance``: a JSON request a line in, a JSON reply a line out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, TypeVar

Value = TypeVar("Value")
Operation = Callable[[dict[str, Any]], dict[str, Any]]
Refusal = Callable[[Exception], dict[str, Any] | None]
"""The member ``error`` of a reply for what an operation raised; None where that is no refusal."""


class NotKnownError(Exception):
    """What is asked for is of no kind that is known."""


def known(table: Mapping[str, Value], name: str) -> Value:
    """What a table has under a name of the request."""
    if name not in table:
        raise NotKnownError(name)
    return table[name]


def answer(
    operations: Mapping[str, Operation], refusal: Refusal, requests: BinaryIO, replies: BinaryIO
) -> int:
    """Answer every request until there are no more, and return 0.

    A request has the members ``id`` and ``op`` beside those of its operation. What an operation raises that
    is no refusal ends the answering.
    """
    for line in requests:
        request = json.loads(line)
        operation = operations.get(request["op"])
        reply: dict[str, Any] = {"unsupported": True}
        if operation is not None:
            try:
                reply = {"ok": operation(request)}
            except NotKnownError:
                pass
            except Exception as error:
                found = refusal(error)
                if found is None:
                    raise
                reply = {"error": found}
        replies.write(json.dumps({"id": request["id"], **reply}).encode() + b"\n")
        replies.flush()
    return 0
