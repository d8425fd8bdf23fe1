"""Conversion from a checkpoint to Megatron-core as bridges do it: fuse whole tensors, then cut them.

Nothing here knows of layouts: it is written from Megatron's modules, names as they have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .small import Ids

__all__ = ["World", "convert"]

Array = NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """The processes of a training run, in Megatron's order of ranks: tensors, context and data, stages."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    vpp: int = 1
    copies: int = 1

    @property
    def stage(self) -> int:
        """Processes of a stage: as few as both grids of groups divide, times ``copies``."""
        experts = self.ep * self.etp
        return self.tp * experts // gcd(self.tp, experts) * self.copies

    def ranks(self) -> Iterator[dict[str, Any]]:
        """The ranks of every process in its groups."""
        for number in range(self.stage * self.pp):
            inner = number % self.stage
            yield {
                "tp": self.tp,
                "pp": self.pp,
                "vpp": self.vpp,
                "ep": self.ep,
                "etp": self.etp,
                "pp_rank": number // self.stage,
                "tp_rank": inner % self.tp,
                "replica": inner // self.tp,
                "etp_rank": inner % self.etp,
                "ep_rank": inner // self.etp % self.ep,
                "expert_replica": inner // (self.etp * self.ep),
            }


def convert(config: Mapping[str, Any], ids: Ids, at: Mapping[str, int], **options: Any) -> Ids:
    """The parameters of the process with ranks ``at``, by name."""
    return dict(_Converter(config, ids, at, **options).params())


