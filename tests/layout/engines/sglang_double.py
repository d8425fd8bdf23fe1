"""SGLang's modules and loaders, without SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.layout.engines.engine_double import EngineDouble
from tests.layout.engines.loading import Ids, Replicated


class SglangDouble(EngineDouble):
    """One scheduler: rank = pp_rank * tp + tp_rank. Weights are loaded in the kernel's form at once."""

    merged_down = "fused_qkv_a_proj_with_mqa"
    experts_name = "experts"
    pad_with_ranks = True

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        tp: int = 1,
        pp: int = 1,
        dp: int = 1,
        ep: int = 1,
        rank: int = 0,
        experts: str = "standard",
        fused_shared: bool = False,
    ) -> None:
        super().__init__(config, transposed=experts == "transposed", up_first=experts == "up_first")
        self.fused_shared = fused_shared
        self.waiting: dict[str, Ids] = {}
        group = range(rank // tp * tp, rank // tp * tp + tp)
        pp_rank, tp_rank = rank // tp, group.index(rank)
        self.mlp = self.shared = (tp_rank, tp)
        self.attention = _place_in(_neighbours(tp, tp // dp), tp_rank)
        self.moe = _place_in(_neighbours(tp, tp // ep), tp_rank)
        self.ep = _place_in([list(range(start, tp, tp // ep)) for start in range(tp // ep)], tp_rank)
        first, last = pp_rank == 0, pp_rank == pp - 1
        if first:
            self.modules["model.embed_tokens.weight"] = self.vocabulary(*self.attention)
        if last:
            self.modules["model.norm.weight"] = Replicated(self.hidden)
        shares_embedding = self.tied and pp == 1
        head_everywhere = self.family in ("LlamaForCausalLM", "Qwen3MoeForCausalLM")
        if (last or head_everywhere) and not shares_embedding:
            self.modules["lm_head.weight"] = self.vocabulary(*self.mlp)
        start, end = _stage(int(config["num_hidden_layers"]), pp_rank, pp)
        for number in range(start, end):
            self.make_layer(number)

    def expert_slots(self, experts: int) -> list[int]:
        ep_rank, ep_size = self.ep
        assert experts % ep_size == 0
        count = experts // ep_size
        slots = [number - ep_rank * count if number // count == ep_rank else -1 for number in range(experts)]
        return [*slots, count] if self.fused_shared else slots

    def shared_is_fused(self) -> bool:
        return self.fused_shared

    def make_merged_down(self, name: str, queries: int, keys: int) -> None:
        self.modules[name] = Replicated(queries + keys, self.hidden)

    def load(self, name: str, weight: Ids) -> None:
        if self.fused_shared:
            name = name.replace("mlp.shared_experts", f"mlp.experts.{self.config['n_routed_experts']}")
        if name == "model.embed_tokens.weight" and self.tied and "lm_head.weight" in self.modules:
            self.modules["lm_head.weight"].load(weight)
        pair = [
            name.replace("kv_a_proj_with_mqa", "q_a_proj"),
            name.replace("q_a_proj", "kv_a_proj_with_mqa"),
        ]
        merged = pair[0].replace("q_a_proj", self.merged_down)
        if pair[0] != pair[1] and merged in self.modules:
            self.waiting[name] = weight
            if all(part in self.waiting for part in pair):
                whole = np.concatenate([self.waiting.pop(part) for part in pair])
                self.modules[merged].load(whole)
            return
        super().load(name, weight)


def _neighbours(total: int, size: int) -> list[list[int]]:
    return [list(range(start, start + size)) for start in range(0, total, size)]


def _place_in(groups: list[list[int]], rank: int) -> tuple[int, int]:
    mine = next(group for group in groups if rank in group)
    return mine.index(rank), len(mine)


def _stage(layers: int, rank: int, size: int) -> tuple[int, int]:
    base, more = divmod(layers, size)
    if rank >= size - more:
        start = rank * (base + 1) - (size - more)
        return start, start + base + 1
    return rank * base, (rank + 1) * base
