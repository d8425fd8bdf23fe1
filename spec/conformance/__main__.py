"""``python -m spec.conformance``."""

from __future__ import annotations

import sys

from spec.conformance.command import main

sys.exit(main(sys.argv[1:]))
