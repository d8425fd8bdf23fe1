"""A soak: trainers and readers of one stream on a store that fails, for as long as you like.

    python -m deltastore.bench.soak URL --minutes 10 --seed 1

Whatever happens to trainers, readers and requests, a reader that says it holds a version holds its very bits.
The soak remembers those bits by a sha256 of its own, taken before each publish.
"""

from __future__ import annotations
