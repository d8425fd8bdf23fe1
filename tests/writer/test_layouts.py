"""Writers that are given parameters as a trainer has them, and a layout that says what tensors they are."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.format.records import BirthRecord
from deltastore.layout.laid_parts import FlatRun
from deltastore.layout.pieces import Layout
from deltastore.layout.trainers.megatron import megatron
from deltastore.layout.trainers.transformers import identity, transformers
from deltastore.log import Log, new_nonce
from deltastore.stores.base import Store
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.opening import open_writer
from tests.doubles.models import BFLOAT16, Tensors, bf16, bits, blank, change, differing
from tests.doubles.stores import memory_store
from tests.layout.reassembling import box_of
from tests.layout.trainers.megatron_bridge import World
from tests.layout.trainers.small import CONFIGS

MOE = CONFIGS["qwen3-moe"]
WORLD = World(2, 1, 2)


def random_model(layout: Layout, seed: int = 1) -> Tensors:
    """The tensors of a checkpoint, with random bits."""
    random = np.random.default_rng(seed)
    return {
        tensor.name: bf16(random.integers(0, 1 << 16, tensor.shape))
        if tensor.dtype.name == "BF16"
        else random.standard_normal(tensor.shape).astype(np.float32)
        for tensor in layout.tensors
    }


def views(layout: Layout, params: Tensors) -> list[tuple[Any, np.ndarray[Any, Any]]]:
    """Every piece with its memory, whatever its replica."""
    found = []
    for param in layout.params:
        form = params[param.name].reshape(param.form)
        for piece in layout.of_param.get(param.name, ()):
            box: list[Any] = [slice(at, at + size) for at, size in zip(piece.at, piece.extent, strict=True)]
            for axis in set(range(len(box))).difference(piece.axes):
                box[axis] = piece.at[axis]
            kept = sorted(piece.axes)
            found.append((piece, form[(*box, ...)].transpose([kept.index(axis) for axis in piece.axes])))
    return found


def memory_for(layout: Layout) -> Tensors:
    """Parameters that hold nothing yet; 1 in padding."""
    return {
        param.name: np.full(param.shape, 1, np.float32 if param.dtype.name == "F32" else BFLOAT16)
        for param in layout.params
    }


def load(layout: Layout, params: Tensors, model: Tensors) -> None:
    """What an optimizer's step leaves: all parameters are those of the model."""
    for piece, view in views(layout, params):
        view[...] = model[piece.tensor][box_of(piece)]


class Trainer:
    """The processes of a world, in one event loop, and the model that they hold."""

    def __init__(self, layouts: list[Layout]) -> None:
        self.layouts = layouts
        self.model = random_model(layouts[0])
        self.params = [memory_for(layout) for layout in layouts]
        self.random = np.random.default_rng(5)
        self.load()

    def load(self) -> None:
        for layout, params in zip(self.layouts, self.params, strict=True):
            load(layout, params, self.model)

    def step(self) -> None:
        change(self.model, self.random, 3)
        self.load()

    async def open(self, store: Store, **options: Any) -> list[Any]:
        count = len(self.layouts)
        return await asyncio.gather(
            *(
                open_writer(
                    store, params, layout=layout, rank=rank, writers=count, run="run", timeout=60, **options
                )
                for rank, (layout, params) in enumerate(zip(self.layouts, self.params, strict=True))
            )
        )


@pytest.mark.parametrize("experts", ["grouped", "legacy"])
async def test_two_processes_of_megatron_publish_a_checkpoints_tensors(experts: Any) -> None:
    layouts = [megatron(MOE, **at, experts=experts, vocab_multiple=16) for at in WORLD.ranks()]
    trainer = Trainer(layouts)
    async with await AsyncStream.create(memory_store(), trainer.model) as stream:
        engine = blank(trainer.model)
        reader = await stream.reader(engine)
        writers = await trainer.open(stream.store)
        assert {writer.version for writer in writers} == {0}
        for anchor in (False, False, True, False):
            trainer.step()
            published = await asyncio.gather(*(writer.publish(anchor=anchor) for writer in writers))
            await reader.sync()
            assert differing(engine, bits(trainer.model)) == []
            assert {one.elements for one in published} == {sum(one.size for one in engine.values())}
        assert (await validate(stream.store)).problems == ()


