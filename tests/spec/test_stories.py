"""What writes the streams below spec/vectors: what it writes today, the specification's decoder reads."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from spec import decoder
from spec.conformance.stores import STREAMS
from spec.vectors.make import by_hand_stream
from spec.vectors.make.objects import load
from spec.vectors.make.stories import STORIES


@pytest.mark.parametrize("name", STORIES)
def test_a_stream_that_is_written_today(name: str, tmp_path: Path) -> None:
    asyncio.run(_tell(name, tmp_path))
    facts = json.loads((tmp_path / f"{name}.json").read_text(encoding="ascii"))["versions"]
    assert decoder.check_stream(tmp_path / name) == len(facts)
    for version, expected in facts.items():
        manifest, tensors = decoder.read_version(tmp_path / name, int(version))
        assert manifest["digest"] == expected["digest"]
        for tensor, (array, bits) in tensors.items():
            found = hashlib.sha256(decoder.stored(array, bits)).hexdigest()
            assert found == expected["tensors"][tensor]["sha256"], (version, tensor)


async def _tell(name: str, folder: Path) -> None:
    await STORIES[name](folder, name)


def test_the_stream_made_by_hand_is_always_the_same() -> None:
    made = by_hand_stream.make()
    assert made.objects == load(STREAMS / by_hand_stream.NAME)
    facts = json.loads((STREAMS / f"{by_hand_stream.NAME}.json").read_text(encoding="ascii"))
    assert made.facts() == facts["versions"]
