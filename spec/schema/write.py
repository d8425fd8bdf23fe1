"""Write the JSON Schemas of every JSON object: ``python -m spec.schema.write``.

The pydantic models are the source, and what stands beside this file for what has none; a test fails when the
files differ from them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltastore.format.attestation import Attestation
from deltastore.format.inventory import Inventory
from deltastore.format.records import AnchorRecord, BirthRecord, DeltaRecord, EpochRecord
from deltastore.format.sealed import Sealed
from deltastore.format.table import TensorTable
from deltastore.format.votes import Attempt, Call, Claim, Ending, Join, Vote
from deltastore.layout.layout_object import LayoutObject
from spec.schema.vectors import CONFORMANCE, VECTORS
from spec.schema.zarr import ARRAY, GROUP

HERE = Path(__file__).parent
MODELS: dict[str, type[Sealed]] = {
    "birth": BirthRecord,
    "epoch": EpochRecord,
    "anchor": AnchorRecord,
    "delta": DeltaRecord,
    "table": TensorTable,
    "inventory": Inventory,
    "call": Call,
    "join": Join,
    "claim": Claim,
    "attempt": Attempt,
    "vote": Vote,
    "ending": Ending,
    "layout": LayoutObject,
    "attestation": Attestation,
}
OTHERS: dict[str, dict[str, Any]] = {
    "zarr-group": GROUP,
    "zarr-array": ARRAY,
    "vectors": VECTORS,
    "conformance": CONFORMANCE,
}
"""What is no sealed object."""


def schema_text(kind: str) -> str:
    """The schema file of one kind of object."""
    schema = OTHERS[kind] if kind in OTHERS else MODELS[kind].model_json_schema(mode="serialization")
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"


def main() -> None:
    """Write all of them."""
    for kind in (*MODELS, *OTHERS):
        (HERE / f"{kind}.json").write_text(schema_text(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
