"""A rollout engine of the demo, in a process of its own: it follows the stream and generates.

    python -m deltastore.demo.engine URL --until VERSION --bits FILE [--checkpoint FOLDER]

Reports go to standard output, one line for each version. The bits that it ends with go to FILE.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import deltastore
from deltastore.demo.bits import bf16_bits, fingerprint, write_bits
from deltastore.demo.report import Report

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

__all__ = ["main"]

PROMPT: Final = b"def __init__(self"

_NEW_TOKENS: Final = 12
_PATIENCE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.005
_SEED: Final = 1


def main(arguments: list[str] | None = None) -> int:
    """Run one engine; the exit status is 0 once version ``--until`` was reported, else that of the error."""
    parser = argparse.ArgumentParser(prog="python -m deltastore.demo.engine")
    parser.add_argument("url")
    parser.add_argument("--until", type=int, required=True)
    parser.add_argument("--bits", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path)
    options = parser.parse_args(arguments)
    try:
        with _reports_only() as lines, deltastore.open(options.url) as stream:
            model = _load(options.checkpoint)
            for report in _follow(stream, model, until=options.until):
                lines.write(report.to_line())
                lines.flush()
            write_bits(bf16_bits(model.state_dict()), options.bits)
    except deltastore.DeltastoreError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return 0


def _reports_only() -> TextIO:
    """Standard output, kept for reports: what a library prints from now on goes to standard error."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lines


def _load(checkpoint: Path | None) -> Qwen3ForCausalLM:
    from deltastore.demo.model import empty_engine, load_engine, require_libraries

    require_libraries()
    return empty_engine(_SEED) if checkpoint is None else load_engine(checkpoint)


def _follow(stream: deltastore.Stream, model: Qwen3ForCausalLM, *, until: int) -> Iterator[Report]:
    """Take every version up to ``until``, one after the other, so that each can be compared."""
    reader = stream.reader(model.state_dict())
    following = 0
    while following <= until:
        if following > reader.newest and not reader.wait(timeout=_PATIENCE_SECONDS, interval=_POLL_SECONDS):
            raise deltastore.NotFoundError(
                "no_version",
                f"no version {following} after {_PATIENCE_SECONDS:.0f} s: has the trainer stopped?",
            )
        synced = reader.sync(following)
        visible_at = time.monotonic()
        yield Report(
            version=synced.version,
            visible_at=visible_at,
            pause_ms=synced.pause_seconds * 1000,
            nbytes=synced.nbytes,
            sha256=fingerprint(bf16_bits(model.state_dict())),
            tokens=_generate(model),
        )
        following += 1


def _generate(model: Qwen3ForCausalLM) -> list[int]:
    """What the model continues the prompt with, greedily."""
    import torch

    prompt = torch.tensor([list(PROMPT)])
    with torch.no_grad():
        output = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=_NEW_TOKENS
        )
    tokens: list[int] = output[0, len(PROMPT) :].tolist()
    return tokens


if __name__ == "__main__":
    raise SystemExit(main())
