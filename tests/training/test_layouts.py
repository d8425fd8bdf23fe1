"""Training of a model whose experts are stacked, published by its layout under a checkpoint's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deltastore.layout.trainers.transformers import transformers
from deltastore.stream import AsyncStream
from tests.doubles.stores import memory_store
from tests.training.models import MODELS, VOCABULARY

VERSIONS = 4


def canonical(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The bits of every tensor that a checkpoint has, experts taken apart."""
    bits: dict[str, np.ndarray[Any, Any]] = {}
    for name, param in model.named_parameters():
        tensor = param.detach().bfloat16().view(torch.int16)
        if name.endswith("experts.gate_up_proj"):
            half = tensor.shape[1] // 2
            for number, both in enumerate(tensor):
                prefix = f"{name.removesuffix('gate_up_proj')}{number}"
                bits[f"{prefix}.gate_proj.weight"] = both[:half].numpy().copy()
                bits[f"{prefix}.up_proj.weight"] = both[half:].numpy().copy()
        elif name.endswith("experts.down_proj"):
            for number, one in enumerate(tensor):
                prefix = f"{name.removesuffix('down_proj')}{number}"
                bits[f"{prefix}.down_proj.weight"] = one.numpy().copy()
        else:
            bits[name] = tensor.numpy().copy()
    return bits


def step(model: Any, optimizer: torch.optim.Optimizer, random: torch.Generator) -> None:
    tokens = torch.randint(1, VOCABULARY, (2, 12), generator=random)
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()


@pytest.mark.parametrize("kind", ["qwen3", "qwen3-moe"])
@pytest.mark.parametrize("found", ["inverted", "compared"])
async def test_engines_follow_under_checkpoint_names(kind: str, found: str) -> None:
    torch.set_num_threads(1)
    model = MODELS[kind]()
    of = {"architectures": [type(model).__name__], "dtype": "bfloat16"}
    layout = transformers({**model.config.to_dict(), **of})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    given = dict(model.named_parameters())
    random = torch.Generator().manual_seed(3)
    inverted = found == "inverted"
    async with await AsyncStream.create(memory_store(), given, layout=layout, cast="BF16") as stream:
        writer = await stream.writer(
            given, layout=layout, cast=True, optimizer=optimizer if inverted else None, threads=1
        )
        assert writer.version == 0
        before = canonical(model)
        engine = {name: torch.zeros(bits.shape, dtype=torch.bfloat16) for name, bits in before.items()}
        reader = await stream.reader(engine)
        elements = sum(bits.size for bits in before.values())
        for _ in range(VERSIONS):
            step(model, optimizer, random)
            published = await writer.publish()
            await reader.sync()
            now = canonical(model)
            changed = sum(int((now[name] != before[name]).sum()) for name in now)
            assert [n for n in now if not np.array_equal(engine[n].view(torch.int16).numpy(), now[n])] == []
            assert (published.kind, published.elements) == ("delta", elements)
            if inverted:
                assert published.certificate is not None
                assert published.certificate.inverted == elements
                assert published.certificate.unexplained <= 1
            else:
                assert published.changed == changed
            before = now
        await writer.close()
