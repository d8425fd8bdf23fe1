from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from deltastore.detect.adamw.attachment import Attachment, Taken
from deltastore.detect.adamw.matching import Spot
from deltastore.detect.adamw.memory import memory_of
from deltastore.errors import InputError
from deltastore.layout.parts import flat_parts
from tests.detect.adamw.stepping import Told, attach, bits, explains, parameters, step

REPLACED = Taken(None, "its memory was replaced", True)


def check_each_is_explained(attachment: Attachment, params: list[Any]) -> None:
    for seed in range(2):
        before = [bits(held.view) for held in attachment.held]
        step(attachment, params, seed)
        assert all(explains(attachment, at, old) for at, old in enumerate(before))


def test_flat_buffers_that_ignore_where_tensors_begin() -> None:
    # Tensors of 40 x 30, 7 and 25 x 20 elements, one after another, cut into three buffers.
    shapes = {"a": (40, 30), "b": (7,), "c": (25, 20)}
    params = parameters((550,), (651,), (506,))
    held: dict[str, Any] = {}
    buffer_of = np.repeat(np.arange(3), [550, 651, 506])
    at = 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        for number in np.unique(buffer_of[at : at + size]).tolist():
            inside = np.flatnonzero(buffer_of[at : at + size] == number)
            start = at + int(inside[0]) - int(np.flatnonzero(buffer_of == number)[0])
            run = params[number].detach()[start : start + len(inside)]
            parts = flat_parts(run, shape, int(inside[0]))
            held |= {f"{name}/{number}/{part}": each.tensor for part, each in enumerate(parts)}
        at += size
    assert sum(view.numel() for view in held.values()) == 1707
    assert len(held) > 6
    attachment = attach(torch.optim.AdamW(params, weight_decay=0.1), held)
    assert attachment.covered == set(range(len(held)))
    check_each_is_explained(attachment, params)


def test_parameters_that_are_views_of_one_buffer() -> None:
    buffer = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    params = [torch.nn.Parameter(buffer[100:400].view(20, 15)), torch.nn.Parameter(buffer[400:1000])]
    views = [params[0].detach()[3:9, 2:11], params[0].detach().t(), buffer[400:1000].view(6, 100)[:, 1::3]]
    attachment = attach(torch.optim.AdamW(params), views)
    assert attachment.covered == {0, 1, 2}
    check_each_is_explained(attachment, params)
    mean, _ = attachment.moments(0)
    assert mean.data_ptr() > attachment.optimizer.state[params[0]]["exp_avg"].data_ptr()


def test_a_box_across_two_parameters_and_one_beside_them() -> None:
    buffer = torch.zeros(100)
    params = [torch.nn.Parameter(buffer[:40]), torch.nn.Parameter(buffer[40:80])]
    attachment = attach(torch.optim.AdamW(params), [buffer[30:50], buffer[80:], buffer[70:90], buffer[:0]])
    assert not attachment.covered
    assert attachment.refused == {
        0: "it lies across several parameters",
        2: "it lies in a parameter's memory, but not as a part of it that can be found in the moments",
    }


def test_parameters_that_are_not_contiguous_are_found_whole_only() -> None:
    base = torch.randn(30, 40, generator=torch.Generator().manual_seed(1))
    params = [torch.nn.Parameter(base[:, :10]), torch.nn.Parameter(base[:, 10:].t())]
    views = [base[:, :10], base[:, 10:].t(), base[:, 10:], base[:, 3:5], base[:, 5:15]]
    attachment = attach(torch.optim.AdamW(params), views)
    assert attachment.covered == {0, 1}
    assert sorted(attachment.refused) == [2, 3, 4]
    for seed in range(2):
        before = [bits(view) for view in views[:2]]
        step(attachment, params, seed)
        assert all(explains(attachment, at, old) for at, old in enumerate(before))


def test_views_of_another_element_type_are_refused() -> None:
    params = parameters((10, 4))
    attachment = attach(torch.optim.AdamW(params), [params[0].detach().view(torch.int32)])
    assert attachment.refused == {0: "it is int32"}


def test_numpy_views_of_parameters_and_moments_of_another_layout() -> None:
    params = parameters((30, 40))
    weights = params[0].detach().numpy()
    attachment = attach(torch.optim.AdamW(params), {"rows": torch.from_numpy(weights[5:9]), "all": params[0]})
    as_arrays = attach(attachment.optimizer, {"rows": weights[5:9, ::2], "back": weights[::-1]})
    assert as_arrays.covered == {0}
    before = bits(params[0])
    step(attachment, params)
    state = attachment.optimizer.state[params[0]]
    state["exp_avg"] = state["exp_avg"].t().contiguous().t()
    assert explains(attachment, 0, before[5:9])
    assert explains(attachment, 1, before)
    assert as_arrays.taken(0).hyper == attachment.taken(0).hyper
    assert torch.equal(as_arrays.moments(0)[0], attachment.moments(0)[0][:, ::2])


