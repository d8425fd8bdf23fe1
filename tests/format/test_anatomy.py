"""What stands where in patches: sound ones, cut ones, and any bytes at all."""

from __future__ import annotations

import numpy as np
import pytest

from deltastore.format.anatomy import dissect
from deltastore.format.dtypes import DTYPES
from deltastore.format.patch import Encoding
from tests.format.corpus import MOTIONS, make_change


@pytest.mark.parametrize("dtype", ["BF16", "F32", "U8", "I64"])
def test_parts_cover_a_patch_and_agree_with_its_decoder(dtype: str) -> None:
    draw = np.random.default_rng(3)
    element = DTYPES[dtype]
    for elements in (1, 7, 300, 5000):
        for motion in MOTIONS:
            change = make_change(element, elements, 0.2, motion, draw)
            encoded = change.encode(may_be_raw=motion == MOTIONS[0])
            found = dissect(encoded.data, int(encoded.encoding), elements, element.bits)
            assert found.needed == len(encoded.data)
            assert [part.start for part in found.parts] == [0, *(part.end for part in found.parts[:-1])]
            assert found.parts[-1].end == len(encoded.data)
            assert all(part.name != "rest" for part in found.parts)
            if encoded.encoding == Encoding.RUNS:
                assert sum(run.count for run in found.runs) == encoded.count
                alone = dissect(encoded.data, int(encoded.encoding), None, None)
                if len(found.runs) == 1:
                    assert [(part.start, part.end) for part in alone.parts] == [
                        (part.start, part.end) for part in found.parts
                    ]
                else:
                    assert alone.needed is None
                    assert alone.runs[0].low == found.runs[0].low


def test_any_bytes_are_survived() -> None:
    draw = np.random.default_rng(4)
    for size in (0, 1, 3, 4, 11, 12, 40, 300):
        for encoding in (0, 1, 2, 9):
            for elements in (None, 1, 1 << 20):
                data = draw.bytes(size) if size % 2 else bytes([1 + size % 3, 0, 0, 0]) + draw.bytes(size)
                found = dissect(data, encoding, elements, None if elements is None else 16)
                spans = [(part.start, part.end) for part in found.parts]
                assert all(start <= end <= len(data) for start, end in spans)
                assert spans == sorted(spans)
