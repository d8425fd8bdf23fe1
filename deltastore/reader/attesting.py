"""What a reader attests: the digests of what its memory holds now, for somebody else to compare."""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from deltastore.errors import InputError
from deltastore.format.attestation import Attestation
from deltastore.format.digest import digest_text
from deltastore.format.records import check_label
from deltastore.format.table import TensorTable
from deltastore.format.votes import Owned
from deltastore.kernels.rows import places_of
from deltastore.layout.batches import chunks_in_order
from deltastore.layout.held import boxes_of
from deltastore.log import Manifest
from deltastore.reader.needed import Needed
from deltastore.reader.targets import Targets

__all__ = ["attested", "write_attestation"]

_NONCE: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


def attested(
    table: TensorTable,
    targets: Targets[Any],
    needed: Needed | None,
    record: Manifest,
    *,
    stream: str,
    nonce: str | None,
    label: str,
) -> Attestation:
    """What live memory holds, while the reader believes that it is the version of ``record``.

    Reads every element that is held. Raises ``InputError("bad_argument")`` for a nonce that is not 32
    lower-case hexadecimal digits, or a label that is too long.
    """
    if nonce is not None and _NONCE.fullmatch(nonce) is None:
        raise InputError("bad_argument", f"a nonce is 32 lower-case hexadecimal digits, not {nonce!r:.80}")
    chunks = chunks_in_order(table) if needed is None else needed.chunks
    chunks = chunks[np.argsort(places_of(chunks), kind="stable")]
    digests = targets.digests(chunks)
    shard = targets.shard
    boxes = None
    if shard is not None:
        boxes = tuple(Owned(array=box.array, start=box.start, size=box.size) for box in boxes_of(shard.boxes))
    return Attestation.seal_new(
        stream=stream,
        table=table.sha256,
        version=record.version,
        record=record.sha256,
        boxes=boxes,
        digests=tuple(map(digest_text, digests.tolist())),
        astray=() if shard is None else tuple(sorted(set(shard.astray()))),
        nonce=secrets.token_hex(16) if nonce is None else nonce,
        time=max(time.time_ns() // 1_000_000, 0),
        label=check_label(label),
    )


def write_attestation(attestation: Attestation, path: str | os.PathLike[str]) -> None:
    """Write it to a file that is there whole or not at all; its folder is made if absent."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            draft.write_bytes(attestation.to_bytes())
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            "bad_argument", f"cannot write the attestation {target}: {reason}", where=str(target)
        ) from None
