"""How large records may be, and that all that a writer may want fits."""

from __future__ import annotations

import pytest

from deltastore.errors import CorruptError
from deltastore.format import limits
from deltastore.format.records import parse_record

from .record_fields import HASH, PACK, put, record, stored
from .test_record_rules import LARGEST, read, refused


@pytest.mark.spec("DS100")
def test_size_and_numbers_of_items() -> None:
    with pytest.raises(CorruptError) as caught:
        parse_record(b" " * (limits.RECORD_BYTES + 1), 3)
    assert caught.value.code == "too_large"
    packs = [PACK] * limits.PACKS_PER_VERSION
    assert len(read(put(record("delta"), ("packs",), packs)).packs) == limits.PACKS_PER_VERSION
    refused(put(record("delta"), ("packs",), [*packs, PACK]))
    files = [{"name": f"f{at}", "bytes": 0, "sha256": HASH} for at in range(limits.FILE_COUNT + 1)]
    assert len(read(put(record("anchor"), ("files",), files[:-1])).files) == limits.FILE_COUNT
    refused(put(record("anchor"), ("files",), files))


@pytest.mark.spec("DS100")
def test_the_largest_records_that_a_writer_may_want_fit() -> None:
    """All limits at once stay below the limit of a record."""
    notes = {f"{at:064d}": "\x01" * limits.METADATA_TEXT for at in range(limits.METADATA_ENTRIES)}
    widest = {
        "bytes": limits.PACK_BYTES,
        "rows": limits.ROWS_PER_PACK,
        "count": LARGEST,
        "slabs": [limits.SLABS] * 2,
    }
    packs = [{**PACK, **widest}] * limits.PACKS_PER_VERSION
    delta = stored({**record("delta"), "metadata": notes, "packs": packs})
    assert len(delta) < limits.RECORD_BYTES
    assert parse_record(delta, 3).kind == "delta"
    files = [
        {"name": f"{at:0200d}", "bytes": limits.FILE_BYTES, "sha256": HASH} for at in range(limits.FILE_COUNT)
    ]
    anchor = stored({**record("anchor"), "metadata": notes, "files": files})
    assert len(anchor) < limits.RECORD_BYTES
    assert parse_record(anchor, 2).kind == "anchor"
