"""``python -m deltastore``: the same as the command ``deltastore``."""

from __future__ import annotations

from deltastore.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
