"""How long a publish takes beside the step that it inverts, and beside reading what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from deltastore.bench.figure import Figure
from deltastore.bench.inversion.plan import InversionPlan
from deltastore.bench.inversion.rounds import READ_BYTES, KernelRound, Rounds, read_state
from deltastore.bench.inversion.trainer import Trainer, has_room_for_gradients, torch_threads
from deltastore.bench.timing import best_of_both, best_seconds
from deltastore.sync import Writer, create

__all__ = ["measure_speed"]

_COUNTED_BYTES: Final = 14
"""Bytes an element of an inversion: 12 are read, and 2 leave it."""

_OF_FUSED: Final = 1.5
_OF_FOREACH: Final = 0.3
_OF_CEILING: Final = {1: 0.35, 2: 0.6}


def measure_speed(url: str, plan: InversionPlan) -> Iterator[Figure]:
    """Figures of a trainer that publishes to an empty place at ``url``."""
    with torch_threads(plan.threads):
        own = has_room_for_gradients(plan.parameters)
        trainer = Trainer(plan.parameters, plan.lr, own_gradients=own)
        yield Figure("parameters", trainer.elements / 1e6, "million")
        yield Figure("gradients of their own", float(own), "of 1")
        with (
            create(url, trainer.weights, cast="BF16") as stream,
            stream.writer(
                trainer.weights, cast=True, optimizer=trainer.optimizer, threads=plan.threads
            ) as writer,
        ):
            yield from _beside_steps(trainer, writer, plan)
        yield from _beside_reading(trainer, plan)


def _beside_steps(trainer: Trainer, writer: Writer, plan: InversionPlan) -> Iterator[Figure]:
    """Steps of both kinds, detection and publishing, in turns: what the machine does meanwhile meets all."""
    stepping: dict[str, list[float]] = {"fused": [], "foreach": []}
    detecting, publishing = [], []
    rounds = Rounds(trainer, plan.threads)
    for _ in range(plan.repeats):
        for kind, times in stepping.items():
            times.append(trainer.step(kind).own)
            detecting.append(_once(partial(rounds.find, plan.threads)))
            rounds.commit()
            publishing.append(_once(writer.publish))
    rounds.close()
    steps = {kind: min(times) for kind, times in stepping.items()}
    for kind, seconds in steps.items():
        yield Figure(f"AdamW step, {kind}", seconds * 1e3, "ms")
    yield from _ratios("detection, every step", min(detecting), steps, wanted=False)
    for every in plan.every:
        several = every > 1
        seconds = _spread(trainer, writer, every) if several else min(publishing)
        name = f"publish every {every} steps, a step" if several else "publish, every step"
        yield from _ratios(name, seconds, steps, wanted=not several)


def _ratios(name: str, seconds: float, steps: dict[str, float], *, wanted: bool) -> Iterator[Figure]:
    targets = {"fused": _OF_FUSED, "foreach": _OF_FOREACH}
    for kind, own in steps.items():
        target = targets[kind] if wanted else None
        yield Figure(name, seconds * 1e3, "ms", seconds / own, f"the {kind} step", target, at_most=True)


def _spread(trainer: Trainer, writer: Writer, every: int) -> float:
    """Seconds that publishing every few steps adds to each of them."""
    hooks = sum(trainer.step().hooks for _ in range(every))
    return (hooks + _once(writer.publish)) / every


def _beside_reading(trainer: Trainer, plan: InversionPlan) -> Iterator[Figure]:
    """Detection of one step, again and again, beside a plain read of the optimizer's state."""
    rounds, kernels = Rounds(trainer, plan.threads), KernelRound(trainer)
    trainer.step()
    counted = trainer.elements * _COUNTED_BYTES
    for threads in sorted({1, plan.threads}):
        find, read = partial(rounds.find, threads), partial(read_state, trainer, threads)
        seconds, reading = best_of_both(find, read, repeats=plan.repeats)
        ceiling = reading * _COUNTED_BYTES / READ_BYTES
        found = [kernels.run(threads) for _ in range(plan.repeats)]
        inverting, encoding = min(one.invert for one in found), min(one.encode for one in found)
        count = f"{threads} thread{'s' if threads > 1 else ''}"
        yield Figure(f"read ceiling, {count}", counted / ceiling / 1e9, "GB/s")
        for name, taken, target in (
            ("invert+certify+encode", seconds, _OF_CEILING.get(threads)),
            ("invert+certify", inverting, None),
            ("encode", encoding, None),
        ):
            rate = counted / taken / 1e9
            yield Figure(f"{name}, {count}", rate, "GB/s", ceiling / taken, "read ceiling", target)
    rounds.close()
    kernels.close()


def _once(work: Callable[[], object]) -> float:
    return best_seconds(work, repeats=1)
