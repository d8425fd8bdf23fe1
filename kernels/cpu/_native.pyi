from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

def digest_range(bits: Array, first: int, seed: int, instructions: int) -> int:
    """Unchecked but for the dtype and the shape of ``bits``."""

def digest_chunks(pieces: Pieces, chunks: Array, digests: Array, threads: int, instructions: int) -> int:
    """Fills ``digests``. The number of the first chunk that cannot be digested, or of all chunks."""

def digest_blocks(
    starts: Array, runs: Array, bits: Array, digests: Array, threads: int, instructions: int
) -> None:
    """Fills ``digests`` (B,); ``starts`` (B + 1,) and ``runs`` (n, 4) int64 stay inside ``bits``."""

def invert(
    starts: Array,
    lines: Array,
    runs: Array,
    rules: Array,
    wanted: Array,
    new: Array,
    old: Array,
    digests: Array,
    outcomes: Array,
    uncertain: Array,
    threads: int,
    instructions: int,
) -> None:
    """Fills ``new`` to ``uncertain``; ``lines`` (n, 9) int64 hold addresses, which are not checked."""

def encode_changed(
    new: Pieces, old: Pieces, chunks: Array, threads: int, instructions: int
) -> tuple[int, int, Array, Array, Array]:
    """(0, n, rows, body, changed), or why a chunk is refused and which: (refusal, chunk, None, ...)."""

def encode_listed(
    table: Table,
    chunks: Array,
    starts: Array,
    positions: Array,
    offsets: Array,
    new: Array,
    old: Array,
    whole: Pieces | None,
    threads: int,
    instructions: int,
) -> tuple[int, int, Array, Array, Array]:
    """As ``encode_changed``; ``starts`` and ``offsets`` lead nowhere beyond what they index."""

def supported_instructions() -> int: ...

class Table:
    def add(self, extent: list[int], chunk: list[int], itemsize: int, floating: bool) -> None: ...
    def set_seeds(self, array: int, seeds: np.ndarray[Any, Any]) -> None: ...

class Pieces:
    def __init__(self, table: Table) -> None: ...
    def add(
        self,
        array: int,
        member: int,
        lo: list[int],
        size: list[int],
        stride: list[int],
        address: int,
    ) -> None: ...
    def finish(self) -> None: ...

class Staged:
    def __init__(
        self,
        chunks: Array,
        starts: Array,
        positions: Array,
        offsets: Array,
        bits: Array,
    ) -> None: ...
    def first_bad(self, table: Table, threads: int) -> int: ...

def check(table: Table, rows: Array, body: Array, threads: int, instructions: int) -> tuple[int, int]: ...
def apply(pieces: Pieces, rows: Array, body: Array, threads: int, instructions: int) -> tuple[int, int]: ...
def count_held(
    pieces: Pieces,
    rows: Array,
    body: Array,
    counts: Array,
    threads: int,
    instructions: int,
) -> tuple[int, int]: ...
def resolve(
    pieces: Pieces,
    rows: Array,
    body: Array,
    under: Staged | None,
    under_rows: Array,
    starts: Array,
    offsets: Array,
    positions: Array,
    bits: Array,
    differences: Array,
    threads: int,
    instructions: int,
) -> tuple[int, int]: ...
def scatter(pieces: Pieces, staged: Staged, threads: int) -> None: ...
def mismatches(pieces: Pieces, staged: Staged, threads: int) -> int: ...
def count_merged(
    first: Staged,
    second: Staged,
    of_first: Array,
    of_second: Array,
    counts: Array,
    threads: int,
) -> int: ...
def merge(
    table: Table,
    first: Staged,
    second: Staged,
    of_first: Array,
    of_second: Array,
    starts: Array,
    offsets: Array,
    positions: Array,
    bits: Array,
    threads: int,
) -> None: ...
def read_both(first: Array, second: Array, threads: int) -> int: ...
