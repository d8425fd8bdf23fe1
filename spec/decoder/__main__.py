"""``python -m spec.decoder``."""

from __future__ import annotations

import sys

from spec.decoder.command import main

sys.exit(main(sys.argv[1:]))
