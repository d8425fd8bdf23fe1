"""The one error of an unusable checkpoint."""

from __future__ import annotations

from pathlib import Path

from deltastore.errors import InputError

__all__ = ["bad_checkpoint", "cannot", "shown"]


def shown(text: str, limit: int = 120) -> str:
    """Text of an untrusted file as an error message may repeat it: quoted, on one line, never long."""
    return ascii(text if len(text) <= limit else text[:limit] + "...")


def bad_checkpoint(path: Path, problem: str) -> InputError:
    """Return the error for a checkpoint that breaks its own rules; ``problem`` says which, and what to do."""
    return InputError("bad_checkpoint", f"{shown(str(path), 400)}: {problem}", where=str(path))


def cannot(act: str, path: Path, error: OSError) -> InputError:
    """Return the error for what the operating system refused; ``act`` is a verb such as ``read``."""
    reason = error.strerror or type(error).__name__
    code = "bad_argument" if act == "write" else "bad_checkpoint"
    message = f"cannot {act} {shown(str(path), 400)}: {reason}; check the path, its permissions and the disk"
    return InputError(code, message, where=str(path))
