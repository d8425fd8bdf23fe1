"""The decoder as a command."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from spec.decoder.checking import check_stream
from spec.decoder.reading import read_version
from spec.decoder.refusal import SpecError
from spec.decoder.serving import serve
from spec.decoder.table import stored

USAGE = """usage: python -m spec.decoder STREAM_DIRECTORY [VERSION]   prints what a version holds
       python -m spec.decoder --check STREAM_DIRECTORY     judges the whole stream
       python -m spec.decoder --serve                      answers the requests of spec.conformance"""


def main(arguments: list[str]) -> int:
    """Print what a version holds, or that a stream is sound; the status is 1 where it is refused."""
    if arguments == ["--serve"]:
        return serve(sys.stdin.buffer, sys.stdout.buffer)
    check = arguments[:1] == ["--check"]
    wanted = arguments[1:] if check else arguments
    wrong = len(wanted) not in ((1,) if check else (1, 2)) or wanted[0].startswith("-")
    if wrong or not all(map(str.isdecimal, wanted[1:])):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        shown = sound(Path(wanted[0])) if check else held(Path(wanted[0]), *map(int, wanted[1:]))
    except SpecError as error:
        print(f"{error.where}: {error}" if check and error.where else error, file=sys.stderr)
        return 1
    print(json.dumps(shown, indent=2, ensure_ascii=False))
    return 0


def held(root: Path, version: int | None = None) -> dict[str, object]:
    """What a version holds: its digest, and the SHA-256 of the bits of every tensor."""
    manifest, bits = read_version(root, version)
    hashes = {name: hashlib.sha256(stored(*one)).hexdigest() for name, one in bits.items()}
    return {"version": manifest["version"], "digest": manifest["digest"], "tensors": hashes}


def sound(root: Path) -> dict[str, object]:
    """That a stream keeps every requirement."""
    return {"versions": check_stream(root)}
