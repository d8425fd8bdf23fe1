"""The trainer of the demo: FP32 master weights, AdamW, and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from deltastore.demo.model import new_model
from deltastore.demo.text import Bytes, Tokens, windows

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["WARM_UP_STEPS", "Trainer"]

WARM_UP_STEPS: Final = 100

_WARM_UP_RATE: Final = 2e-3

_FINE_TUNING_RATE: Final = 1e-6
"""Of the size that online RL uses: about 1 % of weights as small as these change in BF16 at a step."""

_BETAS: Final = (0.9, 0.95)
_WINDOWS: Final = 16
_LENGTH: Final = 32
_HELD_OUT_WINDOWS: Final = 64
_HELD_OUT_SHARE: Final = 0.1
_SEED: Final = 0


class Trainer:
    """A model that learns ``text``. The last tenth of it is never trained on: ``loss`` is measured there."""

    def __init__(self, text: Bytes) -> None:
        cut = len(text) - int(len(text) * _HELD_OUT_SHARE)
        self._text = text[:cut]
        self._draw = np.random.default_rng(_SEED)
        self._held_out = windows(text[cut:], self._draw, count=_HELD_OUT_WINDOWS, length=_LENGTH)
        self.model = new_model(_SEED)
        self._start(_WARM_UP_RATE)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The FP32 master weights, live, by checkpoint name."""
        return dict(self.model.named_parameters())

    def start_fine_tuning(self) -> None:
        """From here on with a small, constant learning rate and fresh optimizer state."""
        self._start(_FINE_TUNING_RATE)

    def _start(self, rate: float) -> None:
        import torch

        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, betas=_BETAS)

    def step(self) -> float:
        """One optimizer step; the loss before it, in nats per byte, on the text it was taken on."""
        loss = self._loss(windows(self._text, self._draw, count=_WINDOWS, length=_LENGTH))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def loss(self) -> float:
        """The loss on the held-out text, in nats per byte."""
        import torch

        with torch.no_grad():
            return self._loss(self._held_out).item()

    def _loss(self, tokens: Tokens) -> Tensor:
        import torch

        inputs = torch.from_numpy(tokens)
        loss: Tensor = self.model(input_ids=inputs, labels=inputs).loss
        return loss
