"""Engines that make modules for one rank and load a checkpoint tensor by tensor, as the real ones do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.layout.engines.loading import (
    Column,
    Experts,
    Ids,
    MergedColumn,
    Qkv,
    Replicated,
    Row,
    Vocabulary,
)

Module = Replicated | Column | Row | MergedColumn | Qkv | Vocabulary

STACKED = (
    ("qkv_proj", "q_proj", "q"),
    ("qkv_proj", "k_proj", "k"),
    ("qkv_proj", "v_proj", "v"),
    ("gate_up_proj", "gate_proj", 0),
    ("gate_up_proj", "up_proj", 1),
)


class EngineDouble:
    """One process of an engine. Subclasses say which ranks it has, and which stages and experts."""

    merged_down = ""
    experts_name = ""
    pad_with_ranks = False

    attention: tuple[int, int]
    mlp: tuple[int, int]
    shared: tuple[int, int]
    moe: tuple[int, int]

    def __init__(self, config: Mapping[str, Any], *, transposed: bool, up_first: bool) -> None:
        self.config = config
        self.family = str(config["architectures"][0])
        self.hidden = int(config["hidden_size"])
        self.tied = bool(config.get("tie_word_embeddings", False))
        self.transposed, self.up_first = transposed, up_first
        self.modules: dict[str, Module] = {}
        self.experts: dict[str, Experts] = {}

    def expert_slots(self, experts: int) -> list[int]:
        """Slot of every expert, or -1."""
        raise NotImplementedError

    def vocabulary(self, rank: int, size: int) -> Vocabulary:
        rows = int(self.config["vocab_size"])
        multiple = 64
        if self.pad_with_ranks and -(-rows // 64) * 64 % size:
            multiple *= size
        return Vocabulary(rank, size, rows, self.hidden, multiple)

    def make_layer(self, number: int) -> None:
        prefix = f"model.layers.{number}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            self.modules[f"{prefix}.{name}.weight"] = Replicated(self.hidden)
        if self.family.startswith("Deepseek"):
            self._make_latent(f"{prefix}.self_attn")
        else:
            self._make_attention(f"{prefix}.self_attn")
        experts = int(self.config.get("num_experts") or self.config.get("n_routed_experts") or 0)
        dense = number < int(self.config.get("first_k_dense_replace", 0))
        if experts and not dense and number not in self.config.get("mlp_only_layers", ()):
            self._make_mixture(f"{prefix}.mlp", experts)
        else:
            biased = bool(self.config.get("mlp_bias", False))
            self._make_mlp(f"{prefix}.mlp", int(self.config["intermediate_size"]), self.mlp, biased)

    def _make_attention(self, prefix: str) -> None:
        config = self.config
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        width = config.get("head_dim") or self.hidden // heads
        output_biased = bool(config.get("attention_bias", False))
        biased = output_biased or self.family.startswith("Qwen2")
        rank, size = self.attention
        self.modules[f"{prefix}.qkv_proj.weight"] = Qkv(rank, size, heads, kv_heads, width, self.hidden)
        self.modules[f"{prefix}.o_proj.weight"] = Row(rank, size, self.hidden, heads * width)
        if biased:
            self.modules[f"{prefix}.qkv_proj.bias"] = Qkv(rank, size, heads, kv_heads, width)
        if output_biased:
            self.modules[f"{prefix}.o_proj.bias"] = Replicated(self.hidden)
        if self.family.startswith("Qwen3"):
            for name in ("q_norm", "k_norm"):
                self.modules[f"{prefix}.{name}.weight"] = Replicated(width)

    def _make_latent(self, prefix: str) -> None:
        config = self.config
        heads, rank_q, rank_kv = config["num_attention_heads"], config["q_lora_rank"], config["kv_lora_rank"]
        rope, nope, value = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["v_head_dim"]
        rank, size = self.attention
        queries = heads * (nope + rope)
        if rank_q is None:
            self.modules[f"{prefix}.q_proj.weight"] = Column(rank, size, queries, self.hidden)
            self.modules[f"{prefix}.kv_a_proj_with_mqa.weight"] = Replicated(rank_kv + rope, self.hidden)
        else:
            self.make_merged_down(f"{prefix}.{self.merged_down}.weight", rank_q, rank_kv + rope)
            self.modules[f"{prefix}.q_a_layernorm.weight"] = Replicated(rank_q)
            self.modules[f"{prefix}.q_b_proj.weight"] = Column(rank, size, queries, rank_q)
        self.modules[f"{prefix}.kv_a_layernorm.weight"] = Replicated(rank_kv)
        self.modules[f"{prefix}.kv_b_proj.weight"] = Column(rank, size, heads * (nope + value), rank_kv)
        self.modules[f"{prefix}.o_proj.weight"] = Row(rank, size, self.hidden, heads * value)

    def make_merged_down(self, name: str, queries: int, keys: int) -> None:
        """The parameter that both ways down go into."""
        raise NotImplementedError

    def _make_mlp(self, prefix: str, inner: int, cut: tuple[int, int], biased: bool = False) -> None:
        rank, size = cut
        self.modules[f"{prefix}.gate_up_proj.weight"] = MergedColumn(rank, size, [inner, inner], self.hidden)
        self.modules[f"{prefix}.down_proj.weight"] = Row(rank, size, self.hidden, inner)
        if biased:
            self.modules[f"{prefix}.gate_up_proj.bias"] = MergedColumn(rank, size, [inner, inner])
            self.modules[f"{prefix}.down_proj.bias"] = Replicated(self.hidden)

    def _make_mixture(self, prefix: str, experts: int) -> None:
        config = self.config
        self.modules[f"{prefix}.gate.weight"] = Replicated(experts, self.hidden)
        inner = int(config["moe_intermediate_size"])
        if self.family.startswith("Deepseek"):
            self.modules[f"{prefix}.gate.e_score_correction_bias"] = Replicated(experts)
            if not self.shared_is_fused():
                self._make_mlp(f"{prefix}.shared_experts", inner * config["n_shared_experts"], self.shared)
        rank, size = self.moe
        self.experts[f"{prefix}.{self.experts_name}"] = Experts(
            self.expert_slots(experts),
            rank,
            size,
            inner,
            self.hidden,
            transposed=self.transposed,
            up_first=self.up_first,
        )

    def shared_is_fused(self) -> bool:
        """Whether the shared expert is one of the others."""
        return False

    def load_weights(self, checkpoint: Mapping[str, Ids]) -> dict[str, Ids]:
        """Feed the tensors one by one, in the order of the checkpoint; all parameters by name."""
        for name, weight in checkpoint.items():
            self.load(name, weight)
        params = {name: module.data for name, module in self.modules.items()}
        for prefix, experts in self.experts.items():
            params[f"{prefix}.w13_weight"] = experts.w13
            params[f"{prefix}.w2_weight"] = experts.w2
        unwritten = [name for name, data in params.items() if (data < 0).any()]
        assert not unwritten, f"nothing was loaded into {unwritten[:3]}"
        return params

    def load(self, name: str, weight: Ids) -> None:
        """One tensor of the checkpoint into whichever parameter it belongs to, if that is here."""
        found = re.fullmatch(r"(.*\.mlp)\.experts\.(\d+)\.(gate|up|down)_proj\.weight", name)
        if found is not None:
            stacked = self.experts.get(f"{found[1]}.{self.experts_name}")
            if stacked is not None:
                stacked.load(weight, int(found[2]), {"gate": "w1", "down": "w2", "up": "w3"}[found[3]])
            return
        for param, part, shard in STACKED:
            if f".{part}." in name and name.replace(part, param) in self.modules:
                self.modules[name.replace(part, param)].load(weight, shard)
                return
        if name in self.modules:
            self.modules[name].load(weight)
