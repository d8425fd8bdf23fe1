"""Hooks that neither keep a detector alive nor stay when it has gone."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from deltastore.detect.adamw.attachment import Attachment

__all__ = ["let_go", "weakly"]


def weakly(method: Callable[[Attachment], None]) -> Callable[[Attachment], None]:
    """A callback for hooks that outlive a writer that was dropped without being closed."""
    held = weakref.WeakMethod(method)

    def call(attachment: Attachment) -> None:
        alive = held()
        if alive is not None:
            alive(attachment)

    return call


def let_go(attachments: list[Attachment]) -> None:
    """Remove the hooks of all of them."""
    for attachment in attachments:
        attachment.detach()
    attachments.clear()
