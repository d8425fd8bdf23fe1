"""One process of a vLLM world, in this process: its model as vLLM makes it, filled by vLLM's own loaders.

There is no engine and nobody to talk to. torch's "fake" back end says that this process is ``rank`` of a
world, vLLM's own arithmetic makes the groups of that, and where it would connect one, a ``Seat`` stands in.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from deltastore.layout.engines.vllm import vllm
from deltastore.layout.pieces import Layout

os.environ.update(VLLM_CONFIGURE_LOGGING="0", VLLM_NO_USAGE_STATS="1", VLLM_PLUGINS="", HF_HUB_OFFLINE="1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what other projects warn of while they are imported
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from vllm.config import DeviceConfig, ModelConfig, ParallelConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as moe_method
    from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
    from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
    from vllm.model_executor.models import utils as models
    from vllm.utils.torch_utils import set_default_torch_dtype

__all__ = ["BACKENDS", "UNFED", "World", "arranged", "layout_of", "loaded", "params_of", "served", "ties_of"]

Weights = Iterable[tuple[str, torch.Tensor]]

BACKENDS = {backend.name.lower() for backend in UnquantizedMoeBackend}
"""What may compute the experts of a model."""

UNFED = -1.0
"""What a parameter holds where no tensor of the checkpoint was written."""


@dataclass(frozen=True)
class World:
    """Degrees, as on vLLM's command line. Rank: (dp_rank * pp + pp_rank) * tp + tp_rank."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    expert_parallel: bool = False
    placement: str = "linear"

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.tp * self.pp * self.dp

    def __str__(self) -> str:
        experts = f" ep {self.placement}" if self.expert_parallel else ""
        return f"tp{self.tp} pp{self.pp} dp{self.dp}{experts}"


class Seat:
    """What vLLM asks a group for while it makes and loads a model."""

    def __init__(self, ranks: list[int], rank: int) -> None:
        self.ranks, self.rank, self.local_rank = ranks, rank, 0
        self.world_size, self.rank_in_group = len(ranks), ranks.index(rank)
        self.is_first_rank, self.is_last_rank = rank == ranks[0], rank == ranks[-1]
        self.device = torch.device("cpu")
        self.device_group = self.cpu_group = dist.group.WORLD
        self.device_communicator = None


def layout_of(config: dict[str, Any], world: World, rank: int, *, experts: str = "standard") -> Layout:
    """deltastore's layout of one rank."""
    ep = world.tp * world.dp if world.expert_parallel else 1
    return vllm(
        config,
        tp=world.tp,
        pp=world.pp,
        dp=world.dp,
        ep=ep,
        rank=rank,
        placement=world.placement,
        experts=experts,
    )


def loaded(folder: Path, weights: Weights, world: World, rank: int, *, dtype: str = "float32") -> Any:
    """The model of one rank after ``load_weights``, before a kernel packs anything."""
    with _sitting(folder, world, rank, dtype) as config:
        return _loaded(config, weights)


def arranged(model: Any, backend: str) -> Any:
    """The model with its experts as that backend wants them; the kernel itself is not there, and not made."""
    with mock.patch.object(moe_method, "make_unquantized_moe_kernel", mock.Mock()):
        for layer in model.modules():
            method = getattr(layer, "quant_method", None)
            if isinstance(method, moe_method.UnquantizedFusedMoEMethod) and hasattr(layer, "w13_weight"):
                method.unquantized_backend = UnquantizedMoeBackend[backend.upper()]
                method.process_weights_after_loading(layer)
    return model


def served(folder: Path, weights: Weights, *, dtype: str = "bfloat16") -> Any:
    """The model of a world of one as the engine serves it: kernels have packed what they pack."""
    with _sitting(folder, World(), 0, dtype) as config:
        model = _loaded(config, weights)
        process_weights_after_loading(model, config.model_config, torch.device("cpu"))
        return model


def params_of(model: Any) -> dict[str, torch.Tensor]:
    """Parameter name -> its memory, each memory once."""
    return {name: param.data for name, param in model.named_parameters()}


def ties_of(model: Any) -> dict[str, str]:
    """Parameter name -> the parameter of another module whose memory it is."""
    first: dict[int, str] = {}
    ties = {}
    for prefix, module in model.named_modules():  # each module once, under the first of its names
        for name, param in module.named_parameters(prefix, recurse=False):
            held = first.setdefault(id(param), name)
            if held != name:
                ties[name] = held
    return ties


def _loaded(config: Any, weights: Weights) -> Any:
    with set_default_torch_dtype(config.model_config.dtype), torch.no_grad():
        model = initialize_model(config)
        for param in model.parameters():
            param.fill_(UNFED)
        model.load_weights(weights)
    return model


@contextmanager
def _sitting(folder: Path, world: World, rank: int, dtype: str) -> Iterator[Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world.size)
    try:
        with (
            warnings.catch_warnings(),
            mock.patch.dict(os.environ, RANK=str(rank)),
            mock.patch.multiple(parallel_state, **_standing_in(rank)),
            # It goes by id(model), and an id comes again when a model is gone.
            mock.patch.dict(models._model_to_pp_missing_layer_names, clear=True),
        ):
            warnings.simplefilter("ignore")
            config = _config(folder, world, rank, dtype)
            with set_current_vllm_config(config):
                parallel_state.init_distributed_environment(world.size, rank, "env://", 0, "fake")
                parallel_state.initialize_model_parallel(world.tp, world.pp)
                yield config
    finally:
        dist.destroy_process_group()


def _standing_in(rank: int) -> dict[str, Any]:
    """For what connects processes, and for the groups themselves, so that they are gone afterwards."""

    def group(group_ranks: list[list[int]], *_: object, **__: object) -> Seat:
        return Seat(next(ranks for ranks in group_ranks if rank in ranks), rank)

    def world_group(ranks: list[int], *_: object) -> Seat:
        return Seat(ranks, rank)

    unset = [name for name, value in vars(parallel_state).items() if name.isupper() and value is None]
    return {
        "init_model_parallel_group": group,
        "init_world_group": world_group,
        "_node_count": lambda _: 1,
        **dict.fromkeys(unset),
    }


def _config(folder: Path, world: World, rank: int, dtype: str) -> Any:
    return VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype=dtype, enforce_eager=True, max_model_len=64
        ),
        parallel_config=ParallelConfig(
            tensor_parallel_size=world.tp,
            pipeline_parallel_size=world.pp,
            data_parallel_size=world.dp,
            enable_expert_parallel=world.expert_parallel,
            expert_placement_strategy=world.placement,
            # Every process reads its rank from the environment, instead of being started by another.
            distributed_executor_backend="external_launcher",
        ),
        device_config=DeviceConfig("cpu"),
    )
