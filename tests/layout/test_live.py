"""Live weights: tensors read through the stream's table, and models that do not fit, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.cutting import plain_table
from deltastore.layout.fitting import check_tensors
from deltastore.layout.live import LiveWeights, live_specs
from deltastore.layout.watched import WatchedWeights
from deltastore.layout.weights import chunks_of, digest_of
from tests.doubles.models import bf16, bits, copy_of, cut_table, small_model, tiny_model


async def through(weights: Any, model: dict[str, Any]) -> list[str]:
    """The tensors that do not come out of ``weights`` as they are in ``model``."""
    table, wanted = weights.table, bits(model)
    arrays = [np.zeros(array.grid.extent, array.element.storage) for array in table.arrays]
    async for number, _, box, found in chunks_of(weights):
        assert found.shape == box.size
        assert found.dtype == table.arrays[number].element.storage
        arrays[number][box.slices] = found
    return [
        name
        for name, (array, member) in table.places.items()
        if arrays[array][member].tobytes() != wanted[name].tobytes()
    ]


@pytest.mark.parametrize("limit", [1, 3, 7, 16, 1000, 1 << 20])
async def test_every_cut_reads_the_same_bits(limit: int) -> None:
    model = small_model()
    weights = LiveWeights(cut_table(model, limit), model)
    assert await through(weights, model) == []
    assert await digest_of(weights) == await digest_of(LiveWeights(plain_table(live_specs(model)), model))


@pytest.mark.parametrize("limit", [3, 16, 1 << 20])
async def test_memory_in_any_order(limit: int) -> None:
    model: dict[str, Any] = copy_of(small_model())
    plain = copy_of(model)
    for name in ("model.layers.1.mlp.up_proj.weight", "model.embed_tokens.weight", "model.router.weight"):
        model[name] = np.asfortranarray(model[name])
    norm = model["model.norm.weight"]
    model["model.norm.weight"] = np.repeat(norm.view(np.uint16), 2).view(norm.dtype)[::2]
    table = cut_table(plain, limit)
    assert await through(LiveWeights(table, model), plain) == []
    assert await digest_of(LiveWeights(table, model)) == await digest_of(LiveWeights(table, plain))


async def test_torch_and_numpy_tensors_of_one_model() -> None:
    model: dict[str, Any] = copy_of(small_model())
    digest = await digest_of(LiveWeights(plain_table(live_specs(model)), model))
    mixed: dict[str, Any] = dict(model)
    for name in ("model.embed_tokens.weight", "model.layers.2.mlp.up_proj.weight", "model.scale"):
        mixed[name] = torch.from_numpy(model[name].view(np.int16).copy()).view(torch.bfloat16)
    assert live_specs(mixed) == live_specs(model)
    weights = LiveWeights(plain_table(live_specs(mixed)), mixed)
    assert await through(weights, model) == []
    assert await digest_of(weights) == digest


def test_the_order_of_the_tensors_does_not_matter() -> None:
    model = small_model()
    backwards = dict(reversed(model.items()))
    assert plain_table(live_specs(model)).sha256 == plain_table(live_specs(backwards)).sha256


class TestFitting:
    """A model that is not the stream's is refused, naming the first tensor that does not fit."""

    @pytest.mark.parametrize(
        ("name", "tensor", "code"),
        [
            ("norm", None, "missing_tensor"),
            ("surplus", bf16([1]), "unknown_tensor"),
            ("layers.3.weight", bf16(np.zeros((4, 5))), "unknown_tensor"),
            ("norm", bf16(np.zeros(11)), "wrong_shape"),
            ("norm", bf16(np.zeros((12, 1))), "wrong_shape"),
            ("norm", bf16(0), "wrong_shape"),
            ("layers.1.weight", bf16(np.zeros((5, 4))), "wrong_shape"),
            ("norm", np.zeros(12, np.float16), "wrong_dtype"),
            ("norm", np.zeros(12, np.int16), "wrong_dtype"),
            ("norm", np.zeros(12, np.float32), "wrong_dtype"),
            ("norm", np.zeros(12, np.uint8), "wrong_dtype"),
            ("norm", np.zeros(12, np.complex128), "wrong_dtype"),
            ("norm", np.zeros(12, ">u2"), "wrong_memory"),
        ],
    )
    def test_refusals(self, name: str, tensor: Any, code: str) -> None:
        model: dict[str, Any] = tiny_model()
        table = plain_table(live_specs(model))
        if tensor is None:
            del model[name]
        else:
            model[name] = tensor
        with pytest.raises(InputError) as caught:
            LiveWeights(table, model)
        assert (caught.value.code, caught.value.where) == (code, name)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_the_numbers_of_both_sides_are_named(self) -> None:
        model: dict[str, Any] = {**tiny_model(), "layers.1.weight": bf16(np.zeros((5, 4)))}
        table = plain_table(live_specs(tiny_model()))
        with pytest.raises(InputError, match=r"\[5, 4\].*\[4, 5\]"):
            LiveWeights(table, model)
        del model["layers.1.weight"]
        with pytest.raises(InputError, match="3 of 4 tensors"):
            LiveWeights(table, model)

    def test_raw_bits_stand_for_a_type_that_numpy_lacks(self) -> None:
        model: dict[str, Any] = tiny_model()
        table = plain_table(live_specs(model))
        LiveWeights(table, {**model, "norm": model["norm"].view(np.uint16)})
        fp8 = {"w": np.zeros(3, np.uint8)}
        spec = [TensorSpec("w", (3,), DTYPES["F8_E4M3"])]
        LiveWeights(plain_table(spec), fp8)
        with pytest.raises(InputError) as caught:
            LiveWeights(plain_table([TensorSpec("w", (3,), DTYPES["I8"])]), fp8)
        assert caught.value.code == "wrong_dtype"

    def test_a_tensor_given_twice(self) -> None:
        spec = TensorSpec("w", (3,), DTYPES["BF16"])
        with pytest.raises(InputError) as caught:
            check_tensors(plain_table([spec]), [spec, spec])
        assert (caught.value.code, caught.value.where) == ("bad_argument", "w")
        with pytest.raises(InputError) as stacked:
            plain_table([spec, spec])
        assert (stacked.value.code, stacked.value.where) == ("bad_argument", "w")

    @pytest.mark.parametrize("name", ["", "x" * 1025])
    def test_names_that_no_stream_can_have(self, name: str) -> None:
        with pytest.raises(InputError) as caught:
            plain_table(live_specs({name: bf16([1])}))
        assert caught.value.code == "bad_argument"

    def test_more_axes_than_a_stream_can_have(self) -> None:
        assert plain_table(live_specs({"w": bf16(np.zeros((1,) * 16))})).elements == 1
        with pytest.raises(InputError) as caught:
            plain_table(live_specs({"w": bf16(np.zeros((1,) * 17))}))
        assert caught.value.code == "bad_argument"


