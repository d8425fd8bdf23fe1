"""An optimizer whose steps are followed: hooks around each, and which published elements it moves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltastore.detect.adamw.arithmetic import kind_of, square_of
from deltastore.detect.adamw.capture import Capture
from deltastore.detect.adamw.masters import state_of, why_no_moments
from deltastore.detect.adamw.matching import Spot, match
from deltastore.detect.adamw.memory import local_of, memory_of
from deltastore.detect.adamw.optimizers import check_optimizer
from deltastore.detect.adamw.taken import NOTHING, Step, Taken, taken_in
from deltastore.errors import InputError

__all__ = ["Attachment", "Held", "Taken", "check_disjoint", "describe_refused"]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One box that this process publishes.

    ``view``: the live tensor of the box, a NumPy array or torch tensor of any strides; of a distributed
    tensor, what this process has.
    """

    name: str
    view: Any


class Attachment:
    """One optimizer with hooks on it, and which of its parameters' elements are published.

    ``before`` is called when a step begins, before anything is captured of it: what the step before did can
    still be asked then. ``after`` is called when it has ended. Raises ``InputError("bad_argument")`` for what
    is no optimizer, and for a held box that lies in two of its parameters.
    """

    def __init__(
        self,
        optimizer: Any,
        held: Sequence[Held],
        *,
        before: Callable[[Attachment], None],
        after: Callable[[Attachment], None],
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.held = tuple(held)
        self._before, self._after = before, after
        self._step: Step | None = None
        self._lost = ""
        self._ended_once = False
        self._last: dict[int, Spot] = {}
        self._match()
        self._hooks = [
            optimizer.register_step_pre_hook(_not_traced(self._on_start)),
            optimizer.register_step_post_hook(_not_traced(self._on_end)),
        ]

    @property
    def covered(self) -> frozenset[int]:
        """Numbers of the held boxes that lie in parameters of it whose steps can be inverted.

        One whose memory is replaced later stays here: ``taken`` says so of it.
        """
        return frozenset(self._last.keys() - self.refused.keys())

    @property
    def refused(self) -> Mapping[int, str]:
        """Numbers of the held boxes that lie in parameters of it whose steps cannot be inverted, and why.

        Moments are seen when the first step has made them: boxes may come here then.
        """
        return self._matches.refused

    def check_in_place(self) -> None:
        """``InputError("wrong_memory")`` when a parameter that a held box lay in has got other memory.

        The box is then not the model any more. Offloading and resharding do that.
        """
        for number in self._last:
            if self._spot(number) is None and self._is_gone(number):
                name = self.held[number].name
                raise InputError(
                    "wrong_memory",
                    f"tensor {name!r} is no part of its optimizer's parameters any more, which have other "
                    "memory now: open a new writer with views of that",
                    where=name,
                )

    def taken(self, number: int) -> Taken:
        """What the last step did to a held box: nothing before the first, and after ``forget``."""
        spot = self._spot(number)
        stepped = self._step is not None or bool(self._lost)
        if spot is None:
            if number in self.refused:
                return Taken(None, self.refused[number], stepped)
            gone = self._is_gone(number)
            return Taken(None, "its memory was replaced" if gone else "it is no parameter of it", gone)
        if self._lost:
            return Taken(None, self._lost, True)
        if self._step is None:
            return NOTHING
        return taken_in(self._step, self.optimizer, spot.group, spot.param)

    def moments(self, number: int) -> tuple[Any, Any]:
        """(mean, square) of a held box, of its shape: views of the optimizer's state as it is now.

        A copy only where the state is laid out in another way than the parameter. Raises
        ``InputError``: ``bad_argument`` for a box that is not covered or has no moments, ``wrong_shape`` for
        moments of another shape than the parameter, ``wrong_memory`` for ones that are not in memory now.
        """
        spot = self._spot(number)
        name = self.held[number].name
        if spot is None:
            raise InputError("bad_argument", f"tensor {name!r} is no parameter of it", where=name)
        group = self.optimizer.param_groups[spot.group]
        reason = why_no_moments(self.optimizer, group, spot.param)
        if reason:
            raise InputError("bad_argument", f"tensor {name!r} has no moments to use: {reason}", where=name)
        state = state_of(self.optimizer, spot.param)
        return _moment(name, spot, state, "exp_avg"), _moment(name, spot, state, square_of(group))

    def forget(self) -> None:
        """The last step was dealt with: until the next one, nothing has happened."""
        self._step = None
        self._lost = ""
        self._may_match = True

    def detach(self) -> None:
        """Remove the hooks."""
        while self._hooks:
            self._hooks.pop().remove()

    def _is_gone(self, number: int) -> bool:
        """Whether a box lay in a parameter whose memory is elsewhere now; not one that left its group."""
        last = self._last.get(number)
        return last is not None and number not in self.refused and not last.stands(self.held[number].view)

    def _match(self) -> None:
        names = [held.name for held in self.held]
        self._matches = match(self.optimizer, names, [held.view for held in self.held])
        self._known = _params_in(self.optimizer)
        self._last.update(self._matches.spots)
        self._may_match = False

    def _spot(self, number: int) -> Spot | None:
        """Where a held box lies now. Memory that was replaced is searched anew, once between two events."""
        spot = self._matches.spots.get(number)
        if spot is not None and spot.stands(self.held[number].view):
            return spot
        if not self._may_match or number not in self._last:
            return None
        self._match()
        return self._matches.spots.get(number)

    def _on_start(self, *_: object) -> None:
        self._may_match = True
        self._before(self)
        if self._known != _params_in(self.optimizer):
            self._match()  # groups were added or changed
        now = Capture(self.optimizer)
        if self._step is not None:
            # A step inside a step calls the hooks twice. Every optimizer counts before it touches a weight:
            # if no counter has moved, neither has a weight.
            inner = self._step.after is None and self._step.before.counts_as(now)
            self._lost = self._lost or ("" if inner else "several steps were taken at once")
        self._step = Step(now)

    def _on_end(self, *_: object) -> None:
        self._may_match = True
        step = self._step
        if step is None:
            return  # it was dealt with already, by whoever publishes in a hook of the same step
        first = step.after is None
        step.after, step.now = Capture(self.optimizer), None
        if not self._ended_once:
            self._ended_once = True
            self._match()
        if first:
            self._after(self)


def _params_in(optimizer: Any) -> list[int]:
    """The identities of the parameters in its groups."""
    return [id(param) for group in optimizer.param_groups for param in group["params"]]


def _not_traced(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook that torch.compile leaves alone: what it does is not for a graph."""
    torch = sys.modules.get("torch")
    return hook if torch is None else torch.compiler.disable(hook)


def _moment(name: str, spot: Spot, state: Mapping[str, Any], key: str) -> Any:
    moment = local_of(state[key])
    if tuple(moment.shape) != spot.whole.shape:
        raise InputError(
            "wrong_shape",
            f"{key} of tensor {name!r} has shape {list(moment.shape)}, where {spot} has "
            f"{list(spot.whole.shape)}: load a state of this model",
            where=name,
        )
    if memory_of(moment) is None:
        raise InputError(
            "wrong_memory",
            f"{key} of tensor {name!r} is not in memory: bring the optimizer's state back before publishing",
            where=name,
        )
    return spot.inside(moment.detach() if hasattr(moment, "detach") else moment)


def check_disjoint(attachments: Sequence[Attachment], held: Sequence[Held]) -> None:
    """``InputError("bad_argument")`` naming the first tensor that lies in parameters of two optimizers."""
    owner: dict[int, Attachment] = {}
    for attachment in attachments:
        for number in sorted(attachment.covered | attachment.refused.keys()):
            other = owner.setdefault(number, attachment)
            if other is not attachment:
                name = held[number].name
                kinds = f"{kind_of(other.optimizer)} and {kind_of(attachment.optimizer)}"
                raise InputError(
                    "bad_argument",
                    f"tensor {name!r} is a parameter of two optimizers, {kinds}: give each tensor to one",
                    where=name,
                )


def describe_refused(attachment: Attachment, also: Mapping[int, str]) -> list[str]:
    """A line for each reason why tensors are not inverted, saying of how many, and of which first.

    ``also``: held boxes that the caller has a reason for.
    """
    names: dict[str, list[str]] = {}
    for number, reason in sorted({**attachment.refused, **also}.items()):
        named = names.setdefault(reason, [])
        if attachment.held[number].name not in named:
            named.append(attachment.held[number].name)
    kind = kind_of(attachment.optimizer)
    return [
        f"{kind}: steps of {len(named)} tensor{'s' if len(named) > 1 else ''} ({_first(named)}) are not "
        f"inverted: {reason}"
        for reason, named in names.items()
    ]


def _first(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown + (", …" if len(names) > 3 else "")
