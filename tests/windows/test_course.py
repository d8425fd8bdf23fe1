"""The course over a tree of deltas: bases first, few buffers, and the right weights in each."""

from __future__ import annotations

import math
import random

import pytest

from deltastore.windows.course import ANCHOR, Course, course_of


def tree(seed: int, count: int) -> dict[int, int]:
    """Version -> its base; the anchor is version 0. Chains, stars and anything between."""
    chance = random.Random(seed)
    habit = chance.random()
    return {
        version: version - 1 if chance.random() < habit else chance.randrange(version)
        for version in range(1, count + 1)
    }


def follow(course: Course, bases: dict[int, int]) -> dict[int, int]:
    """Take every step with versions in place of weights; what stands in the buffers at the end."""
    buffers, numbers = {0: 0}, {ANCHOR: 0}
    for number, step in enumerate(course.steps):
        numbers[number] = step.version
        assert buffers[step.source] == bases[step.version], "the base stands in the source"
        assert numbers[step.parent] == bases[step.version]
        assert max(step.source, step.target or 0) < course.buffers
        if step.target is not None:
            buffers[step.target] = step.version
    return buffers


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("keep", [False, True])
def test_every_delta_meets_its_base(seed: int, keep: bool) -> None:
    bases = tree(seed, 1 + seed * 3)
    course = course_of(0, bases, keep=keep)
    assert sorted(step.version for step in course.steps) == sorted(bases)
    follow(course, bases)
    needed = set(bases.values())
    for step in course.steps:
        assert (step.target is None) == (step.version not in needed and not keep)
    if not keep:
        assert course.buffers <= 1 + math.log2(len(bases) + 1)


def test_a_chain_and_a_star_are_walked_in_one_buffer() -> None:
    chain = {version: version - 1 for version in range(1, 2000)}
    assert course_of(0, chain).buffers == 1
    assert follow(course_of(0, chain, keep=True), chain) == {0: 1999}
    star = dict.fromkeys(range(1, 2000), 0)
    assert course_of(0, star).buffers == 1


@pytest.mark.parametrize("seed", range(10))
def test_what_builds_on_a_wrong_step(seed: int) -> None:
    bases = tree(seed, 30)
    course = course_of(0, bases)
    numbers = {step.version: number for number, step in enumerate(course.steps)}
    bad = set(random.Random(seed).sample(range(1, 31), 3))
    spoilt = set()
    for version in sorted(bases):
        if bases[version] in bad or bases[version] in spoilt:
            spoilt.add(version)
    assert course.spoilt({numbers[version] for version in bad}) == {numbers[version] for version in spoilt}
    assert course.spoilt({ANCHOR}) == set(range(len(bases)))
    assert course.spoilt(set()) == set()