class TestTied:
    """One memory under two names."""

    async def test_a_name_that_the_stream_lacks_may_be_another_name_of_its_memory(self) -> None:
        model: dict[str, Any] = small_model()
        table = plain_table(live_specs(model))
        tied = {**model, "lm_head.weight": model["model.embed_tokens.weight"]}
        assert await through(LiveWeights(table, tied), model) == []

    def test_equal_but_separate_memory_is_not_tied(self) -> None:
        model: dict[str, Any] = small_model()
        table = plain_table(live_specs(model))
        for other in (model["model.embed_tokens.weight"].copy(), model["model.embed_tokens.weight"][:6]):
            with pytest.raises(InputError) as caught:
                LiveWeights(table, {**model, "lm_head.weight": other})
            assert (caught.value.code, caught.value.where) == ("unknown_tensor", "lm_head.weight")

    async def test_both_names_in_the_stream(self) -> None:
        model: dict[str, Any] = small_model()
        model["lm_head.weight"] = model["model.embed_tokens.weight"]
        assert await through(LiveWeights(plain_table(live_specs(model)), model), model) == []

    def test_a_torch_tied_head(self) -> None:
        embed = torch.nn.Embedding(4, 3)
        table = plain_table(live_specs({"embed.weight": embed.weight}))
        LiveWeights(table, {"embed.weight": embed.weight, "lm_head.weight": embed.weight})
        with pytest.raises(InputError):
            LiveWeights(
                table, {"embed.weight": embed.weight, "lm_head.weight": embed.weight.detach().clone()}
            )


async def test_watched_weights_count_what_is_read() -> None:
    model = small_model()
    seen: list[tuple[int, int]] = []
    weights = WatchedWeights(
        LiveWeights(cut_table(model, 8), model), lambda done, total: seen.append((done, total)), passes=2
    )
    total = weights.table.nbytes * 2
    await digest_of(weights)
    assert seen[-1] == (total // 2, total)
    await digest_of(weights)
    assert seen[-1] == (total, total)
    await digest_of(weights)
    assert max(seen) == (total, total)
    assert await through(WatchedWeights(LiveWeights(weights.table, model), None), model) == []
