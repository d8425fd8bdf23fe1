"""Layouts that nobody drew: looked at where they are used, once, before anything is fetched or published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout import checking
from deltastore.layout.checking import check_layout
from deltastore.layout.cutting import plain_table
from deltastore.layout.laid_parts import parts_of
from deltastore.layout.layout_object import LayoutObject
from deltastore.layout.pieces import Hole, Layout, Param, Piece
from deltastore.layout.planning import check_world, make_plan
from deltastore.layout.shard_boxes import ShardBoxes
from deltastore.layout.trainers.fully_sharded import fully_sharded
from deltastore.layout.trainers.transformers import identity
from deltastore.stream import AsyncStream
from tests.doubles.stores import WatchedStore, memory_store
from tests.layout.counting import Counted

U16, U32 = DTYPES["U16"], DTYPES["U32"]
A, B = TensorSpec("a", (4,), U16), TensorSpec("b", (4,), U16)
WHOLE = Piece("a", (0,), (4,), "p", (0,), (0,))
OF_B = Piece("b", (0,), (4,), "p", (4,), (0,))


def hand_made(*pieces: Piece, shape: tuple[int, ...] = (4,), **more: Any) -> Layout:
    return Layout(
        **{"name": "mine", "tensors": (A, B), "params": (Param("p", shape, U16),), "pieces": pieces, **more}
    )


UNSOUND = {
    "outside its parameter": (hand_made(replace(WHOLE, at=(2,))), r"\[4\] elements of tensor 'a' from \[2\]"),
    "outside its tensor": (hand_made(replace(WHOLE, lo=(1,))), r"a piece of \[4\] from \[1\]"),
    "a hole without a name": (hand_made(WHOLE, shape=(8,)), r"\[4:8\] of \[8\] are fed by no tensor"),
    "one over another": (
        hand_made(WHOLE, replace(OF_B, at=(0,))),
        r"\[0:4\] .* fed by both tensor 'a' and tensor 'b'",
    ),
    "another type": (hand_made(WHOLE, params=(Param("p", (4,), U32),)), "it is U32 where tensor 'a' is U16"),
    "a parameter that there is not": (hand_made(WHOLE, replace(WHOLE, param="q")), "names parameter 'q'"),
    "a tensor that there is not": (hand_made(replace(WHOLE, tensor="c")), "names tensor 'c'"),
    "another view": (
        hand_made(WHOLE, params=(Param("p", (4,), U16, (3, 2)),)),
        r"tensor 'a' from \[0\] along axes \[0\]|cannot be seen as",
    ),
    "two axes in one": (hand_made(replace(WHOLE, axes=(0, 0))), r"axes \[0, 0\] are not 1 different axes"),
    "a hole outside": (hand_made(WHOLE, holes=(Hole("p", (4,), (1,)),)), r"a hole of \[1\] from \[4\]"),
    "a tie to nothing": (hand_made(WHOLE, ties={"q": "r"}), "'q': it is tied to 'r'"),
    "a parameter twice": (
        hand_made(WHOLE, params=(Param("p", (4,), U16),) * 2),
        "parameter 'p' is there twice",
    ),
    "a tensor twice": (hand_made(WHOLE, tensors=(A, B, A)), "tensor 'a' is there twice"),
}


@pytest.fixture(params=list(UNSOUND))
def unsound(request: pytest.FixtureRequest) -> tuple[Layout, str]:
    layout, says = UNSOUND[request.param]
    return replace(layout), says


@pytest.mark.spec("DS110", "DS111")
async def test_a_reader_and_a_writer_refuse_it_before_anything_moves(unsound: tuple[Layout, str]) -> None:
    layout, says = unsound
    store = WatchedStore(memory_store())
    stream = await AsyncStream.create(store, {spec.name: np.ones(4, np.uint16) for spec in (A, B)})
    store.forget()
    param = layout.params[0]
    memory = np.zeros(param.shape, np.uint32 if param.dtype == U32 else np.uint16)
    for use in (stream.reader, stream.writer):
        with pytest.raises(InputError, match=says) as caught:
            await use({"p": memory}, layout=layout)
        assert caught.value.code == "bad_layout"
    assert not memory.any()
    assert not any(key.startswith(("packs/", "anchors/")) for key in store.keys("get", "get_range"))
    assert store.keys("put", "create", "put_if_absent") == []


@pytest.mark.spec("DS110", "DS111")
def test_every_other_use_refuses_it(unsound: tuple[Layout, str]) -> None:
    layout, says = unsound
    sound = identity((A, B))
    uses = (
        lambda: check_layout(layout),
        lambda: ShardBoxes(plain_table((A, B)), layout),
        lambda: parts_of(layout, {}),
        lambda: make_plan([layout], sound),
        lambda: make_plan([sound], layout),
        lambda: check_world([sound, layout]),
        lambda: LayoutObject.of(layout),
        lambda: fully_sharded(layout, ranks=2, rank=0),
    )
    for use in uses:
        with pytest.raises(InputError, match=says) as caught:
            use()
        assert caught.value.code == "bad_layout"


def test_a_sound_one_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Counted(monkeypatch, checking, "first_flaw")
    layout = hand_made(WHOLE, OF_B, shape=(8,))
    table = plain_table((A, B))
    for _ in range(3):
        ShardBoxes(table, layout)
        parts_of(layout, {"p": np.zeros(8, np.uint16)})
        make_plan([layout], layout)
        check_world([layout])
        LayoutObject.of(layout)
    assert looked.calls == 1
    drawn = identity((A, B))
    assert looked.calls == 3
    ShardBoxes(table, drawn)
    assert looked.calls == 3
    # Another one made of it is looked at again.
    with pytest.raises(InputError, match=r"\[4:8\] of \[8\] are fed by no tensor"):
        ShardBoxes(table, replace(layout, pieces=(WHOLE,)))


def test_a_layout_object_that_lists_names_twice() -> None:
    known = LayoutObject.of(identity((A,)))
    fields = {
        name: getattr(known, name) for name in type(known).model_fields if name not in ("kind", "sha256")
    }
    for name, says in (("params", "parameter 'a' is there twice"), ("tensors", "tensor 'a' is there twice")):
        doubled = LayoutObject.seal_new(**{**fields, name: getattr(known, name) * 2})
        with pytest.raises(InputError, match=says) as caught:
            doubled.layout()
        assert caught.value.code == "bad_layout"


def test_a_world_of_nobody() -> None:
    with pytest.raises(InputError, match="give the layout of each of them") as caught:
        check_world([])
    assert caught.value.code == "bad_argument"
