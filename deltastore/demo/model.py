"""The model of the demo: Qwen3 as transformers builds it, small, and its checkpoint."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deltastore.demo.text import VOCABULARY
from deltastore.errors import InputError

if TYPE_CHECKING:
    from transformers import Qwen3Config, Qwen3ForCausalLM

__all__ = ["empty_engine", "load_engine", "new_model", "require_libraries", "save_checkpoint"]

_PADDING: Final = 0

_ENVIRONMENT: Final = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def require_libraries() -> None:
    """See that torch and transformers are there, and that they will neither use the network nor chatter.

    Raises ``InputError("bad_argument")`` where one is missing.
    """
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise InputError(
            "bad_argument", "the demo needs torch and transformers: pip install 'deltastore[demo]'"
        )
    # Read when transformers is imported, here and in the engines, which inherit it.
    os.environ |= _ENVIRONMENT
    import torch

    # A trainer and two engines share this machine; more threads would only wait for each other.
    torch.set_num_threads(1)


def _configuration() -> Qwen3Config:
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=384,
        intermediate_size=1152,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=64,
        max_position_embeddings=512,
        initializer_range=0.04,
        tie_word_embeddings=False,
        pad_token_id=_PADDING,
        bos_token_id=None,
        eos_token_id=None,
    )


def new_model(seed: int) -> Qwen3ForCausalLM:
    """A Qwen3 of 3.7 M parameters in FP32, with random weights that depend on ``seed`` alone."""
    import torch
    from transformers import Qwen3ForCausalLM

    torch.manual_seed(seed)
    return Qwen3ForCausalLM(_configuration())


def save_checkpoint(model: Qwen3ForCausalLM, folder: Path) -> None:
    """Save the model rounded to BF16, as a Hugging Face checkpoint; the model itself stays as it is."""
    rounded = new_model(seed=0).bfloat16()
    rounded.load_state_dict(model.state_dict())
    rounded.save_pretrained(folder)


def load_engine(checkpoint: Path) -> Qwen3ForCausalLM:
    """The checkpoint in BF16, as an engine that was there from the beginning loads it."""
    import torch
    from transformers import Qwen3ForCausalLM

    model: Qwen3ForCausalLM = Qwen3ForCausalLM.from_pretrained(
        checkpoint, dtype=torch.bfloat16, local_files_only=True
    )
    return model


def empty_engine(seed: int) -> Qwen3ForCausalLM:
    """The architecture in BF16 with weights of no version, as an engine that joins without a checkpoint."""
    model = new_model(seed).bfloat16()
    model.train(False)
    return model
