"""How a model is spread over safetensors files, and where every tensor stands, before a byte is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from deltastore.checkpoints.header import StoredTensor, header_bytes
from deltastore.format.table import TensorSpec, TensorTable

__all__ = ["Shard", "index_bytes", "plan_shards"]


@dataclass(frozen=True, slots=True)
class Shard:
    """One file to write: its name, its header with the length before it, and its tensors."""

    name: str
    header: bytes
    tensors: tuple[StoredTensor, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole file."""
        return len(self.header) + sum(tensor.spec.nbytes for tensor in self.tensors)


def plan_shards(table: TensorTable, shard_bytes: int) -> list[Shard]:
    """The files of a model in table order, each of at most ``shard_bytes`` of tensors, or of one tensor."""
    groups: list[list[TensorSpec]] = [[]]
    filled = 0
    for spec in table.tensors():
        if groups[-1] and filled + spec.nbytes > shard_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(spec)
        filled += spec.nbytes
    return [_shard(_name(number, len(groups)), group) for number, group in enumerate(groups, start=1)]


def index_bytes(shards: Sequence[Shard]) -> bytes:
    """The index file that says which tensor is in which file."""
    weight_map = {tensor.spec.name: shard.name for shard in shards for tensor in shard.tensors}
    total = sum(tensor.spec.nbytes for shard in shards for tensor in shard.tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    return (json.dumps(index, ensure_ascii=False, indent=2) + "\n").encode("utf-8")


def _name(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{number:05d}-of-{count:05d}.safetensors"


def _shard(name: str, group: list[TensorSpec]) -> Shard:
    # Widest elements first: then every tensor is aligned to its own width, which torch needs to view it.
    tensors: list[StoredTensor] = []
    at = 0
    for spec in sorted(group, key=lambda spec: -spec.dtype.itemsize):
        tensors.append(StoredTensor(spec, at))
        at += spec.nbytes
    return Shard(name, header_bytes(tensors), tuple(tensors))
