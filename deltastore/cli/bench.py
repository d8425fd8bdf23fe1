"""``deltastore bench``: what this machine does, beside its own ceilings."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from deltastore.cli.arguments import EXIT_STATUS, Json
from deltastore.cli.output import Output
from deltastore.errors import UsageError

if TYPE_CHECKING:
    from deltastore.bench.figure import Figure

__all__ = ["bench"]

bench: Final = typer.Typer(
    help="Measure this machine: every figure beside a ceiling or a rival of the same run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

StoreUrl = Annotated[
    str, typer.Argument(metavar="URL", help="The store to measure, as of a stream; it need not hold one.")
]
Shapes = Annotated[
    str, typer.Option("--model", metavar="MODEL", help="Shapes: qwen3-0.6b, qwen3-8b, qwen3-30b-a3b.")
]
ReadBy = Annotated[
    Literal["ep", "tp"], typer.Option("--moe", help="Readers that the stream lays experts out for.")
]

_MOST_STEPS: Final = 1000
"""Between two versions."""


@bench.command("kernels", epilog=EXIT_STATUS)
def kernels(
    shapes: Annotated[
        str, typer.Option("--shapes", metavar="MODEL", help="Arrays of one layer: qwen3-8b or qwen3-0.6b.")
    ] = "qwen3-8b",
    layers: Annotated[int, typer.Option("--layers", metavar="N", min=1, help="How many of them.")] = 1,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", min=1, help="Beside one thread. [all processors]")
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Runs of each; the best counts.")
    ] = 5,
    as_json: Json = False,
) -> None:
    """Diff and encode, decode and apply, digest, sizes: on weights that are made here.

    Ratios are to the read ceiling, to NumPy's scatter with ready indices, to the entropy bound, and to XOR
    with zstd. Exits with 0 whether or not the targets are reached: machines differ. One layer of qwen3-8b
    takes about 3 GB of memory. Needs zstandard: pip install 'deltastore[bench]'.
    """
    from deltastore.bench.kernels import measure_kernels
    from deltastore.bench.model import SHAPES
    from deltastore.kernels.cpu import supported_instructions
    from deltastore.kernels.threads import chosen_threads

    if shapes not in SHAPES:
        raise UsageError("usage", f"--shapes is one of {', '.join(SHAPES)}, not {shapes}")
    output = Output(as_json=as_json)
    if not as_json:
        output.result({}, f"{os.cpu_count()} processors, {supported_instructions().name}")
        output.result({}, f"{'':29}{'density':>9}{'threads':>8}  {'':24}ratio")
    for one in measure_kernels(shapes, layers, chosen_threads(threads), repeats):
        density = "" if one.density is None else f"{one.density:.2%}"
        figure = f"{one.value:10.3f} {one.unit:<13}"
        ratio = "" if one.ratio is None else f"{one.ratio:6.3f} of {one.beside}"
        wanted = "" if one.target is None else f"  ({'<=' if one.at_most else '>='} {one.target})"
        missed = "  MISSED" if one.reached is False else ""
        line = f"{one.name:<29}{density:>9}{one.threads:>8}  {figure}{ratio}{wanted}{missed}"
        output.result({**asdict(one), "reached": one.reached}, line.rstrip())


@bench.command("store", epilog=EXIT_STATUS)
def store(
    url: StoreUrl,
    megabytes: Annotated[
        int, typer.Option("--megabytes", metavar="N", min=1, help="Size of the large delta.")
    ] = 200,
    uploads: Annotated[
        int, typer.Option("--uploads", metavar="N", min=1, help="Packs that may be on their way at once.")
    ] = 4,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Runs of each; the best counts.")
    ] = 3,
    as_json: Json = False,
) -> None:
    """Uploads, commit, polls, memory: beside the plain requests of the same store.

    Writes under a name of its own in the store, about 10 times the size of the large delta, and removes
    all of it at the end. Where obstore is installed, s3:// is also measured against s3+obstore://. Exits
    with 0 whether or not the targets are reached: stores differ.
    """
    import asyncio
    from contextlib import aclosing

    from deltastore.bench.store import StorePlan, measure_store

    output = Output(as_json=as_json)
    plan = StorePlan(nbytes=megabytes * 1_000_000, uploads=uploads, repeats=repeats)

    async def run() -> None:
        async with aclosing(measure_store(url, plan)) as figures:
            async for figure in figures:
                output.result({**asdict(figure), "reached": figure.reached}, _line(figure))

    asyncio.run(run())


@bench.command("inversion", epilog=EXIT_STATUS)
def inversion(
    parameters: Annotated[
        float, typer.Option("--parameters", metavar="N", min=1e5, max=1e12, help="About how many: 1e9, say.")
    ] = 1e8,
    lr: Annotated[float, typer.Option("--lr", metavar="RATE", min=0.0, help="Learning rate.")] = 1e-6,
    every: Annotated[
        str, typer.Option("--every", metavar="K,...", help="Publish every so many steps.")
    ] = "1,4,16",
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", min=1, help="Of optimizer and detection. [all processors]"),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Runs of each; the best counts.")
    ] = 3,
    as_json: Json = False,
) -> None:
    """Publishing without a copy: beside AdamW steps, the read ceiling, and the memory of a copy.

    Takes real AdamW steps with made-up gradients on the parameters of a decoder like Qwen3, and publishes
    to a temporary folder. Takes 13 bytes of memory for each parameter, 17 while a foreach step runs (with
    26 free, each has a gradient of its own, as in a real step), and 6 bytes of the folder. Exits with 0
    whether or not the targets are reached: machines differ. Needs torch: pip install 'deltastore[torch]'.
    """
    from deltastore.bench.inversion.measure import measure_inversion
    from deltastore.bench.inversion.plan import InversionPlan
    from deltastore.kernels.threads import chosen_threads

    plan = InversionPlan(int(parameters), lr, _counts(every), chosen_threads(threads), repeats)
    output = Output(as_json=as_json)
    for figure in measure_inversion(plan):
        output.result({**asdict(figure), "reached": figure.reached}, _line(figure, width=38))


@bench.command("shards", epilog=EXIT_STATUS)
def shards(
    url: StoreUrl,
    model: Shapes = "qwen3-8b",
    layers: Annotated[int, typer.Option("--layers", metavar="N", min=1, help="How many of them.")] = 1,
    slabs: Annotated[int, typer.Option("--slabs", metavar="N", min=1, help="Of the stream.")] = 8,
    moe: ReadBy = "ep",
    tp: Annotated[int, typer.Option("--tp", metavar="N", min=1, help="Ranks of the engine.")] = 8,
    ep: Annotated[int, typer.Option("--ep", metavar="N", min=1, help="Likewise, for its experts.")] = 1,
    density: Annotated[
        float, typer.Option("--density", metavar="SHARE", min=1e-6, max=1.0, help="Elements that change.")
    ] = 0.01,
    vocabulary: Annotated[
        int | None, typer.Option("--vocabulary", metavar="N", min=1, help="Another than the model's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What each rank of a vLLM engine fetches of a delta beside its exact share; how fast one applies it.

    Publishes a delta of real shapes under a name of its own in the store, and removes it at the end. Takes
    memory: two bytes for each parameter, and what one rank holds. Exits with 0, reached or not.
    """
    import asyncio
    from contextlib import aclosing

    from deltastore.bench.shards.measure import measure_shards
    from deltastore.bench.shards.models import CONFIGS, ShardsPlan

    if model not in CONFIGS:
        raise UsageError("usage", f"--model is one of {', '.join(CONFIGS)}, not {model}")
    output = Output(as_json=as_json)
    other = {} if vocabulary is None else {"vocab_size": vocabulary}
    plan = ShardsPlan(model, layers, slabs=slabs, moe=moe, density=density, tp=tp, ep=ep, instead=other)

    async def run() -> None:
        async with aclosing(measure_shards(url, plan)) as figures:
            async for figure in figures:
                output.result({**asdict(figure), "reached": figure.reached}, _line(figure, near_one=4))

    asyncio.run(run())


