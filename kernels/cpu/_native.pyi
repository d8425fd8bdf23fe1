from typing import Any

import numpy as np

def digest_range(bits: np.ndarray[Any, Any], first: int, seed: int, portable: bool = False) -> int:
    """Unchecked but for the dtype and the shape of ``bits``; ``portable`` shuts AVX2 out, for tests."""