async def test_one_process_starts_a_stream_and_goes_on() -> None:
    layout = megatron(MOE, experts="legacy", vocab_multiple=16)
    trainer = Trainer([layout])
    (params,) = trainer.params
    async with await AsyncStream.create(memory_store(), params, layout=layout) as stream:
        engine = blank(trainer.model)
        reader = await stream.reader(engine)
        writer = await stream.writer(params, layout=layout)
        assert writer.version == 0
        for changes in (0, 1, 1):
            if changes:
                trainer.step()
            await writer.publish()
            await reader.sync()
            assert differing(engine, bits(trainer.model)) == []


async def test_the_first_version_of_an_empty_stream_has_the_layouts_tensors() -> None:
    store = memory_store()
    await Log(store).append(BirthRecord, None, epoch=0, stream=new_nonce())
    layout = transformers(MOE)
    trainer = Trainer([layout])
    writer = await open_writer(store, trainer.params[0], layout=layout)
    assert (await writer.publish()).kind == "anchor"
    trainer.step()
    assert (await writer.publish()).kind == "delta"
    async with await AsyncStream.open(store) as stream:
        engine = blank(trainer.model)
        await (await stream.reader(engine)).sync()
        assert differing(engine, bits(trainer.model)) == []


async def test_a_head_that_the_stream_has_apart_follows_the_embedding() -> None:
    """The stream was made from a state dict with the tied head in it."""
    layout = transformers(CONFIGS["qwen2-tied"])
    trainer = Trainer([layout])
    apart = {**trainer.model, "lm_head.weight": trainer.model["model.embed_tokens.weight"]}
    async with await AsyncStream.create(memory_store(), apart) as stream:
        writer = await stream.writer(trainer.params[0], layout=layout)
        trainer.step()
        await writer.publish()
        engine = blank(apart)
        await (await stream.reader(engine)).sync()
        assert differing(engine, bits(apart)) == []


async def test_marks_are_of_tensors_in_the_shapes_of_their_parts() -> None:
    layout = megatron(MOE, vocab_multiple=16)
    trainer = Trainer([layout])
    async with await AsyncStream.create(memory_store(), trainer.model) as stream:
        writer = await stream.writer(trainer.params[0], layout=layout, detector="external")
        before = bits(trainer.model)
        trainer.step()
        changed = {name: now != before[name] for name, now in bits(trainer.model).items()}
        queries = "model.layers.0.self_attn.q_proj.weight"
        marks: dict[str, Any] = {name: mask for name, mask in changed.items() if "self_attn" not in name}
        for name in set(changed).difference(marks):
            groups = 2 if name.endswith("_proj.weight") and "o_proj" not in name else 1
            marks[name] = np.split(changed[name], groups)
        assert len(marks[queries]) == 2
        writer.mark(marks)
        await writer.publish()
        engine = blank(trainer.model)
        await (await stream.reader(engine)).sync()
        assert differing(engine, bits(trainer.model)) == []


