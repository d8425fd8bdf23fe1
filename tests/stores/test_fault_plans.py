"""Plans of faults: whose turn it is, the same for the same seed, and what makes no sense."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import get_args

import pytest

from deltastore.errors import DeltastoreError, InputError, StoreError
from deltastore.stores import Fault, Faults, FaultyStore
from deltastore.stores.faults import Kind
from deltastore.stores.memory import MEMORY_STORES, MemoryStore

from .operations import OPERATIONS, keys_of

KINDS: tuple[Kind, ...] = get_args(Kind)


@pytest.fixture
def inner() -> Iterator[MemoryStore]:
    yield MemoryStore("memory://faulty")
    del MEMORY_STORES["faulty"]


async def work(store: FaultyStore) -> list[str]:
    """A bit of everything; what was injected meanwhile."""
    for number in range(150):
        for name, operation in OPERATIONS.items():
            with contextlib.suppress(DeltastoreError):
                await operation(store, f"{name}/{number % 7}")
        with contextlib.suppress(DeltastoreError):
            await keys_of(store, "put/")
        with contextlib.suppress(DeltastoreError):
            await store.get_changed(f"put/{number % 7}", tag=None, limit=9)
    await store.settle()
    return [str(injected) for injected in store.journal]


ALL_KINDS = Faults(tuple(Fault(kind, 0.1) for kind in KINDS), delay_seconds=0, stall_seconds=0)


async def test_the_same_seed_gives_the_same_faults() -> None:
    journals = []
    for seed in (4, 4, 5):
        journals.append(await work(FaultyStore(MemoryStore("memory://seeded"), ALL_KINDS, seed=seed)))
        del MEMORY_STORES["seeded"]
    assert journals[0] == journals[1]
    assert journals[0] != journals[2]


async def test_every_kind_is_drawn_and_every_landing_is_in_the_journal(inner: MemoryStore) -> None:
    store = FaultyStore(inner, ALL_KINDS, seed=6)
    await work(store)
    kinds = [injected.kind for injected in store.journal]
    assert {*KINDS, "landed"} == set(kinds)
    assert kinds.count("landed") == kinds.count("late") + kinds.count("repeated")


async def test_the_faults_of_one_operation_do_not_depend_on_the_calls_of_another(inner: MemoryStore) -> None:
    plan = Faults((Fault("refused", 0.5, operations=("put", "get")),))
    struck = []
    for reads in (0, 3):
        store = FaultyStore(inner, plan, seed=7)
        for number in range(40):
            for _ in range(reads):
                with contextlib.suppress(DeltastoreError):
                    await store.get("k", limit=9)
            with contextlib.suppress(StoreError):
                await store.put(f"k{number}", b"x")
        struck.append([injected.key for injected in store.journal if injected.operation == "put"])
    assert struck[0] == struck[1]
    assert 5 < len(struck[0]) < 35


async def test_one_exact_call_among_those_that_match(inner: MemoryStore) -> None:
    plan = Faults((Fault("lost", operations=("put_if_absent",), prefix="log/", at=(2, 4)),))
    store = FaultyStore(inner, plan, seed=0)
    outcomes: list[bool | None] = []
    for number in range(5):
        await store.put(f"log/put-{number}", b"x")
        await store.put_if_absent(f"packs/{number}", b"x")
        try:
            outcomes.append(await store.put_if_absent(f"log/{number}", b"x"))
        except StoreError:
            outcomes.append(None)
    assert outcomes == [True, None, True, None, True]


async def test_the_first_fault_whose_turn_it_is_strikes(inner: MemoryStore) -> None:
    store = FaultyStore(inner, Faults((Fault("lost", at=(1,)), Fault("refused"))), seed=0)
    for key in ("k", "l"):
        with pytest.raises(StoreError):
            await store.put(key, b"x")
    assert [injected.kind for injected in store.journal] == ["lost", "refused"]


async def test_rates_on_a_prefix(inner: MemoryStore) -> None:
    store = FaultyStore(inner, Faults.rates(prefix="log/", refused=1, late=0), seed=0)
    assert await store.put_if_absent("packs/0", b"x") is True
    with pytest.raises(StoreError):
        await store.put_if_absent("log/0", b"x")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fault("lost", 1.5),
        lambda: Fault("lost", -0.1),
        lambda: Fault("lost", at=(0,)),
        lambda: Fault("late", operations=("get",)),
        lambda: Fault("broken"),  # type: ignore[arg-type]
        lambda: Faults(delay_seconds=-1),
        lambda: Faults(stall_seconds=-1),
        lambda: Faults(land_after=-1),
        lambda: Faults.rates(broken=0.1),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.code == "bad_argument"
