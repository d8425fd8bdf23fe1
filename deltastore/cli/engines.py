"""Which engine a layout is for, and how it is started: the options of every command that draws one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from deltastore.errors import UsageError

if TYPE_CHECKING:
    from deltastore.layout.families.config import AnyConfig
    from deltastore.layout.model import Model
    from deltastore.layout.pieces import Layout

__all__ = ["EngineChoice", "Rank", "layout_from_options", "with_engine_options", "with_optional_engine"]

EngineName = Literal["vllm", "sglang"]
ExpertPlacement = Literal["linear", "round_robin"]
Widened = Literal["F32"]

Engine = Annotated[EngineName, typer.Option("--engine", help="Whose parameters.")]
TensorParallel = Annotated[int, typer.Option("--tp", min=1, metavar="N", help="Tensor-parallel size.")]
PipelineParallel = Annotated[int, typer.Option("--pp", min=1, metavar="N", help="Pipeline-parallel size.")]
DataParallel = Annotated[
    int,
    typer.Option(
        "--dp", min=1, metavar="N", help="Data-parallel size; of SGLang with data-parallel attention."
    ),
]
ExpertParallel = Annotated[
    int, typer.Option("--ep", min=1, metavar="N", help="Expert-parallel size; of vLLM 1 or tp x dp.")
]
Rank = Annotated[int, typer.Option("--rank", min=0, metavar="R", help="Which process, from 0 on.")]
Placement = Annotated[
    ExpertPlacement, typer.Option("--placement", help="Which experts a process has under --ep; vLLM only.")
]
ExpertsHeld = Annotated[
    str,
    typer.Option(
        "--experts",
        metavar="NAME",
        help="How the MoE backend holds experts: standard, up_first or transposed, or a backend's name.",
    ),
]
Router = Annotated[Widened | None, typer.Option("--router", help="The router is held in this type.")]
Embedding = Annotated[
    Widened | None, typer.Option("--embedding", help="The embedding is held in this type; SGLang only.")
]
Norms = Annotated[Widened | None, typer.Option("--norms", help="Norms are held in this type.")]
FusedShared = Annotated[
    bool, typer.Option("--fused-shared", help="The shared expert is the last of the others; SGLang only.")
]


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine and how it is started; the same options as those of ``layouts.vllm`` and ``.sglang``."""

    engine: Engine
    tp: TensorParallel = 1
    pp: PipelineParallel = 1
    dp: DataParallel = 1
    ep: ExpertParallel = 1
    placement: Placement = "linear"
    experts: ExpertsHeld = "standard"
    router: Router = None
    norms: Norms = None
    embedding: Embedding = None
    fused_shared: FusedShared = False

    def __post_init__(self) -> None:
        if self.engine != "vllm" and self.placement != "linear":
            raise UsageError("usage", f"{self.engine} places experts linearly: leave --placement out")
        if self.engine != "sglang" and self.embedding is not None:
            raise UsageError("usage", f"{self.engine} holds the embedding as it is: leave --embedding out")
        if self.engine != "sglang" and self.fused_shared:
            raise UsageError(
                "usage", f"{self.engine} has shared experts of their own: leave --fused-shared out"
            )

    @property
    def ranks(self) -> int:
        """Processes of the world; data-parallel ones of SGLang are also tensor-parallel ones."""
        return self.tp * self.pp * (self.dp if self.engine == "vllm" else 1)


def with_engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of ``EngineChoice`` in place of its parameter ``choice``."""
    return _with_options(command, _engine_options())


def with_optional_engine(command: Callable[..., None]) -> Callable[..., None]:
    """The same, where ``choice`` is None unless an engine is named."""
    first, *others = _engine_options()
    named = Annotated[
        EngineName | None, typer.Option("--engine", help="Whose parameters those of --live are.")
    ]
    return _with_options(command, [first.replace(annotation=named, default=None), *others])


def _engine_options() -> list[inspect.Parameter]:
    hints = get_type_hints(EngineChoice, include_extras=True)
    return [
        option.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, option in inspect.signature(EngineChoice).parameters.items()
    ]


def _choice(options: list[inspect.Parameter], given: dict[str, Any]) -> EngineChoice | None:
    chosen = {option.name: given.pop(option.name) for option in options}
    if chosen["engine"] is not None:
        return EngineChoice(**chosen)
    for option in options:
        if chosen[option.name] != option.default:
            name = f"--{option.name.replace('_', '-')}"
            raise UsageError("usage", f"{name} is an engine's: name it with --engine")
    return None


def _with_options(command: Callable[..., None], options: list[inspect.Parameter]) -> Callable[..., None]:
    @functools.wraps(command)
    def run(**given: Any) -> None:
        choice = _choice(options, given)
        command(choice=choice, **given)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        parameters += options if parameter.name == "choice" else own
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def layout_from_options(config: AnyConfig | Model, choice: EngineChoice, rank: int) -> Layout:
    """How process ``rank`` holds the model; raises what the engine's layout does."""
    if choice.engine == "vllm":
        from deltastore.layout.engines.vllm import vllm

        return vllm(
            config,
            tp=choice.tp,
            pp=choice.pp,
            dp=choice.dp,
            ep=choice.ep,
            rank=rank,
            placement=choice.placement,
            experts=choice.experts,
            router=choice.router,
            norms=choice.norms,
        )
    from deltastore.layout.engines.sglang import sglang

    return sglang(
        config,
        tp=choice.tp,
        pp=choice.pp,
        dp=choice.dp,
        ep=choice.ep,
        rank=rank,
        experts=choice.experts,
        router=choice.router,
        norms=choice.norms,
        embedding=choice.embedding,
        fused_shared=choice.fused_shared,
    )
