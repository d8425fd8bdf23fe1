"""What writers tell each other: every field, its limits, and keys that cannot leave their prefix."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.errors import CorruptError, InputError, UnsupportedError
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.limits import (
    MAX_INTEGER,
    MAX_RANK,
    PACKS_PER_VERSION,
    REASON_TEXT,
    RUN_TEXT,
    VOTE_BYTES,
    WRITERS,
)
from deltastore.format.sealed import Sealed
from deltastore.format.votes import (
    Attempt,
    Call,
    Claim,
    Ending,
    Join,
    Owned,
    Vote,
    attempt_prefix,
    call_prefix,
    claim_key,
    writer_name,
)
from deltastore.stores.base import check_key

HASH = "ab" * 32
NONCE = "cd" * 16
DIGEST = "0123456789abcdef"
PACK = {"sha256": HASH, "bytes": 500, "index_sha256": HASH, "rows": 2, "count": 9, "slabs": [0, 0]}

SOUND: dict[type[Sealed], dict[str, Any]] = {
    Call: {"run": "r1", "call": 0, "nonce": NONCE, "writers": 4, "table": HASH},
    Join: {"call": HASH, "rank": 3, "nonce": NONCE, "label": "node-3", "claim": HASH, "digest": DIGEST},
    Claim: {"table": HASH, "boxes": [{"array": 0, "start": [0, 1], "size": [2, 3]}]},
    Attempt: {
        "epoch": 7,
        "epoch_nonce": NONCE,
        "attempt": 3,
        "nonce": NONCE,
        "version": 41,
        "base": 40,
        "parent": HASH,
        "table": HASH,
        "step": -5,
    },
    Vote: {
        "attempt": HASH,
        "rank": 3,
        "nonce": NONCE,
        "epoch_nonce": NONCE,
        "parent": HASH,
        "step": None,
        "claim": HASH,
        "packs": [PACK],
        "changed": 9,
        "difference": DIGEST,
        "detector": "snapshot",
    },
    Ending: {"rank": 0, "reason": "the store is full"},
}


def stored(kind: type[Sealed], fields: dict[str, Any]) -> bytes:
    """As any program may have written it."""
    return canonical_bytes(seal({"format": 1, "kind": kind.model_fields["kind"].default, **fields}))


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_one_comes_back(kind: type[Sealed]) -> None:
    data = stored(kind, SOUND[kind])
    value = kind.from_bytes(data, "there")
    assert value.to_bytes() == data
    fields = {name: getattr(value, name) for name in SOUND[kind]}
    assert kind.seal_new(**fields) == value
    assert len(data) <= VOTE_BYTES


@pytest.mark.parametrize("kind", SOUND)
def test_every_member_is_due_and_no_other(kind: type[Sealed]) -> None:
    for name in SOUND[kind]:
        with pytest.raises(CorruptError) as refusal:
            kind.from_bytes(
                stored(kind, {key: it for key, it in SOUND[kind].items() if key != name}), "there"
            )
        assert (refusal.value.code, refusal.value.where) == ("bad_json", "there")
    with pytest.raises(CorruptError, match="there"):
        kind.from_bytes(stored(kind, {**SOUND[kind], "extra": 1}), "there")


@pytest.mark.parametrize("kind", SOUND)
def test_any_other_kind_or_format_is_refused(kind: type[Sealed]) -> None:
    with pytest.raises(CorruptError) as refusal:
        kind.from_bytes(stored(kind, {**SOUND[kind], "kind": "birth"}), "there")
    assert refusal.value.code == "bad_json"
    with pytest.raises(UnsupportedError):
        kind.from_bytes(stored(kind, {**SOUND[kind], "format": 2}), "there")


@pytest.mark.parametrize("kind", SOUND)
def test_every_cut_and_every_flipped_bit_is_noticed(kind: type[Sealed]) -> None:
    data = stored(kind, SOUND[kind])
    for end in range(len(data)):
        with pytest.raises(CorruptError):
            kind.from_bytes(data[:end], "there")
    for at in range(len(data)):
        with pytest.raises((CorruptError, UnsupportedError)):
            kind.from_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "there")


BAD: list[tuple[type[Sealed], str, Any]] = [
    *(
        (Call, "run", run)
        for run in ("", "a/b", "..", ".a", "-a", "a b", "ü", "a" * (RUN_TEXT + 1), "a\n", 1, None)
    ),
    *((Call, "writers", count) for count in (0, -1, WRITERS + 1, 1.0, True, "4", None)),
    *((Call, "call", number) for number in (-1, MAX_INTEGER + 1, 0.5, None)),
    *(
        (Call, "nonce", nonce)
        for nonce in ("", NONCE.upper(), NONCE[:-1], NONCE + "0", "g" * 32, NONCE + "\n")
    ),
    *((Call, "table", sha) for sha in ("", HASH[:-1], HASH.upper(), HASH + "0")),
    *((Join, "rank", rank) for rank in (-1, WRITERS, True, "0")),
    *((Join, "digest", digest) for digest in ("", DIGEST[:-1], DIGEST.upper(), "0x" + DIGEST[2:], 5)),
    (Join, "label", "x" * 5000),
    (Claim, "boxes", [{"array": -1, "start": [0], "size": [1]}]),
    (Claim, "boxes", [{"array": 0, "start": [-1], "size": [1]}]),
    (Claim, "boxes", [{"array": 0, "start": [], "size": []}]),
    (Claim, "boxes", [{"array": 0, "start": [0] * (MAX_RANK + 2), "size": [1] * (MAX_RANK + 2)}]),
    (Claim, "boxes", [{"array": 0, "start": [0]}]),
    (Claim, "boxes", None),
    *((Attempt, name, -1) for name in ("epoch", "attempt", "version", "base")),
    (Attempt, "base", None),
    (Attempt, "parent", None),
    *((Attempt, "step", step) for step in (2**53, -(2**53), 0.5, "1", True)),
    *((Vote, "step", step) for step in (2**53, -(2**53), 0.5, "1", True)),
    (Vote, "packs", [{**PACK, "bytes": 0}]),
    (Vote, "packs", [{**PACK, "rows": 0}]),
    (Vote, "packs", [{**PACK, "rows": 400}]),
    (Vote, "packs", [PACK] * (PACKS_PER_VERSION + 1)),
    (Vote, "changed", -1),
    (Ending, "reason", "x" * (REASON_TEXT + 1)),
    (Ending, "reason", None),
]


@pytest.mark.parametrize(("kind", "name", "value"), BAD)
def test_a_member_outside_its_range(kind: type[Sealed], name: str, value: Any) -> None:
    with pytest.raises(CorruptError) as refusal:
        kind.from_bytes(_sealed_anyhow(kind, {**SOUND[kind], name: value}), "there")
    assert refusal.value.code == "bad_json"
    assert refusal.value.where == "there"


def _sealed_anyhow(kind: type[Sealed], fields: dict[str, Any]) -> bytes:
    """A float or a huge integer has no canonical form: written by hand."""
    try:
        return stored(kind, fields)
    except (InputError, ValueError, TypeError):
        import json

        return json.dumps({"format": 1, "kind": "any", **fields}, sort_keys=True).encode()


def test_a_whole_version_has_neither_base_nor_parent() -> None:
    fields = {**SOUND[Attempt], "base": None, "parent": None}
    assert Attempt.from_bytes(stored(Attempt, fields), "there") == Attempt.seal_new(**fields)


def test_a_box_is_made_only_of_counts() -> None:
    assert Owned(array=0, start=(0,), size=(1,)).start == (0,)


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", fullmatch=True), st.integers(0, MAX_INTEGER))
def test_every_run_gives_keys_that_a_store_takes(run: str, number: int) -> None:
    Call.from_bytes(stored(Call, {**SOUND[Call], "run": run}), "there")
    assert check_key(call_prefix(run, number) + writer_name(WRITERS - 1)).startswith(f"joining/{run}/")
    assert check_key(attempt_prefix(number, number) + writer_name(0)).endswith("/00000.json")
    assert check_key(claim_key(HASH)) == f"claims/{HASH}.json"


@given(st.lists(st.integers(0, MAX_INTEGER), min_size=2, max_size=2), st.integers(0, 99))
def test_keys_are_in_the_order_of_their_numbers(numbers: list[int], rank: int) -> None:
    low, high = sorted(numbers)
    assert (attempt_prefix(1, low) < attempt_prefix(1, high)) == (low < high)
    assert writer_name(rank) < writer_name(rank + 1)
