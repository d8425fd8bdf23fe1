"""The live tensors that a reader writes into: what is refused, and that all else is written right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.kernels.reference.staged import staged
from deltastore.reader.host import HostTargets
from deltastore.reader.opening import open_reader
from deltastore.validate import validate
from tests.doubles.models import bf16, bits, blank, copy_of, cut_table, differing, small_model, tiny_model
from tests.doubles.stores import contents, memory_store
from tests.doubles.training import Trainer

EMBED = "model.embed_tokens.weight"


def read_only(tensor: Any) -> Any:
    copy = tensor.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize(
    ("name", "make", "code"),
    [
        (EMBED, lambda tensor: None, "missing_tensor"),
        ("model.extra", lambda tensor: bf16([1]), "unknown_tensor"),
        (EMBED, lambda tensor: tensor[:-1].copy(), "wrong_shape"),
        (EMBED, lambda tensor: tensor.T.copy(), "wrong_shape"),
        (EMBED, lambda tensor: tensor.reshape(-1), "wrong_shape"),
        (EMBED, lambda tensor: tensor.astype(np.float32), "wrong_dtype"),
        (EMBED, lambda tensor: tensor.view(np.int16).copy(), "wrong_dtype"),
        (EMBED, lambda tensor: tensor.view(np.uint16).byteswap().view(">u2"), "wrong_memory"),
        (EMBED, read_only, "wrong_memory"),
        (EMBED, lambda tensor: np.broadcast_to(tensor[:1], tensor.shape), "wrong_memory"),
        (EMBED, lambda tensor: tensor.tolist(), "wrong_memory"),
        (EMBED, lambda tensor: torch.zeros(12, 8, dtype=torch.bfloat16, device="meta"), "wrong_memory"),
        ("model.scale", lambda tensor: bf16([0x3F80]), "wrong_shape"),
        ("model.router.weight", lambda tensor: tensor.astype(np.float64), "wrong_dtype"),
    ],
)
async def test_refusals_name_the_tensor_and_fetch_no_weights(
    trainer: Trainer, name: str, make: Callable[[Any], Any], code: str
) -> None:
    tensors: dict[str, Any] = blank(trainer.model)
    made = make(tensors.get(name))
    before = bits(tensors)
    given = {**tensors, name: made}
    if made is None:
        del given[name]
    with pytest.raises(InputError) as caught:
        await open_reader(trainer.store, given)
    assert (caught.value.code, caught.value.where) == (code, name)
    assert name in str(caught.value)
    assert differing(tensors, before) == []


class TestSharedMemory:
    """Two names for one memory."""

    @pytest.mark.parametrize("rows", [slice(0, 4), slice(5, 9), slice(8, 12)])
    async def test_partly_shared_memory_is_refused(self, rows: slice) -> None:
        model = {"a": bf16(np.zeros((8, 3))), "b": bf16(np.zeros((4, 3)))}
        trainer = await Trainer.create(memory_store(), model)
        memory = bf16(np.zeros((12, 3)))
        given = {"a": memory[:8], "b": memory[rows]}
        if rows.start >= 8:
            await open_reader(trainer.store, given)
            return
        with pytest.raises(InputError, match=r"'a' and 'b'|'b' and 'a'") as caught:
            await open_reader(trainer.store, given)
        assert caught.value.code == "wrong_memory"

    async def test_interleaved_memory_that_is_not_shared_is_fine(self) -> None:
        model = {
            "a": bf16(np.arange(12).reshape(3, 4)),
            "b": bf16(np.arange(12).reshape(3, 4)),
            "c": bf16([1, 2]),
        }
        trainer = await Trainer.create(memory_store(), model)
        memory = bf16(np.zeros((3, 9)))
        given = {"a": memory[:, 0:8:2], "b": memory[:, 1:8:2], "c": memory[:2, 8]}
        reader = await open_reader(trainer.store, given)
        for _ in range(3):
            await trainer.step(5)
            await reader.sync()
            assert differing(given, trainer.history[reader.version or 0]) == []

    async def test_shared_by_another_type_is_refused(self) -> None:
        model = {"a": bf16(np.zeros(4)), "b": np.zeros(2, np.float32)}
        trainer = await Trainer.create(memory_store(), model)
        memory = np.zeros(2, np.float32)
        with pytest.raises(InputError):
            await open_reader(trainer.store, {"a": memory.view(np.uint16), "b": memory})

    async def test_a_sliding_window_is_refused(self) -> None:
        model = {"w": bf16(np.zeros((4, 3)))}
        trainer = await Trainer.create(memory_store(), model)
        window = np.lib.stride_tricks.sliding_window_view(np.zeros(6, np.uint16), 3, writeable=True)
        with pytest.raises(InputError) as caught:
            await open_reader(trainer.store, {"w": window})
        assert caught.value.code == "wrong_memory"

    async def test_a_tied_head_that_the_stream_lacks(self, trainer: Trainer) -> None:
        tensors: dict[str, Any] = blank(trainer.model)
        tied = {**tensors, "lm_head.weight": tensors[EMBED]}
        reader = await open_reader(trainer.store, tied)
        trainer.model[EMBED].view(np.uint16)[3, 3] ^= 0x8001
        await trainer.publish()
        await reader.sync()
        assert differing(tensors, trainer.history[2]) == []
        assert tied["lm_head.weight"].tobytes() == trainer.history[2][EMBED].tobytes()
        with pytest.raises(InputError) as caught:
            await open_reader(trainer.store, {**tensors, "lm_head.weight": tensors[EMBED].copy()})
        assert caught.value.code == "unknown_tensor"

    async def test_tied_in_the_stream_and_in_the_engine(self) -> None:
        model = tiny_model()
        model["lm_head"] = model["embed"] = bf16(np.arange(30).reshape(5, 6))
        trainer = await Trainer.create(memory_store(), model)
        memory = bf16(np.ones((5, 6)))
        tensors = {**blank(tiny_model()), "embed": memory, "lm_head": memory}
        reader = await open_reader(trainer.store, tensors)
        for _ in range(4):
            await trainer.step(12)
            model["embed"].view(np.uint16)[1, 1] += 1
            await trainer.publish()
            await reader.sync()
            assert differing(tensors, trainer.history[reader.version or 0]) == []
        assert (await validate(trainer.store)).ok

    async def test_tied_in_the_engine_only_is_never_a_version(self) -> None:
        """The two tensors differ, so no memory that they share can hold both: never silently wrong."""
        model = {"embed": bf16(np.arange(6)), "lm_head": bf16(np.arange(6))}
        trainer = await Trainer.create(memory_store(), model)
        memory = bf16(np.zeros(6))
        reader = await open_reader(trainer.store, {"embed": memory, "lm_head": memory})
        await reader.sync()
        assert reader.version == 0
        model["embed"].view(np.uint16)[2] = 77
        await trainer.publish()
        for _ in range(3):
            with pytest.raises(InputError, match="one memory here") as caught:
                await reader.sync()
            assert (caught.value.code, caught.value.where) == ("wrong_memory", "lm_head")
            assert (reader.version, reader.torn) == (0, False)
            assert memory.view(np.uint16).tolist() == list(range(6))
        model["lm_head"].view(np.uint16)[2] = 77
        await trainer.publish(anchor=True)
        fresh = await open_reader(trainer.store, {"embed": memory, "lm_head": memory})
        assert (await fresh.sync()).version == 2

    async def test_an_anchor_of_tensors_that_differ_is_no_version_of_one_memory(self) -> None:
        trainer = await Trainer.create(
            memory_store(), {"embed": bf16(np.arange(6)), "lm_head": bf16(np.arange(1, 7))}
        )
        memory = bf16(np.zeros(6))
        reader = await open_reader(trainer.store, {"embed": memory, "lm_head": memory})
        with pytest.raises(InputError, match="one memory here") as caught:
            await reader.sync()
        assert caught.value.code == "wrong_memory"
        assert (reader.version, reader.torn) == (None, True)


@pytest.mark.parametrize("limit", [5, 16, 1 << 20])
async def test_memory_in_any_order(limit: int) -> None:
    """Transposed, reversed and strided targets are gathered from and scattered to at the right elements."""
    model = small_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, limit))
    tensors: dict[str, Any] = blank(model)
    tensors[EMBED] = np.asfortranarray(tensors[EMBED])
    tensors["model.layers.1.mlp.up_proj.weight"] = bf16(np.zeros((12, 16)))[::2, ::2]
    tensors["model.router.weight"] = np.zeros((8, 4), np.float32)[::-1].T
    tensors["model.norm.weight"] = bf16(np.zeros((12, 3)))[:, 1]
    tensors["model.fp8.weight"] = torch.zeros(3, 5, dtype=torch.float8_e4m3fn).t()
    reader = await open_reader(trainer.store, tensors)
    for _ in range(5):
        await trainer.step(40)
        await reader.sync()
        assert differing(bits(tensors), trainer.history[reader.version or 0]) == []


async def test_scatter_agrees_with_plain_indexing() -> None:
    model = small_model()
    table = cut_table(model, 11)
    copy = copy_of(model)
    targets = HostTargets(table, copy)
    random = np.random.default_rng(0)
    for number, array in enumerate(table.arrays):
        for chunk, box in array.grid.boxes():
            count = int(random.integers(1, box.elements + 1))
            positions = np.sort(random.choice(box.elements, count, replace=False)).astype(np.uint32)
            places = np.unravel_index(positions, box.size)
            at = [
                tuple(int(p) + start for p, start in zip(place, box.start, strict=True))
                for place in zip(*places, strict=True)
            ]
            old = np.array(
                [bits(copy)[array.names[member]][inner] for member, *rest in at for inner in [tuple(rest)]]
            )
            new = old.astype(array.element.storage) ^ array.element.storage.type(1)
            step = staged([((number, chunk), (positions, new))])
            assert targets.mismatches(step) == count
            targets.scatter(step)
            assert targets.mismatches(step) == 0
            assert [int(bits(copy)[array.names[place[0]]][place[1:]]) for place in at] == new.tolist()
            targets.scatter(staged([((number, chunk), (positions, old.astype(new.dtype)))]))
    assert differing(copy, model) == []


async def test_opening_a_reader_writes_nothing_anywhere(trainer: Trainer) -> None:
    tensors = blank(trainer.model)
    before, objects = bits(tensors), await contents(trainer.store)
    await open_reader(trainer.store, tensors)
    assert differing(tensors, before) == []
    assert await contents(trainer.store) == objects
