"""The inventory of an anchor: all its objects by length and hash (SPEC section "Anchors")."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from deltastore.format.limits import INVENTORY_KEY_TEXT, INVENTORY_OBJECTS, OBJECT_BYTES
from deltastore.format.sealed import Sealed, Sha256, Strict

__all__ = ["KEY", "Inventory", "InventoryObject"]

_SEGMENT = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"
KEY = f"{_SEGMENT}(?:/{_SEGMENT})*"
"""What the keys of objects look like, as a pattern."""


class InventoryObject(Strict):
    """One object of an anchor; ``key`` is relative to the anchor's prefix."""

    key: Annotated[str, Field(pattern=f"^{KEY}$", max_length=INVENTORY_KEY_TEXT)]
    bytes: Annotated[int, Field(ge=0, le=OBJECT_BYTES)]
    sha256: Sha256


class Inventory(Sealed):
    """All objects of an anchor, sorted by key."""

    kind: Literal["inventory"] = "inventory"
    objects: Annotated[tuple[InventoryObject, ...], Field(max_length=INVENTORY_OBJECTS, fail_fast=True)]

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        keys = [entry.key for entry in self.objects]
        if keys != sorted(set(keys)):
            raise ValueError("objects are not in order, or listed twice")
        return self