def test_a_spot_in_arrays_leads_to_the_same_place_of_the_moments() -> None:
    weights = np.zeros((6, 7), np.float32)
    whole, box = memory_of(weights), memory_of(weights[2:, 1:3])
    assert whole is not None
    assert box is not None
    spot = Spot(weights, 0, 0, whole, box, 15)
    assert spot.stands(weights[2:, 1:3])
    assert not spot.stands(weights[1:5, 1:3])
    numbered = np.arange(42, dtype=np.float32).reshape(6, 7)
    assert np.array_equal(spot.inside(numbered), numbered[2:, 1:3])
    assert np.array_equal(spot.inside(np.asfortranarray(numbered)), numbered[2:, 1:3])


def test_one_element_in_two_parameters_is_an_error() -> None:
    buffer = torch.zeros(100)
    views = [torch.nn.Parameter(buffer[:60]), torch.nn.Parameter(buffer[40:])]
    with pytest.raises(InputError, match=r"'w0' lies in parameter 0 of group 0 and parameter 1 of group 0"):
        attach(torch.optim.AdamW(views), [buffer[45:55]])
    with pytest.raises(InputError, match="which both move it"):
        attach(torch.optim.AdamW(views), [buffer[30:50]])
    assert attach(torch.optim.AdamW(views), [buffer[:40]]).covered == {0}
    twice = torch.optim.AdamW(views[:1])
    twice.param_groups.append({**twice.param_groups[0], "params": views[:1]})
    with pytest.raises(InputError, match=r"'w0' lies in parameter 0 of group 0 and parameter 0 of group 1"):
        attach(twice, [buffer[:60]])


def test_a_state_that_moved_is_looked_up_anew() -> None:
    params = parameters((30, 40))
    attachment = attach(torch.optim.AdamW(params), params)
    before = bits(params[0])
    step(attachment, params)
    state = attachment.optimizer.state[params[0]]
    for name in ("exp_avg", "exp_avg_sq"):
        state[name] = state[name].clone()
    assert explains(attachment, 0, before)
    assert attachment.moments(0)[1].data_ptr() == state["exp_avg_sq"].data_ptr()


def test_memory_that_was_replaced_is_told_and_found_again() -> None:
    params = parameters((30, 40), (5,))
    attachment = attach(torch.optim.AdamW(params), params)
    home = params[0].data
    params[0].data = home.clone()
    assert attachment.taken(0) == REPLACED
    with pytest.raises(InputError, match="'w0' is no parameter of it"):
        attachment.moments(0)
    step(attachment, params)
    assert attachment.taken(0) == REPLACED
    assert attachment.taken(1).hyper is not None
    params[0].data = home
    before = bits(params[0])
    step(attachment, params)
    assert attachment.covered == {0, 1}
    assert explains(attachment, 0, before)


def test_memory_that_moves_with_its_views_stays_found() -> None:
    params = parameters((30, 40))
    storage = params[0].data.untyped_storage()
    attachment = attach(torch.optim.AdamW(params), [params[0].detach()[4:]])
    kept = storage.tolist()
    storage.resize_(0)
    assert attachment.taken(0) == REPLACED
    storage.resize_(len(kept))
    attachment.forget()
    params[0].data.view(torch.uint8).view(-1).copy_(torch.tensor(kept, dtype=torch.uint8))
    before = bits(attachment.held[0].view)
    step(attachment, params)
    assert explains(attachment, 0, before)


def test_moments_that_are_not_of_the_parameter_are_errors() -> None:
    params = parameters((30, 40))
    optimizer = Told(params, Told.count)
    attachment = attach(optimizer, {"layer.weight": params[0]})
    optimizer.step()
    state = optimizer.state[params[0]]
    state["exp_avg"] = torch.zeros(40, 30)
    with pytest.raises(
        InputError, match=r"'layer.weight' has shape \[40, 30\], where parameter 0 of group 0"
    ) as caught:
        attachment.moments(0)
    assert caught.value.code == "wrong_shape"
    state["exp_avg"] = torch.zeros(30, 40)
    state["exp_avg"].untyped_storage().resize_(0)
    with pytest.raises(InputError, match=r"exp_avg of tensor 'layer.weight' is not in memory") as caught:
        attachment.moments(0)
    assert caught.value.code == "wrong_memory"
    state["exp_avg"] = torch.zeros(30, 40, dtype=torch.float64)
    with pytest.raises(InputError, match=r"no moments to use: its moments are float64, not FP32"):
        attachment.moments(0)


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Any]:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=(tmp_path / "at").as_uri(), rank=0, world_size=1)
    try:
        yield dist.device_mesh.init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("foreach", [False, True])
def test_distributed_tensors_are_found_by_what_they_hold(mesh: Any, foreach: bool) -> None:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.Linear(20, 10))
    fully_shard(model, mesh=mesh)
    params = list(model.parameters())
    shards: list[Any] = [param.detach() for param in params]
    optimizer = torch.optim.AdamW(params, foreach=foreach)
    attachment = attach(optimizer, [shard.to_local() for shard in shards])
    assert attachment.covered == {0, 1, 2, 3}
    for _ in range(2):
        attachment.forget()
        model(torch.ones(3, 30)).square().sum().backward()
        before = [bits(held.view) for held in attachment.held]
        attachment.optimizer.step()
        assert all(explains(attachment, at, old) for at, old in enumerate(before))
