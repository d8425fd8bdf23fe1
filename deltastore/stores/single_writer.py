"""Creation by looking first: for stores that cannot create conditionally, and one writer."""

from __future__ import annotations

from deltastore.errors import CorruptError, NotFoundError, StoreError
from deltastore.stores.base import Data, as_octets
from deltastore.stores.wrapped import WrappedStore

__all__ = ["SingleWriterStore"]


class SingleWriterStore(WrappedStore):
    """``inner`` with a ``put_if_absent`` that looks, writes and reads back.

    Unsafe with two writers: both may look before either writes, and then both believe that they committed,
    or one replaces what the other has committed. That cannot be found out here. Use it only where no second
    writer can ever exist: a writer that was given up but still runs is one, and so is a restarted job whose
    first life has not ended. Readers may be any number.
    """

    @property
    def probed_at_start(self) -> bool:
        """Not probed: that it cannot create conditionally is why it is here."""
        return False

    async def put_if_absent(self, key: str, data: Data) -> bool:
        """As :meth:`Store.put_if_absent`, for one writer.

        Raises ``StoreError("store_failed")`` when what it reads back is not what it wrote.
        """
        if await self.inner.stat(key) is not None:
            return False
        wanted = as_octets(key, data)
        await self.inner.put(key, data)
        try:
            found = await self.inner.get(key, limit=len(wanted))
        except (CorruptError, NotFoundError) as error:
            raise _not_alone(key) from error
        if found != wanted:
            raise _not_alone(key)
        return True


def _not_alone(key: str) -> StoreError:
    message = (
        f"{key} does not hold what was just written to it, though this is meant to be the only writer; "
        "stop every other writer of this stream, then start this one again"
    )
    return StoreError("store_failed", message, where=key)
