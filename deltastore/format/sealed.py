"""The base of every JSON object: a pydantic model, its canonical bytes and its seal."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deltastore.errors import CorruptError, InputError
from deltastore.format.canonical import canonical_bytes, parse_canonical, seal
from deltastore.format.limits import FORMAT, MAX_INTEGER

__all__ = ["Count", "Hex16", "Hex32", "Sealed", "Sha256", "Strict", "first_problem"]

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Hex16 = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


class Strict(BaseModel):
    """A JSON value of exactly these members, each of exactly its type."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, json_schema_serialization_defaults_required=True
    )


class Sealed(Strict):
    """A JSON object that stands in a store by itself.

    ``sha256`` is the hash of the object's canonical form without that member. ``seal_new`` computes it;
    ``from_bytes`` checks it.
    """

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)]
    kind: str
    sha256: Sha256

    @classmethod
    def seal_new(cls, **fields: Any) -> Self:
        """A new object with its format version, kind and seal filled in.

        Raises ``InputError("bad_argument")`` for fields that break a rule of the kind.
        """
        kind = cls.model_fields["kind"].default
        draft = cls.model_construct(**{"format": 1, "kind": kind, **fields, "sha256": ""})
        plain = draft.model_dump(mode="json", warnings="none")
        try:
            return cls.model_validate_json(canonical_bytes(seal(plain)))
        except ValidationError as error:
            raise InputError("bad_argument", f"not a {kind}: {first_problem(error)}") from None

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """Parse and check; ``CorruptError("bad_json" | "bad_hash")`` names ``where`` and the problem."""
        fields = parse_canonical(data, where)
        try:
            value = cls.model_validate_json(data)
        except ValidationError as error:
            raise CorruptError("bad_json", f"{where}: {first_problem(error)}", where=where) from None
        if value.model_dump(mode="json") != fields:
            raise CorruptError("bad_json", f"{where}: a member that has a default is missing", where=where)
        return value

    def to_bytes(self) -> bytes:
        """The canonical form, as stored."""
        return canonical_bytes(self.model_dump(mode="json"))


def first_problem(error: ValidationError) -> str:
    """One short line for the first thing pydantic found, without the offending input (it may be huge)."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(f"{part!r:.80}".strip("'") for part in first["loc"])
    problem = first["msg"].removeprefix("Value error, ")
    return f"{place}: {problem}" if place else problem
