"""Ctrl-C while the stream's thread works: the call ends, the background goes on."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

import deltastore
from deltastore.stores.base import Data
from tests.doubles.models import bf16, tiny_model
from tests.doubles.stores import WatchedStore, memory_store

from .slow import SlowStore, streaming


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


def interrupt_main() -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def test_an_interrupt_ends_the_call_and_the_next_one_goes_on(store: SlowStore) -> None:
    model = tiny_model()
    with streaming(store, model) as (stream, writer):
        assert writer.publish_async().result().version == 1
        model["norm"][0] = bf16(0x1234)
        store.go.clear()

        def strike() -> None:
            store.reached.wait()
            interrupt_main()

        striking = threading.Thread(target=strike)
        striking.start()
        with pytest.raises(KeyboardInterrupt):
            writer.publish()
        striking.join()
        store.go.set()
        assert stream.newest().version == 1
        published = writer.publish()
        assert (published.version, published.changed) == (2, 1)


def test_an_interrupt_while_waiting_leaves_the_background_alone(store: SlowStore) -> None:
    model = tiny_model()
    with streaming(store, model) as (_, writer):
        model["norm"][0] = bf16(0x1234)
        store.go.clear()
        pending = writer.publish_async()
        striking = threading.Timer(0.05, interrupt_main)
        striking.start()
        with pytest.raises(KeyboardInterrupt):
            pending.result()
        striking.join()
        assert not pending.done
        store.go.set()
        assert pending.result().version == 1


def test_the_interrupt_is_raised_when_nothing_of_the_call_is_left() -> None:
    """Else it would still read tensors that its caller believes to own again."""
    ended = threading.Event()

    class Unwinding(SlowStore):
        async def put(self, key: str, data: Data) -> None:
            try:
                await super().put(key, data)
            except asyncio.CancelledError:
                await asyncio.sleep(0.1)
                ended.set()
                raise

    store = Unwinding()
    model = tiny_model()
    with streaming(store, model) as (_, writer):
        writer.publish_async().result()
        model["norm"][0] = bf16(0x1234)
        store.go.clear()

        def strike() -> None:
            store.reached.wait()
            interrupt_main()

        threading.Thread(target=strike).start()
        with pytest.raises(KeyboardInterrupt):
            writer.publish()
        assert ended.is_set()
        store.go.set()


class Struck(WatchedStore):
    """A signal strikes in the middle of the next put of a pack."""

    def __init__(self) -> None:
        super().__init__(memory_store())
        self.strikes = False

    async def put(self, key: str, data: Data) -> None:
        if self.strikes and key.startswith("packs/"):
            self.strikes = False
            signal.raise_signal(signal.SIGUSR1)
        await super().put(key, data)


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, TimeoutError])
def test_what_a_handler_raises_in_the_midst_of_a_call_ends_it(
    kind: type[BaseException], in_background: bool
) -> None:
    """Nothing of the call goes on in the next one, and the interrupt is not raised there again."""

    def raise_it(*_: object) -> None:
        raise kind

    before = signal.signal(signal.SIGUSR1, raise_it)
    store, model = Struck(), tiny_model()
    try:
        with deltastore.create(store, model) as stream:
            writer = stream.writer(model)
            model["norm"][0] = bf16(0x1234)
            store.strikes = True
            with pytest.raises(BaseException) as caught:  # noqa: PT011
                writer.publish()
            assert caught.type is kind
            assert stream.newest().version == 0
            published = writer.publish_async().result() if in_background else writer.publish()
            assert (published.version, published.changed) == (1, 1)
    finally:
        signal.signal(signal.SIGUSR1, before)
