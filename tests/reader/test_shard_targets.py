"""What a reader by layout refuses: by name, with the numbers, before anything of the weights is fetched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.cutting import plain_table
from deltastore.layout.drawing import Drawing
from deltastore.layout.live_shard import LiveShard
from deltastore.layout.pieces import Layout
from deltastore.reader.opening import open_reader
from tests.doubles.models import bf16
from tests.doubles.stores import WatchedStore, memory_store
from tests.doubles.training import Trainer
from tests.reader.shards import params_for

BF16 = DTYPES["BF16"]
UP = TensorSpec("up", (6, 8), BF16)
NORM = TensorSpec("norm", (8,), BF16)
GATE = TensorSpec("gate", (6, 8), BF16)
MODEL = (GATE, UP, NORM)


def fused(*tensors: TensorSpec, **options: Any) -> Layout:
    """Gate and up rows 0 to 2 in one parameter, seen as (2, 3, 8), and the norm."""
    drawing = Drawing("rank 0 of 2", tensors or MODEL, **options)
    param = drawing.param("gate_up", (6, 8), BF16, view=(2, 3, 8))
    for number, spec in enumerate((GATE, UP)):
        drawing.place(spec, param, size=(3, 8), at=(number, 0, 0), axes=(1, 2))
    drawing.whole(NORM)
    drawing.tie("norm_again", "norm")
    return drawing.done()


def read_only(param: Any) -> Any:
    param.flags.writeable = False
    return param


@pytest.fixture
async def stream() -> WatchedStore:
    store = WatchedStore(memory_store())
    await Trainer.create(store, {spec.name: bf16(np.zeros(spec.shape)) for spec in MODEL})
    return store


REFUSED: list[tuple[str, Callable[[dict[str, Any]], Any], str, str]] = [
    ("gate_up", lambda given: None, "missing_tensor", "is not given: give all of its 2"),
    ("extra", lambda given: bf16([1]), "unknown_tensor", "no parameter 'extra'"),
    ("gate_up", lambda given: given["gate_up"][:5].copy(), "wrong_shape", r"\[5, 8\] where .* \[6, 8\]"),
    ("gate_up", lambda given: given["gate_up"].T.copy(), "wrong_shape", r"\[8, 6\] where .* \[6, 8\]"),
    ("gate_up", lambda given: given["gate_up"].reshape(2, 3, 8), "wrong_shape", "private layout"),
    ("gate_up", lambda given: given["gate_up"].astype(np.float32), "wrong_dtype", "F32 where .* BF16"),
    ("gate_up", lambda given: np.zeros((6, 8), np.int16), "wrong_dtype", "I16 where .* BF16"),
    ("norm", lambda given: read_only(given["norm"].copy()), "wrong_memory", "read-only"),
    ("norm", lambda given: np.broadcast_to(given["norm"][:1], 8), "wrong_memory", "share memory"),
    ("gate_up", lambda given: np.repeat(given["gate_up"], 2, 1)[:, ::2], "wrong_memory", "not contiguous"),
    ("norm", lambda given: given["gate_up"][0], "wrong_memory", "'gate_up' and 'norm' share|'norm' and"),
    ("norm", lambda given: given["norm"].tolist(), "wrong_memory", "is a list"),
    ("norm_again", lambda given: given["norm"].copy(), "wrong_memory", "ties it to 'norm'"),
    ("norm", lambda given: torch.zeros(8, dtype=torch.bfloat16, device="meta"), "wrong_memory", "meta"),
]


@pytest.mark.spec("DS112")
@pytest.mark.parametrize(("name", "make", "code", "text"), REFUSED)
async def test_parameters_that_do_not_fit(
    stream: WatchedStore, name: str, make: Callable[[dict[str, Any]], Any], code: str, text: str
) -> None:
    layout = fused()
    given = params_for(layout)
    made = make(given)
    given[name] = made
    if made is None:
        del given[name]
    stream.forget()
    with pytest.raises(InputError, match=text) as caught:
        await open_reader(stream, given, layout=layout)
    assert caught.value.code == code
    assert name in str(caught.value)
    assert not any(key.startswith(("packs/", "anchors/")) for key in stream.keys("get", "get_range"))


async def test_a_tie_may_be_given_as_the_memory_that_it_is(stream: WatchedStore) -> None:
    layout = fused()
    given = params_for(layout)
    reader = await open_reader(stream, {**given, "norm_again": given["norm"]}, layout=layout)
    assert (await reader.sync()).changed == 6 * 8 + 8
    assert not given["norm"].view(np.uint16).any()


@pytest.mark.parametrize(
    ("tensors", "code", "name"),
    [
        ((*MODEL, TensorSpec("bias", (4,), BF16)), "unknown_tensor", "bias"),
        ((GATE, UP, replace(NORM, dtype=DTYPES["F16"])), "wrong_dtype", "norm"),
        ((GATE, replace(UP, shape=(7, 8)), NORM), "wrong_shape", "up"),
    ],
)
def test_a_layout_of_another_model(tensors: tuple[TensorSpec, ...], code: str, name: str) -> None:
    types = {tensor.name: tensor.dtype for tensor in tensors}
    params = tuple(replace(param, dtype=types.get(param.name, param.dtype)) for param in fused().params)
    layout = replace(fused(), tensors=tensors, params=params)
    with pytest.raises(InputError, match=name) as caught:
        LiveShard(plain_table(MODEL), layout, params_for(fused()))
    assert (caught.value.code, caught.value.where) == (code, name)


def test_a_tensor_that_nobody_wants() -> None:
    table = plain_table([*MODEL, TensorSpec("ahead.0.weight", (4,), BF16)])
    with pytest.raises(InputError, match=r"'ahead\.0\.weight' of the stream is wanted by nobody") as caught:
        LiveShard(table, fused(), params_for(fused()))
    assert caught.value.code == "missing_tensor"
    layout = fused(unheld=("ahead.",))
    shard = LiveShard(table, layout, params_for(layout))
    assert shard.boxes.chunks["array"].tolist() == [
        number for number, array in enumerate(table.arrays) if "ahead" not in array.pattern
    ]


def test_a_stream_that_has_a_tensor_by_its_alias_only() -> None:
    table = plain_table([GATE, UP, TensorSpec("scale", (8,), BF16)])
    layout = fused(aliases={"scale": "norm"})
    shard = LiveShard(table, layout, params_for(layout))
    assert shard.tied == []
    assert len(shard.boxes.every) == 3


def test_memory_in_two_places() -> None:
    layout = fused()
    given = params_for(layout)
    shard = LiveShard(plain_table(MODEL), layout, given)
    assert shard.device_pieces is None
    assert shard.pieces is not None
    assert shard.once is shard.pieces
    assert list(shard.astray()) == []


def test_a_table_of_many_tensors_is_no_work() -> None:
    specs = [
        TensorSpec(f"layers.{layer}.experts.{expert}.up", (4, 2), BF16)
        for layer in range(20)
        for expert in range(128)
    ]
    drawing = Drawing("one of two", specs)
    for number, spec in enumerate(specs):
        if number % 2:
            drawing.whole(spec)
    layout = drawing.done()
    shard = LiveShard(plain_table(specs), layout, params_for(layout))
    assert len(shard.boxes.once) == len(specs) // 2
    assert not shard.boxes.whole.any()
