"""What holds the live tensors: all of the table by name, or a shard by a layout."""

from __future__ import annotations

from deltastore.format.table import TensorTable
from deltastore.layout.live import LiveWeights
from deltastore.layout.live_shard import LiveShard
from deltastore.layout.memory import LiveTensors
from deltastore.layout.pieces import Layout

__all__ = ["HeldWeights", "live_targets", "shard_of"]

HeldWeights = LiveWeights | LiveShard


def live_targets(table: TensorTable, tensors: LiveTensors, layout: Layout | None) -> HeldWeights:
    """``tensors`` by checkpoint name, or with ``layout`` by parameter name; raises what either does."""
    return LiveWeights(table, tensors) if layout is None else LiveShard(table, layout, tensors)


def shard_of(weights: HeldWeights) -> LiveShard | None:
    """The shard, where it is one."""
    return weights if isinstance(weights, LiveShard) else None
