"""The members of a Hugging Face ``config.json`` that say which tensors a checkpoint has.

A configuration may come from a store, so every number has a bound.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Protocol, runtime_checkable

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.format.limits import CONFIG_BYTES
from deltastore.format.sealed import first_problem

__all__ = ["AnyConfig", "Config", "read_config"]


@runtime_checkable
class _AsDict(Protocol):
    """Such as a configuration of the ``transformers`` library."""

    def to_dict(self) -> dict[str, Any]:
        """The members."""
        ...


AnyConfig = Mapping[str, Any] | _AsDict | str | os.PathLike[str]
"""A configuration: a mapping, an object with ``to_dict()``, or the path of ``config.json`` or its folder."""

_TENSORS: Final = 1 << 19
"""Tensors of a model: several times as many as any has, and few enough to be named in memory."""

_TENSORS_PER_LAYER: Final = 32
"""More than any layer has beside its experts."""

_TENSORS_PER_EXPERT: Final = 6

Size = Annotated[int, Field(strict=True, ge=1, le=1 << 31)]
Layers = Annotated[int, Field(strict=True, ge=1, le=4096)]
Number = Annotated[int, Field(strict=True, ge=0, le=1 << 16)]

_DTYPES: Final = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


class Config(BaseModel):
    """What families read; members that a family does not know are ignored, and null is as not given."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())

    architectures: Annotated[tuple[str, ...], Field(max_length=64)] | None = None
    model_type: str | None = None
    hidden_size: Size
    num_hidden_layers: Layers
    num_attention_heads: Size
    vocab_size: Size
    intermediate_size: Size | None = None
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    tie_word_embeddings: bool | None = None
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    dtype: str | None = None
    torch_dtype: str | None = None
    quantization_config: dict[str, Any] | None = None

    # Transformers 5 writes the second name, all before it the first.
    num_experts: Number | None = Field(
        None, validation_alias=AliasChoices("num_experts", "num_local_experts")
    )
    moe_intermediate_size: Size | None = None
    decoder_sparse_step: Size | None = None
    mlp_only_layers: Annotated[tuple[int, ...], Field(max_length=4096)] | None = None

    n_routed_experts: Number | None = None
    n_shared_experts: Number | None = None
    first_k_dense_replace: Number | None = None
    moe_layer_freq: Size | None = None
    q_lora_rank: Size | None = None
    kv_lora_rank: Size | None = None
    qk_nope_head_dim: Size | None = None
    qk_rope_head_dim: Size | None = None
    v_head_dim: Size | None = None
    num_nextn_predict_layers: Annotated[int, Field(strict=True, ge=0, le=64)] | None = None

    def needed(self, member: str) -> int:
        """A number that this family cannot do without; ``InputError("unknown_model")``."""
        value = getattr(self, member)
        if value is None:
            raise InputError(
                "unknown_model",
                f"the configuration does not say {member}: give the config.json of the model's checkpoint",
                where=member,
            )
        return int(value)

    @property
    def element(self) -> Dtype:
        """The element type of the checkpoint; BF16 where the configuration does not say."""
        spelled = (self.dtype or self.torch_dtype or "bfloat16").removeprefix("torch.")
        if spelled not in _DTYPES:
            raise InputError(
                "unknown_model",
                f"the configuration has weights of type {spelled!r:.80}; known are {', '.join(_DTYPES)}",
            )
        return DTYPES[_DTYPES[spelled]]

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def per_head(self) -> int:
        """Elements of a head."""
        found = self.head_dim or self.hidden_size // self.num_attention_heads
        if found == 0:
            raise InputError(
                "unknown_model",
                f"hidden_size {self.hidden_size} has no element for each of {self.num_attention_heads} heads",
            )
        return found


def read_config(config: AnyConfig) -> Config:
    """A configuration. Raises ``InputError("unknown_model")`` for one that no family can be asked about."""
    given = _members(config)
    fields = {name: value for name, value in given.items() if value is not None}
    try:
        found = Config.model_validate(fields)
    except ValidationError as error:
        raise InputError(
            "unknown_model", f"a configuration without what a model needs: {first_problem(error)}"
        ) from None
    experts = max(found.num_experts or 0, found.n_routed_experts or 0)
    most = found.num_hidden_layers * (_TENSORS_PER_LAYER + _TENSORS_PER_EXPERT * experts)
    if most > _TENSORS:
        raise InputError(
            "unknown_model",
            f"{found.num_hidden_layers} layers of {experts} experts have up to {most} tensors where at most "
            f"{_TENSORS} are allowed: give the config.json of the model's checkpoint",
        )
    return found


def _members(config: AnyConfig) -> Mapping[str, Any]:
    if isinstance(config, str | os.PathLike):
        return _load(Path(config))
    given: object = config
    if isinstance(given, _AsDict) and not isinstance(given, type):
        given = given.to_dict()
    if isinstance(given, Mapping):
        return given
    raise InputError(
        "unknown_model",
        f"a {type(config).__name__} is no configuration: give a mapping, an object with to_dict(), or the "
        "path of a config.json or of its folder",
    )


def _load(path: Path) -> dict[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    try:
        if file.stat().st_size > CONFIG_BYTES:
            raise InputError("unknown_model", f"{file} has more than {CONFIG_BYTES} bytes", where=str(file))
        fields = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("unknown_model", f"{file} is no configuration: {error}", where=str(file)) from None
    if not isinstance(fields, dict):
        raise InputError("unknown_model", f"{file} is not a JSON object", where=str(file))
    return fields