@pytest.mark.parametrize("flat", [False, True])
async def test_steps_over_masters_are_inverted(flat: bool) -> None:
    """Fused, interleaved and transposed parameters; or two ranks' runs of a flat buffer of them all."""
    torch.set_num_threads(1)
    layout = megatron({**MOE, "vocab_size": 64}, experts="legacy", vocab_multiple=16)
    sizes = [param.elements for param in layout.params]
    buffer = torch.randn(sum(sizes), generator=torch.Generator().manual_seed(1)) * 0.02
    cut = int(buffer.numel() * 0.37)
    shards = [torch.nn.Parameter(buffer[:cut]), torch.nn.Parameter(buffer[cut:])]
    whole = {
        param.name: one.reshape(param.shape)
        for param, one in zip(layout.params, buffer.split(sizes), strict=True)
    }
    if flat:
        params: list[dict[str, Any]] = [{}, {}]
        first = 0
        for param, size in zip(layout.params, sizes, strict=True):
            ends = min(max(cut - first, 0), size)
            low = shards[0].detach()[first : first + ends]
            high = shards[1].detach()[max(first - cut, 0) : max(first + size - cut, 0)]
            params[0][param.name] = FlatRun(low, 0)
            params[1][param.name] = FlatRun(high, ends)
            first += size
        optimizers = [torch.optim.AdamW([shard], lr=1e-3) for shard in shards]
    else:
        held = {name: torch.nn.Parameter(tensor) for name, tensor in whole.items()}
        shards = list(held.values())
        params, optimizers = [dict(held)], [torch.optim.AdamW(shards, lr=1e-3)]
    async with await AsyncStream.create(memory_store(), whole, layout=layout, cast="BF16") as stream:
        writers = await asyncio.gather(
            *(
                stream.writer(
                    mine,
                    layout=layout,
                    cast=True,
                    optimizer=optimizer,
                    rank=rank,
                    writers=len(params),
                    run="run",
                    timeout=60,
                )
                for rank, (mine, optimizer) in enumerate(zip(params, optimizers, strict=True))
            )
        )
        engine = {tensor.name: torch.zeros(tensor.shape, dtype=torch.bfloat16) for tensor in layout.tensors}
        reader = await stream.reader(engine)
        random = torch.Generator().manual_seed(3)
        for _ in range(3):
            for shard in shards:
                shard.grad = torch.randn(shard.shape, generator=random)
            for optimizer in optimizers:
                optimizer.step()
            published = await asyncio.gather(*(writer.publish() for writer in writers))
            certificate = published[0].certificate
            assert certificate is not None
            assert certificate.inverted == published[0].elements
            assert certificate.unexplained <= 1
            await reader.sync()
            held_now = {
                name: tensor.detach().bfloat16().view(torch.int16).numpy() for name, tensor in whole.items()
            }
            for piece, view in views(layout, held_now):
                got = engine[piece.tensor].view(torch.int16).numpy()[box_of(piece)]
                assert np.array_equal(got, view), piece
        for writer in writers:
            await writer.close()


async def test_what_does_not_fit_is_said_before_anything_is_written() -> None:
    layout = transformers(MOE)
    trainer = Trainer([layout])
    async with await AsyncStream.create(memory_store(), trainer.model) as stream:
        before = [record.slot async for record in stream.records()]
        params = {**trainer.params[0], "model.norm.weight": np.zeros(23, BFLOAT16)}
        with pytest.raises(
            InputError, match=r"parameter 'model.norm.weight' is \[23\] where its layout has \[24\]"
        ):
            await stream.writer(params, layout=layout)
        other = transformers({**MOE, "hidden_size": 25})
        with pytest.raises(
            InputError, match=r"is part of shape \[100, 25\] where the stream has \[100, 24\]"
        ):
            await stream.writer(memory_for(other), layout=other)
        with pytest.raises(InputError, match="layout identity has no parameter 'w': leave it out"):
            await stream.writer({"w": np.zeros(3)}, layout=identity([]))
        assert [record.slot async for record in stream.records()] == before


async def test_processes_that_all_say_they_have_the_first_copy() -> None:
    layouts = [megatron(MOE, vocab_multiple=16) for _ in range(2)]
    trainer = Trainer(layouts)
    async with await AsyncStream.create(memory_store(), trainer.model) as stream:
        with pytest.raises(InputError, match="held by both rank 0 and rank 1: only one may publish them"):
            await trainer.open(stream.store)


async def test_a_parameter_that_gets_other_memory_is_noticed() -> None:
    layout = transformers(MOE)
    trainer = Trainer([layout])
    params = {
        name: torch.nn.Parameter(torch.from_numpy(array.astype(np.float32)).bfloat16())
        for name, array in trainer.params[0].items()
    }
    name = "model.layers.0.mlp.experts.gate_up_proj"
    async with await AsyncStream.create(memory_store(), params, layout=layout) as stream:
        writer = await stream.writer(params, layout=layout)
        params[name].data = params[name].data.clone()
        with pytest.raises(InputError, match=r"experts.*' has got other memory since it was given"):
            await writer.publish()


async def test_a_stream_is_not_made_of_what_the_layout_would_not_round() -> None:
    layout = transformers({**MOE, "dtype": "float32"})
    params = {param.name: np.zeros(param.shape, np.float32) for param in layout.params}
    with pytest.raises(InputError, match=r"layout transformers has tensors of F32, none of 'BF16'"):
        await AsyncStream.create(memory_store(), params, layout=layout, cast="BF16")
    half = megatron(MOE, tp=2, vocab_multiple=16)
    with pytest.raises(InputError, match="held by nobody"):
        await AsyncStream.create(memory_store(), memory_for(half), layout=half)
