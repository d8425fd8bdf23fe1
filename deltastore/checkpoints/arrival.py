"""How a finished checkpoint takes its place, so that no crash leaves a folder that only looks whole."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deltastore.checkpoints.checkpoint import INDEX_NAME
from deltastore.checkpoints.refusal import cannot
from deltastore.checkpoints.shard_files import sync_folder
from deltastore.errors import InputError

__all__ = ["arrive", "draft_folder", "prepare_folder"]

_DRAFT: Final = ".deltastore-"
_WEIGHTS: Final = re.compile(r"model(-\d+-of-\d+)?\.safetensors", re.ASCII)


def prepare_folder(
    folder: Path, *, overwrite: bool, how: str = "its weights with overwrite (--force)"
) -> None:
    """Make the folder if it is absent; ``InputError("bad_argument")`` if it holds files and may not.

    Drafts that a killed process left behind do not count. ``how`` says what would
    be replaced, and by which option.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = [name for name in os.listdir(folder) if not name.startswith(_DRAFT)]
    except OSError as error:
        raise cannot("write", folder, error) from None
    if names and not overwrite:
        message = f"{folder} is not empty: give an empty one, or replace {how}"
        raise InputError("bad_argument", message, where=str(folder))


@contextmanager
def draft_folder(folder: Path) -> Iterator[Path]:
    """A hidden folder on the same file system, removed with all that is still in it at the end."""
    draft = folder / f"{_DRAFT}{secrets.token_hex(8)}"
    try:
        draft.mkdir()
    except OSError as error:
        raise cannot("write", draft, error) from None
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def arrive(draft: Path, folder: Path, names: list[str]) -> list[Path]:
    """Move finished files from the draft into the folder, in place of the weights that were there.

    The index, if any, goes first and is durable before the rest follows: until the last file is there, it
    names files that are absent, and no loader takes the folder for a checkpoint.
    """
    sync_folder(draft)
    try:
        for old in sorted(os.listdir(folder)):
            if old == INDEX_NAME or _WEIGHTS.fullmatch(old):
                (folder / old).unlink()
        if INDEX_NAME in names:
            os.rename(draft / INDEX_NAME, folder / INDEX_NAME)
        sync_folder(folder)
        for name in names:
            if name != INDEX_NAME:
                os.rename(draft / name, folder / name)
    except OSError as error:
        raise cannot("write", folder, error) from None
    sync_folder(folder)
    return [folder / name for name in names]