class _Converter:
    def __init__(
        self,
        config: Mapping[str, Any],
        ids: Ids,
        at: Mapping[str, int],
        *,
        experts: str = "grouped",
        implementation: str = "transformer_engine",
        multiple: int = 128,
    ) -> None:
        self.config = config
        self.ids = ids
        self.at = at
        self.experts = experts
        self.fused = implementation == "transformer_engine"
        self.multiple = multiple

    def rows(self, whole: Array) -> Array:
        """A column-parallel weight."""
        return np.split(whole, self.at["tp"])[self.at["tp_rank"]]

    def columns(self, whole: Array) -> Array:
        """A row-parallel weight."""
        return np.split(whole, self.at["tp"], axis=1)[self.at["tp_rank"]]

    def gated(self, gate: Array, up: Array, ranks: int, rank: int) -> Array:
        """Each rank computes both halves of its own features."""
        return np.concatenate([np.split(gate, ranks)[rank], np.split(up, ranks)[rank]])

    def params(self) -> Iterator[tuple[str, Array]]:
        chunks = self.at["pp"] * self.at["vpp"]
        each = self.config["num_hidden_layers"] // chunks
        tied = self.config.get("tie_word_embeddings", False)
        for chunk in range(self.at["vpp"]):
            prefix = f"{chunk}." if self.at["vpp"] > 1 else ""
            number = chunk * self.at["pp"] + self.at["pp_rank"]
            if number == 0:
                yield f"{prefix}embedding.word_embeddings.weight", self.vocabulary("model.embed_tokens")
            for local in range(each):
                layer = f"model.layers.{number * each + local}"
                for name, array in self.layer(layer):
                    yield f"{prefix}decoder.layers.{local}.{name}", array
            if number == chunks - 1:
                yield f"{prefix}decoder.final_layernorm.weight", self.ids["model.norm.weight"]
                if not tied or chunks > 1:
                    head = "model.embed_tokens" if tied else "lm_head"
                    yield f"{prefix}output_layer.weight", self.vocabulary(head)

    def vocabulary(self, name: str) -> Array:
        whole = self.ids[f"{name}.weight"]
        step = self.multiple * self.at["tp"]
        missing = -len(whole) % step
        return self.rows(np.pad(whole, ((0, missing), (0, 0))))

    def layer(self, layer: str) -> Iterator[tuple[str, Array]]:
        attention = self.latent(layer) if "kv_lora_rank" in self.config else self.grouped(layer)
        yield from attention
        output = f"{layer}.self_attn.o_proj"
        yield "self_attention.linear_proj.weight", self.columns(self.ids[f"{output}.weight"])
        if f"{output}.bias" in self.ids:
            yield "self_attention.linear_proj.bias", self.ids[f"{output}.bias"]
        norm = self.ids[f"{layer}.post_attention_layernorm.weight"]
        if f"{layer}.mlp.gate.weight" in self.ids:
            yield "pre_mlp_layernorm.weight", norm
            yield from self.mixture(f"{layer}.mlp")
        else:
            yield ("mlp.linear_fc1.layer_norm_weight" if self.fused else "pre_mlp_layernorm.weight"), norm
            yield from self.dense(f"{layer}.mlp", "mlp")

    def grouped(self, layer: str) -> Iterator[tuple[str, Array]]:
        """Queries, keys and values side by side for each query group."""
        groups, per_head = self.config["num_key_value_heads"], self.config["head_dim"]
        norm = self.ids[f"{layer}.input_layernorm.weight"]
        yield (
            ("self_attention.linear_qkv.layer_norm_weight" if self.fused else "input_layernorm.weight"),
            norm,
        )
        for kind in ("weight", "bias"):
            if f"{layer}.self_attn.q_proj.{kind}" not in self.ids:
                continue
            three = [self.ids[f"{layer}.self_attn.{one}_proj.{kind}"] for one in "qkv"]
            by_group = [one.reshape(groups, -1, per_head, *one.shape[1:]) for one in three]
            fused = np.concatenate(by_group, axis=1)
            yield f"self_attention.linear_qkv.{kind}", self.rows(fused.reshape(-1, *three[0].shape[1:]))
        for one in "qk":
            if f"{layer}.self_attn.{one}_norm.weight" in self.ids:
                yield (
                    f"self_attention.{one}_layernorm.weight",
                    self.ids[f"{layer}.self_attn.{one}_norm.weight"],
                )

    def latent(self, layer: str) -> Iterator[tuple[str, Array]]:
        of = f"{layer}.self_attn"
        down = (lambda whole: whole) if self.fused else self.rows
        yield "input_layernorm.weight", self.ids[f"{layer}.input_layernorm.weight"]
        norms = {"kv": "linear_kv_up_proj.layer_norm_weight" if self.fused else "kv_layernorm.weight"}
        if self.config["q_lora_rank"] is None:
            yield "self_attention.linear_q_proj.weight", self.rows(self.ids[f"{of}.q_proj.weight"])
        else:
            yield "self_attention.linear_q_down_proj.weight", down(self.ids[f"{of}.q_a_proj.weight"])
            yield "self_attention.linear_q_up_proj.weight", self.rows(self.ids[f"{of}.q_b_proj.weight"])
            norms["q"] = "linear_q_up_proj.layer_norm_weight" if self.fused else "q_layernorm.weight"
        yield "self_attention.linear_kv_down_proj.weight", down(self.ids[f"{of}.kv_a_proj_with_mqa.weight"])
        yield "self_attention.linear_kv_up_proj.weight", self.rows(self.ids[f"{of}.kv_b_proj.weight"])
        for one, name in norms.items():
            yield f"self_attention.{name}", self.ids[f"{of}.{one}_a_layernorm.weight"]

    def dense(self, of: str, name: str) -> Iterator[tuple[str, Array]]:
        gate, up, down = (self.ids[f"{of}.{one}_proj.weight"] for one in ("gate", "up", "down"))
        yield f"{name}.linear_fc1.weight", self.gated(gate, up, self.at["tp"], self.at["tp_rank"])
        yield f"{name}.linear_fc2.weight", self.columns(down)

    def mixture(self, of: str) -> Iterator[tuple[str, Array]]:
        yield "mlp.router.weight", self.ids[f"{of}.gate.weight"]
        if f"{of}.gate.e_score_correction_bias" in self.ids:
            yield "mlp.router.expert_bias", self.ids[f"{of}.gate.e_score_correction_bias"]
        if f"{of}.shared_experts.up_proj.weight" in self.ids:
            yield from self.dense(f"{of}.shared_experts", "mlp.shared_experts")
        count = self.config.get("num_experts") or self.config["n_routed_experts"]
        mine = np.split(np.arange(count), self.at["ep"])[self.at["ep_rank"]]
        pairs = [self.expert(f"{of}.experts.{number}") for number in mine]
        if self.experts == "legacy":
            hidden = self.config["hidden_size"]
            firsts, seconds = (np.array([pair[half].T for pair in pairs], order="C") for half in (0, 1))
            yield "mlp.experts.weight1", firsts.reshape(hidden, -1)
            yield "mlp.experts.weight2", seconds.reshape(-1, hidden)
            return
        for local, (first, second) in enumerate(pairs):
            if self.experts == "grouped":
                yield f"mlp.experts.linear_fc1.weight{local}", first
                yield f"mlp.experts.linear_fc2.weight{local}", second
            else:
                yield f"mlp.experts.local_experts.{local}.linear_fc1.weight", first
                yield f"mlp.experts.local_experts.{local}.linear_fc2.weight", second

    def expert(self, of: str) -> tuple[Array, Array]:
        gate, up, down = (self.ids[f"{of}.{one}_proj.weight"] for one in ("gate", "up", "down"))
        ranks, rank = self.at["etp"], self.at["etp_rank"]
        return self.gated(gate, up, ranks, rank), np.split(down, ranks, axis=1)[rank]
