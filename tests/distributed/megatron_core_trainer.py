"""One of two processes that train with megatron-core's own buffers and distributed optimizers, on a CPU."""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

import deltastore
from deltastore.layout.parts import Part
from tests.doubles.megatron.buffer import fill
from tests.doubles.megatron.gathering import bits_of_weights
from tests.doubles.megatron.model import LocalParam, local_params
from tests.doubles.megatron.parts import parts_of_run
from tests.doubles.megatron.topology import Topology
from tests.doubles.megatron.values import gradient_of, initial_weights

__all__ = ["ROUNDS", "TOPOLOGY", "train"]

TOPOLOGY = Topology(2, ep=2)
PATIENCE_SECONDS = 60.0
LR = 2e-4

ROUNDS: tuple[tuple[str, ...], ...] = (("step",), ("step",), ("lr", "step"), (), ("step", "step"))
"""What happens before each version."""


class OnCpu(TorchFunctionMode):
    """What is asked of a GPU is done on the CPU, and tensors say that they are on one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        answer = func(*args, **kwargs)
        return f"torch.cuda.{answer[6:]}" if func is torch.Tensor.type and isinstance(answer, str) else answer


def train(rank: int, folder: Path) -> None:
    """Train ``ROUNDS``; rank 0 leaves the bits of every version as ``VERSION.npz``."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    rendezvous = (folder / "rendezvous").as_uri()
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=TOPOLOGY.world)
    here = mock.patch.object(torch.cuda, "current_device", return_value="cpu")
    try:
        with here, OnCpu(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the libraries for GPUs that are not there
            _train(rank, folder)
    finally:
        dist.destroy_process_group()


class Trainer:
    """A model of flat parameters in megatron-core's DDP, and its optimizer."""

    def __init__(self, rank: int) -> None:
        import_module("megatron.core.parallel_state").initialize_model_parallel(
            TOPOLOGY.tp,
            expert_model_parallel_size=TOPOLOGY.ep,
            expert_tensor_parallel_size=TOPOLOGY.etp,
        )
        self.place = TOPOLOGY.place(rank)
        self.params = local_params(TOPOLOGY, self.place)
        config = import_module("megatron.core.transformer").TransformerConfig(
            num_layers=1, hidden_size=8, num_attention_heads=1, num_moe_experts=4, bf16=True,
            expert_model_parallel_size=TOPOLOGY.ep, add_bias_linear=False,
        )  # fmt: skip
        module = import_module("megatron.core.transformer.module").MegatronModule(config)
        module.held = torch.nn.ParameterList(_parameter(param) for param in self.params)
        self.held = list(module.held)
        distributed = import_module("megatron.core.distributed")
        settings = distributed.DistributedDataParallelConfig(
            use_distributed_optimizer=True, grad_reduce_in_fp32=True
        )
        self.model = distributed.DistributedDataParallel(config, settings, module)
        self._optimize()

    def _optimize(self) -> None:
        optimizers = import_module("megatron.core.optimizer")
        config = optimizers.OptimizerConfig(
            lr=LR, weight_decay=0.1, bf16=True, use_distributed_optimizer=True, clip_grad=1.0
        )
        self.optimizer = optimizers.get_megatron_optimizer(config, [self.model])
        self.set_lr(LR)
        for group in self.optimizer.param_groups:
            group["weight_decay"] = 0.1 * group["wd_mult"]

    def set_lr(self, lr: float) -> None:
        """As its scheduler does."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def step(self, number: int) -> None:
        """One step with made-up gradients."""
        self.model.zero_grad_buffer()
        for param, held in zip(self.params, self.held, strict=True):
            replica = self.place.edp if param.expert else self.place.dp
            fill(held.main_grad.view(-1), param, partial(gradient_of, step=number, replica=replica))
        self.model.finish_grad_sync()
        assert self.optimizer.step()[0]

    def parts(self) -> dict[str, list[Part]]:
        """What this rank publishes: its main shards, by megatron-core's own range map."""
        told: dict[str, list[Part]] = {}
        for param, held in zip(self.params, self.held, strict=True):
            optimizer = self.optimizer.chained_optimizers[param.expert]
            if held in optimizer.model_param_gbuf_map and param.owner:
                first = optimizer._get_model_param_range_map(held)["param"].start
                for name, part in parts_of_run(param, held.main_param, first):
                    told.setdefault(name, []).append(part)
        return told


def _parameter(param: LocalParam) -> torch.nn.Parameter:
    """Of one axis where it has no weight decay."""
    flat = torch.zeros(param.elements, dtype=torch.bfloat16)
    fill(flat, param, initial_weights().__getitem__)
    parameter = torch.nn.Parameter(flat.reshape(1, -1) if param.decays else flat)
    parameter.allreduce = not param.expert  # type: ignore[attr-defined]
    return parameter


def _train(rank: int, folder: Path) -> None:
    trainer = Trainer(rank)
    run: list[str] = [secrets.token_hex(8)]
    dist.broadcast_object_list(run, src=0)
    with deltastore.open((folder / "stream").as_uri()) as stream:
        writer = stream.writer(
            trainer.parts(),
            cast=True,
            rank=rank,
            writers=TOPOLOGY.world,
            run=run[0],
            timeout=PATIENCE_SECONDS,
            optimizer=trainer.optimizer,
        )
        steps = 0
        for actions in ROUNDS:
            for action in actions:
                if action == "lr":
                    trainer.set_lr(LR / 2)
                else:
                    steps += 1
                    trainer.step(steps)
            _leave(folder, writer.publish(step=steps).version, trainer.params, trainer.held)


def _leave(folder: Path, version: int, params: Sequence[LocalParam], held: Sequence[Any]) -> None:
    everybody: list[Any] = [None] * TOPOLOGY.world
    weights = {param.name: one.data.reshape(-1) for param, one in zip(params, held, strict=True)}
    dist.all_gather_object(everybody, weights)
    if not dist.get_rank():
        bits = bits_of_weights(TOPOLOGY, everybody)
        np.savez(folder / f"{version}.npz", allow_pickle=False, **{n: t.numpy() for n, t in bits.items()})
