"""Hugging Face safetensors checkpoints, read and written one chunk at a time."""

from __future__ import annotations

from deltastore.checkpoints.carried import Carried, CarriedFile, carried_files
from deltastore.checkpoints.checkpoint import Checkpoint
from deltastore.checkpoints.reading import CheckpointWeights
from deltastore.checkpoints.writing import SHARD_BYTES, write_checkpoint

__all__ = [
    "SHARD_BYTES",
    "Carried",
    "CarriedFile",
    "Checkpoint",
    "CheckpointWeights",
    "carried_files",
    "write_checkpoint",
]
