"""The base of every JSON object: a pydantic model, its canonical bytes and its seal."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from deltastore.errors import CorruptError, InputError, RuleError
from deltastore.format.canonical import canonical_bytes, parse_canonical, seal, written
from deltastore.format.limits import FORMAT, MAX_INTEGER

__all__ = ["Count", "Hex16", "Hex32", "Sealed", "Sha256", "Strict", "breach", "first_problem"]

_MEMBERS: Final = 1 << 16
"""More members than any object has: each that no schema knows would be an error by itself."""

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
            value = cls.model_validate(_as_fields(fields, where))
        except ValidationError as error:
            raise breach(error, where) from None
        if written(value.model_dump(mode="json")) != data:
            message = f"{where}: a member that has a default is missing"
            raise CorruptError("bad_json", message, where=where, rule="DS013")
        return value

    def to_bytes(self) -> bytes:
        """The canonical form, as stored."""
        return canonical_bytes(self.model_dump(mode="json"))


def _as_fields(value: Any, where: str) -> Any:
    """The value with tuples for lists, as models have them: nothing is parsed, or copied into errors, again.

    What it was made of is used up, so that it is not in memory twice.
    """
    if isinstance(value, dict):
        if len(value) > _MEMBERS:
            message = f"{where}: an object in it has {len(value)} members, above {_MEMBERS}"
            raise CorruptError("bad_json", message, where=where, rule="DS013")
        places: Any = value
    elif isinstance(value, list):
        places = range(len(value))
    else:
        return value
    for place in places:
        if isinstance(value[place], dict | list):
            value[place] = _as_fields(value[place], where)
    return tuple(value) if isinstance(value, list) else value


def breach(error: ValidationError, where: str) -> CorruptError:
    """The error for an object that breaks a rule of its kind: DS013, or the one that states the rule."""
    first = _first(error)
    return CorruptError("bad_json", f"{where}: {_line(first)}", where=where, rule=_rule(first))


def first_problem(error: ValidationError) -> str:
    """One short line for the first thing pydantic found, without the offending input (it may be huge)."""
    return _line(_first(error))


def _first(error: ValidationError) -> ErrorDetails:
    """The first breach of the schema itself; where there is none, the first of any rule."""
    found = error.errors(include_url=False, include_input=False)
    return next((one for one in found if _rule(one) == "DS013"), found[0])


def _rule(found: ErrorDetails) -> str:
    context = found.get("ctx", {})
    if isinstance(context.get("error"), RuleError):
        return str(context["error"].rule)
    # The long lists of an object, of which SPEC section "Limits" says how long they may be.
    listed = found["type"] == "too_long" and context.get("field_type") == "Tuple"
    return "DS100" if listed and len(found["loc"]) == 1 else "DS013"


def _line(found: ErrorDetails) -> str:
    place = ".".join(f"{part!r:.80}".strip("'") for part in found["loc"])
    problem = found["msg"].removeprefix("Value error, ")
    return f"{place}: {problem}" if place else problem