@bench.command("validate", epilog=EXIT_STATUS)
def validate(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="A stream to measure, or a store without one, as of a stream."),
    ],
    megabytes: Annotated[
        int, typer.Option("--megabytes", metavar="N", min=1, help="Size of the streams that are made.")
    ] = 200,
    versions: Annotated[
        int, typer.Option("--versions", metavar="N", min=2, help="Of the stream whose structure is checked.")
    ] = 1000,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", metavar="N", min=0, max=256, help="Objects side by side. [0: two a processor]"
        ),
    ] = 0,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Runs of each; the best counts.")
    ] = 3,
    as_json: Json = False,
) -> None:
    """Checking a stream: beside reading it, and beside hashing as many bytes in memory.

    A stream at the URL is only read. Where there is none, streams of an anchor, of deltas and of many
    versions are made under a name of their own in the store, and removed at the end. Every byte of a pack
    and of an anchor counts once, and is hashed twice. Exits with 0 whether or not the targets are reached.
    """
    import asyncio
    from contextlib import aclosing

    from deltastore.bench.validation import ValidationPlan, measure_validation

    output = Output(as_json=as_json)
    plan = ValidationPlan(megabytes * 1_000_000, jobs, versions, repeats)

    async def run() -> None:
        async with aclosing(measure_validation(url, plan)) as figures:
            async for figure in figures:
                output.result({**asdict(figure), "reached": figure.reached}, _line(figure, width=34))

    asyncio.run(run())


def _counts(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= _MOST_STEPS for part in parts):
        raise UsageError("usage", f"--every takes numbers of steps such as 1,4,16, not {text!r}")
    return tuple(sorted({int(part) for part in parts}))


def _line(figure: Figure, width: int = 29, near_one: int = 2) -> str:
    """``near_one``: digits of a ratio between 0.9 and 1.1."""
    ratio = ""
    if figure.ratio is not None:
        digits = near_one if 0.9 <= figure.ratio <= 1.1 else 2
        ratio = f"{figure.ratio:{digits + 4}.{digits}f} of {figure.beside}"
    wanted = "" if figure.target is None else f"  ({'<=' if figure.at_most else '>='} {figure.target:g})"
    missed = "  MISSED" if figure.reached is False else ""
    return f"{figure.name:<{width}}{figure.value:10.2f} {figure.unit:<9}{ratio}{wanted}{missed}".rstrip()
