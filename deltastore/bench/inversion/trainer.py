"""A trainer to measure with: AdamW over FP32 parameters shaped as a Qwen3 decoder, and made-up gradients.

Where memory is short, parameters of one shape share a gradient: a step takes 12 bytes a parameter then and
little more, and reads less than a real one.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from deltastore.errors import InputError

__all__ = [
    "WARM_UP",
    "Step",
    "Trainer",
    "decoder_shapes",
    "has_room_for_gradients",
    "require_torch",
    "torch_threads",
]

WARM_UP: Final = 4
"""Steps until moments are more than the sign of one gradient."""

_HIDDEN: Final = (2048, 1024, 512, 256, 128, 64, 32)
_LAYERS: Final = 4
_OF_LAYER: Final = 15
"""The matrices of a layer have about so many times hidden x hidden elements."""

_HEAD: Final = 128
_SCALE: Final = 0.02
_DECAY: Final = 0.1
_POOL: Final = (1 << 20) + 7
_BYTES_WITH_GRADIENTS: Final = 26


def require_torch() -> None:
    """``InputError("bad_argument")`` where torch is not installed."""
    if find_spec("torch") is None:
        raise InputError("bad_argument", "this benchmark needs torch: pip install 'deltastore[torch]'")


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch take so many threads for a while."""
    require_torch()
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def decoder_shapes(parameters: int) -> dict[str, tuple[int, ...]]:
    """Tensors of a decoder with about so many parameters, an eighth of them in the embedding."""
    hidden = next(
        (size for size in _HIDDEN if _LAYERS * _OF_LAYER * size**2 <= parameters * 7 / 8), _HIDDEN[-1]
    )
    layer = _layer_shapes(hidden)
    vocabulary = max(parameters // 8 // hidden, 1)
    each = sum(map(math.prod, layer.values()))
    layers = max(round((parameters - vocabulary * hidden) / each), 1)
    return {
        "model.embed_tokens.weight": (vocabulary, hidden),
        **{
            f"model.layers.{number}.{name}.weight": shape
            for number in range(layers)
            for name, shape in layer.items()
        },
        "model.norm.weight": (hidden,),
    }


def _layer_shapes(hidden: int) -> dict[str, tuple[int, ...]]:
    """One layer in the proportions of Qwen3-0.6B."""
    head = min(_HEAD, hidden)
    return {
        "self_attn.q_proj": (2 * hidden, hidden),
        "self_attn.k_proj": (hidden, hidden),
        "self_attn.v_proj": (hidden, hidden),
        "self_attn.o_proj": (hidden, 2 * hidden),
        "self_attn.q_norm": (head,),
        "self_attn.k_norm": (head,),
        "mlp.gate_proj": (3 * hidden, hidden),
        "mlp.up_proj": (3 * hidden, hidden),
        "mlp.down_proj": (hidden, 3 * hidden),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }


def has_room_for_gradients(parameters: int) -> bool:
    """Whether each parameter can have a gradient of its own, and a foreach step its temporaries."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return free > parameters * _BYTES_WITH_GRADIENTS


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one optimizer step: its ``own``, and of all that follows it by ``hooks``."""

    own: float
    hooks: float


class Trainer:
    """``weights`` by name, FP32 torch parameters, and the ``optimizer`` that moves them.

    ``WARM_UP`` steps are taken. Always the same for the same arguments, as long as steps are of the same
    kinds. Memory: 12 bytes a parameter, and a gradient for each shape, or with ``own_gradients`` for each
    parameter.
    """

    def __init__(self, parameters: int, lr: float, *, own_gradients: bool = False) -> None:
        import torch

        self._random = torch.Generator().manual_seed(0)
        self.weights: dict[str, Any] = {}
        for name, shape in decoder_shapes(parameters).items():
            values = torch.empty(shape).normal_(
                1.0 if len(shape) == 1 else 0.0, _SCALE, generator=self._random
            )
            self.weights[name] = torch.nn.Parameter(values)
        self._gradients: dict[object, Any] = {}
        for name, weight in self.weights.items():
            kind = name if own_gradients else tuple(weight.shape)
            if kind not in self._gradients:
                self._gradients[kind] = torch.empty_like(weight)
            weight.grad = self._gradients[kind]
        self._pool = torch.empty(_POOL).normal_(generator=self._random)
        self.optimizer: Any = torch.optim.AdamW(_groups(self.weights), lr=lr, fused=True)
        self._ended = 0.0
        self.optimizer.register_step_post_hook(self._on_end)  # before anybody else's
        for _ in range(WARM_UP):
            self.step()

    @property
    def elements(self) -> int:
        """How many parameters there are."""
        return sum(weight.numel() for weight in self.weights.values())

    def step(self, kind: str = "fused") -> Step:
        """Take a step with new gradients: ``fused`` or ``foreach``."""
        self._renew_gradients()
        for group in self.optimizer.param_groups:
            group["fused"], group["foreach"] = kind == "fused", kind == "foreach"
        began = 0.0

        def on_start(*_: object) -> None:
            nonlocal began
            began = time.perf_counter()

        hook = self.optimizer.register_step_pre_hook(on_start)  # after everybody else's
        try:
            started = time.perf_counter()
            self.optimizer.step()
            whole = time.perf_counter() - started
        finally:
            hook.remove()
        own = self._ended - began
        return Step(own, whole - own)

    def _on_end(self, *_: object) -> None:
        self._ended = time.perf_counter()

    def _renew_gradients(self) -> None:
        import torch

        for gradient in self._gradients.values():
            flat = gradient.view(-1)
            for start in range(0, len(flat), _POOL // 2):
                piece = flat[start : start + _POOL // 2]
                first = int(torch.randint(_POOL // 2, (), generator=self._random))
                piece.copy_(self._pool[first : first + len(piece)])


def _groups(weights: dict[str, Any]) -> list[dict[str, Any]]:
    """Weight decay for matrices only, as is usual."""
    return [
        {
            "params": [weight for weight in weights.values() if (weight.ndim > 1) is matrices],
            "weight_decay": decay,
        }
        for matrices, decay in ((True, _DECAY), (False, 0.0))
    ]
