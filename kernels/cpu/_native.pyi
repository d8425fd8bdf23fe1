from typing import Any

import numpy as np

def digest_range(bits: np.ndarray[Any, Any], first: int, seed: int, portable: bool = False) -> int:
    """Unchecked but for the dtype and the shape of ``bits``; ``portable`` shuts AVX2 out, for tests."""

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
