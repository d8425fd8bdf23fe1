"""vLLM's modules and loaders, without vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.layout.engines.engine_double import EngineDouble
from tests.layout.engines.loading import Ids, MergedColumn, Replicated


class VllmDouble(EngineDouble):
    """One worker: rank = (dp_rank * pp + pp_rank) * tp + tp_rank.

    Weights are loaded with gate first, and turned into the kernel's form after that.
    """

    merged_down = "fused_qkv_a_proj"
    experts_name = "experts.routed_experts"

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        tp: int = 1,
        pp: int = 1,
        dp: int = 1,
        ep: int = 1,
        rank: int = 0,
        placement: str = "linear",
        experts: str = "standard",
    ) -> None:
        super().__init__(config, transposed=False, up_first=False)
        ranks = np.arange(dp * pp * tp).reshape(dp, pp, tp)
        _, pp_rank, tp_rank = (int(where[0]) for where in np.nonzero(ranks == rank))
        stage_ranks = ranks[:, pp_rank].reshape(-1)
        flat = int(np.flatnonzero(stage_ranks == rank)[0])
        expert_parallel = ep > 1
        self.kernel = experts
        self.placement = placement
        self.ep = (flat, len(stage_ranks)) if expert_parallel else (0, 1)
        assert not expert_parallel or ep == len(stage_ranks)
        self.attention = self.mlp = (tp_rank, tp)
        self.moe = (0, 1) if expert_parallel else (flat, len(stage_ranks))
        sequence_parallel = expert_parallel and tp > 1 and dp > 1
        self.shared = (0, 1) if sequence_parallel else (tp_rank, tp)
        first, last = pp_rank == 0, pp_rank == pp - 1
        everywhere = self.family == "Qwen3MoeForCausalLM"
        if first or everywhere or (self.tied and last):
            self.modules["model.embed_tokens.weight"] = self.vocabulary(tp_rank, tp)
        if last or everywhere:
            self.modules["model.norm.weight"] = Replicated(self.hidden)
            if not self.tied:
                self.modules["lm_head.weight"] = self.vocabulary(tp_rank, tp)
        start, end = _stage(int(config["num_hidden_layers"]), pp_rank, pp)
        for number in range(start, end):
            self.make_layer(number)

    def expert_slots(self, experts: int) -> list[int]:
        ep_rank, ep_size = self.ep
        each, more = divmod(experts, ep_size)
        count = each + 1 if ep_rank < more else each
        local = np.full(experts, -1)
        if self.placement == "round_robin":
            local[ep_rank::ep_size] = np.arange(count)
        else:
            start = ep_rank * each + min(ep_rank, more)
            local[start : start + count] = np.arange(count)
        return [int(slot) for slot in local]

    def make_merged_down(self, name: str, queries: int, keys: int) -> None:
        self.modules[name] = MergedColumn(0, 1, [queries, keys], self.hidden)

    def load(self, name: str, weight: Ids) -> None:
        for part, shard in (("q_a_proj", 0), ("kv_a_proj_with_mqa", 1)):
            merged = name.replace(part, self.merged_down)
            if f".{part}." in name and merged in self.modules:
                self.modules[merged].load(weight, shard)
                return
        super().load(name, weight)

    def load_weights(self, checkpoint: Mapping[str, Ids]) -> dict[str, Ids]:
        params = super().load_weights(checkpoint)
        for name in params:
            if self.kernel == "up_first" and name.endswith(".w13_weight"):
                halves = params[name].reshape(-1, 2, params[name].shape[1] // 2, self.hidden)
                params[name] = np.flip(halves, 1).reshape(params[name].shape)
            if self.kernel == "transposed" and name.endswith(("w13_weight", "w2_weight")):
                params[name] = np.ascontiguousarray(params[name].swapaxes(-1, -2))
        return params


def _stage(layers: int, rank: int, size: int) -> tuple[int, int]:
    parts = [layers // size] * size
    for back in range(2, layers % size + 2):
        parts[-back] += 1
    return sum(parts[:rank]), sum(parts[: rank + 1])
