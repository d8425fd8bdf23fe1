"""Kernels in C++: one thread, GIL released, the answers of ``deltastore.kernels.reference`` bit for bit."""

from __future__ import annotations

try:
    from deltastore.kernels.cpu import _native  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the compiled kernels of deltastore are missing or of another Python: "
        "run `pip install -e .` in the repository (it needs a C++17 compiler), or install a wheel"
    ) from error

from deltastore.kernels.cpu.digest import digest_range

__all__ = ["digest_range"]
