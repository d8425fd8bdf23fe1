"""Asking implementations in this process what ``spec.conformance`` asks, and judging the answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from spec.answering import Operation, Refusal
from spec.conformance.case import Case
from spec.decoder import serving
from spec.product import OPERATIONS
from spec.product import refusal as refusal_of_the_product

Fields = dict[str, Any]

IMPLEMENTATIONS: dict[str, tuple[Mapping[str, Operation], Refusal]] = {
    "decoder": (serving.OPERATIONS, serving.refusal),
    "product": (OPERATIONS, refusal_of_the_product),
}


def reply_of(implementation: str, request: Fields) -> Fields:
    """What an implementation replies, as it comes out of its output."""
    operations, refusal = IMPLEMENTATIONS[implementation]
    try:
        reply: Fields = {"ok": operations[request["op"]](request)}
    except Exception as error:
        found = refusal(error)
        if found is None:
            raise
        reply = {"error": found}
    plain: Fields = json.loads(json.dumps(reply))
    return plain


def problems(implementation: str, cases: Iterable[Case]) -> list[str]:
    """Every case that is not answered as it must be."""
    found = []
    for case in cases:
        with case.prepare():
            problem = case.judge(reply_of(implementation, case.request))
        if problem is not None:
            found.append(f"{case.file}, {case.name}: {problem}")
    return found
