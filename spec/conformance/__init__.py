"""Testing any implementation of the format, in any language, through its standard input and output.

    python -m spec.conformance COMMAND [ARG...]

starts COMMAND, writes one request a line to it and reads one reply a line: JSON, as `spec/README.md` says. It
needs nothing but the standard library and NumPy, and nothing of the package.
"""

from __future__ import annotations
