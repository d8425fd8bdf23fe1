"""The detector that keeps no copy: it inverts the last AdamW step, and holds the result to a certificate."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from deltastore.detect.adamw.arithmetic import kind_of
from deltastore.detect.adamw.attachment import Attachment, check_disjoint, describe_refused
from deltastore.detect.adamw.back import StepBack, device_kernel, held_of, is_master
from deltastore.detect.adamw.lifetime import let_go, weakly
from deltastore.detect.adamw.optimizers import optimizers_in
from deltastore.detect.batch import BatchBox
from deltastore.detect.findings import Findings
from deltastore.detect.kept import KeptParts
from deltastore.detect.laid import Room
from deltastore.detect.rounds import Round, Rounds
from deltastore.detect.snapshot import Snapshot
from deltastore.detect.standing import Recalled, fill_blocks, joined
from deltastore.errors import InputError
from deltastore.kernels.cpu import digest_blocks, invert
from deltastore.kernels.inversion import Outcome
from deltastore.kernels.rows import EncodedPatches
from deltastore.layout.live_parts import LiveParts

__all__ = ["AdamWInverse"]

_LOG: Final = logging.getLogger("deltastore.detect")

_OFTEN: Final = 2


class AdamWInverse(Rounds):
    """Finds what changed since the last committed round without a copy of the weights.

    Optimizers are given to ``attach``. What none of them moves is covered by the certificate alone; parts of
    which the optimizer cannot be inverted are kept as a copy, as the snapshot detector would. Between
    publishes each further step is inverted before the next one begins, and the old values of what it changed
    are kept as patches.
    """

    name = "adamw-inversion"

    def __init__(self, live: LiveParts, *, threads: int = 1) -> None:
        super().__init__(live, threads)
        self._attachments: list[Attachment] = []
        self._stepped: set[Attachment] = set()
        self._kept = KeptParts(live)
        self._current = self.published.digests
        """The certificate of the last moment that was looked at: since then at most one step was taken."""
        self._between = Findings()
        """What looks since the last round found; ``_told`` is what the round that is open has of that."""
        self._told = Findings()
        self._device = threading.Lock()
        """Kernels for a GPU are compiled when they are first used, by one thread."""
        self._closed = False
        weakref.finalize(self, let_go, self._attachments)
        self._moved: Counter[int] = Counter()
        """How often a part was found moved that no optimizer owns."""
        self._refused: dict[Attachment, int] = {}
        self._said: set[str] = set()

    @classmethod
    def after(cls, live: LiveParts, copy: Snapshot, *, threads: int = 1) -> Self:
        """A detector that takes over from ``copy``; what changed since is found by comparing, once."""
        detector = cls(live, threads=threads)
        published = detector.published
        published.digests = np.zeros(detector.block_count, np.uint64)

        def compare(number: int, room: Room) -> EncodedPatches | None:
            boxes = detector.batches[number].boxes
            seen = detector.recall_same(number, boxes, detector._current, room)
            for of, old in seen.laid.in_boxes(seen.old):
                old[...] = copy.copied(of.part, of.box)
            published.digests[seen.laid.numbers] = digest_blocks(seen.laid.blocks, seen.old)
            return detector.way_back(number, seen, seen.old)

        published.patches = list(detector.results(compare))
        return detector

    def attach(self, optimizer: Any) -> None:
        """Hook the optimizers in ``optimizer``, and keep a copy of the parts that cannot be inverted.

        Raises InputError for what is no optimizer or is attached already, and for a tensor that two of them
        own.
        """
        held = held_of(self.live)
        before, after = weakly(self._before_step), weakly(self._after_step)
        fresh: list[Attachment] = []
        try:
            for one in optimizers_in(optimizer):
                self._refuse_twice(one)
                fresh.append(Attachment(one, held, before=before, after=after))
            check_disjoint([*self._attachments, *fresh], held)
        except BaseException:
            let_go(fresh)
            raise
        if not fresh:
            self._say("there is no optimizer in what was attached")
        with self.lock:
            self._closed = False
            self._attachments += fresh
            for attachment in fresh:
                self._keep_refused(attachment)

    def _refuse_twice(self, optimizer: Any) -> None:
        if any(attachment.optimizer is optimizer for attachment in self._attachments):
            raise InputError("bad_argument", f"this {kind_of(optimizer)} is attached already")

    def _keep_refused(self, attachment: Attachment) -> None:
        """Copy the parts that cannot be inverted; why is said once."""
        others = [part for part in attachment.covered if not is_master(self.live, part)]
        self._kept.keep([*attachment.refused, *others])
        for line in describe_refused(attachment, dict.fromkeys(others, "they are not published as BF16")):
            self._say(f"{line}; a copy of what was published is kept instead")
        kind = kind_of(attachment.optimizer)
        if not attachment.covered and not attachment.refused:
            self._say(f"{kind}: none of its parameters is a published tensor: are these the right ones?")

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            _LOG.warning("%s", line)

    def close(self) -> None:
        """Remove the hooks from the optimizers."""
        self._closed = True
        let_go(self._attachments)

    def _before_step(self, attachment: Attachment) -> None:
        with self.lock:
            self.refuse_while_reading("an optimizer steps")
            if attachment in self._stepped or (self.round is not None and self.round.at_now):
                self._look()
            self._stepped.add(attachment)

    def _after_step(self, attachment: Attachment) -> None:
        """A first step makes the state, and may show that it cannot be inverted."""
        if len(attachment.refused) != self._refused.get(attachment):
            with self.lock:
                self._refused[attachment] = len(attachment.refused)
                self._keep_refused(attachment)

    def _look(self) -> None:
        """Invert what was not inverted yet, before the next step is taken; every standing keeps up."""
        digests = np.zeros(self.block_count, np.uint64)
        standings = [self.published]
        if self.round is not None and not self.round.at_now:
            standings.append(self.round.standing)
        back = StepBack(self.live, self._attachments, self._between)

        def look(number: int, room: Room) -> tuple[list[EncodedPatches | None], Findings]:
            found = Findings()
            seen = self._recall(number, back, room, found)
            digests[seen.laid.numbers] = seen.digests
            found.blocks += len(seen.known)
            ways = [self.kept_changes(number, seen, one, self._current, room) for one in standings]
            return ways, found

        for number, (ways, found) in enumerate(self.results(look)):
            self._between.add(found)
            for standing, patches in zip(standings, ways, strict=True):
                standing.patches[number] = patches
        self._arrive(digests)
        if self.round is not None:
            self.round.at_now = False

    def _arrive(self, digests: NDArray[np.uint64]) -> None:
        """The live weights, which have ``digests``, are the last moment that was looked at."""
        self._current = digests
        self._kept.retake()
        for attachment in self._attachments:
            attachment.forget()
        self._stepped.clear()

    def _recall(self, number: int, back: StepBack, room: Room, findings: Findings) -> Recalled:
        """The batch now, and before the last step of every optimizer."""
        batch = self.batches[number]
        places: dict[str | None, list[BatchBox]] = {}
        for of in batch.boxes:
            places.setdefault(back.place_of(of.part), []).append(of)
        seen: list[Recalled] = []
        start = 0
        for place, boxes in places.items():
            if place is None:
                seen.append(self._recall_others(number, tuple(boxes), room, start))
            else:
                seen.append(self._invert(number, tuple(boxes), room, start, back, place, findings))
            start += seen[-1].laid.elements
        if len(seen) == 1:
            return seen[0]
        laid = self.laid(number, tuple(of for one in seen for of in one.laid.boxes))
        return joined(seen, laid, *room.views(batch.storage)[:2])

    def _invert(
        self,
        number: int,
        boxes: tuple[BatchBox, ...],
        room: Room,
        start: int,
        back: StepBack,
        place: str,
        findings: Findings,
    ) -> Recalled:
        """Boxes on the GPU ``place``, or on the host; ``room`` is theirs from ``start`` on."""
        laid = self.laid(number, boxes)
        end = start + laid.elements
        new, old = (buffer[start:end] for buffer in room.views(self.batches[number].storage)[:2])
        spans = [back.span(of) for of in boxes]
        wanted = self._current[laid.numbers]
        if place:
            with self._device:
                found = device_kernel()(laid.blocks, spans, back.rules, wanted, new, old)
        else:
            found = invert(laid.blocks, spans, back.rules, wanted, new, old)
        findings.inverted += laid.elements
        findings.settled += int((found.outcomes == Outcome.SETTLED).sum())
        known = found.outcomes != Outcome.UNEXPLAINED
        # Where the weights were zero, as they begin in LoRA, the likeliest old value is only near it.
        zero = ~known & (wanted == 0)
        if zero.any():
            fill_blocks(laid.blocks, old, zero, np.zeros_like(old))
        findings.uncertain += int(found.uncertain[~zero].sum(dtype=np.uint64))
        return Recalled(laid, new, old, found.digests, known | zero)

    def _recall_others(self, number: int, boxes: tuple[BatchBox, ...], room: Room, start: int) -> Recalled:
        """Boxes that are not inverted: their copy where there is one, else as if nothing had changed."""
        seen = self.recall_same(number, boxes, self._current, room, start)
        copied = False
        for of, old in seen.laid.in_boxes(seen.old):
            copy = self._kept.of(of)
            if copy is not None:
                old[...] = copy
                copied = True
        if not copied:
            return seen
        known = digest_blocks(seen.laid.blocks, seen.old) == self._current[seen.laid.numbers]
        return replace(seen, known=known)

    def finder(self, found: Round) -> Callable[[int, Room], tuple[EncodedPatches, Findings]]:
        """Inverts the last step of every optimizer."""
        self._check_in_place()
        if self._closed:
            found.findings.reasons["no optimizer is attached any more, as the writer was closed"] += 1
        back = StepBack(self.live, self._attachments, found.findings)

        def find(number: int, room: Room) -> tuple[EncodedPatches, Findings]:
            findings = Findings()
            seen = self._recall(number, back, room, findings)
            found.standing.digests[seen.laid.numbers] = seen.digests
            return self.batch_changes(number, seen, self.published, self._current, room, findings), findings

        return find

    def ended(self, found: Round) -> None:
        """What was looked at since the last round is part of this one."""
        found.findings.add(self._between)
        self._told, self._between = self._between, Findings()

    async def retake(self) -> None:
        """Open a round of which the live weights as they are now are the outcome: they are stored whole."""
        self._check_in_place()
        await super().retake()

    def _check_in_place(self) -> None:
        for attachment in self._attachments:
            attachment.check_in_place()

    def settled(self, found: Round) -> None:
        """What was found is what the next step starts from, unless one was looked at meanwhile."""
        self._told = Findings()
        if found.at_now:
            self._keep_moved(found)
            self._arrive(found.standing.digests)

    def _keep_moved(self, found: Round) -> None:
        """A part that moves again and again while no optimizer owns it is kept as a copy, too."""
        owned = {part for attachment in self._attachments for part in attachment.covered}
        for part in found.findings.parts - owned:
            self._moved[part] += 1
            if self._moved[part] == _OFTEN:
                self._kept.keep([part])
                name = self.live.parts[part].name
                self._say(f"tensor {name!r} is moved by no attached optimizer; a copy of it is kept")

    def aborted(self) -> None:
        """What the open round found stays to be found again."""
        super().aborted()
        with self.lock:
            self._between.add(self._told)
            self._told = Findings()
