"""Whether a stream may be written to a store at all (SPEC section "Storage")."""

from __future__ import annotations

from deltastore.stores.base import Store
from deltastore.stores.probing import check_creates

__all__ = ["check_fit"]


async def check_fit(store: Store) -> None:
    """``StoreError("store_unfit")`` where a second creation of a key is not refused; four requests.

    Stores that need no such question (``probed_at_start``) are not asked.
    """
    if store.probed_at_start:
        await check_creates(store)
