"""Level content: every byte that manifests name, in pieces, several objects side by side."""

from __future__ import annotations

from deltastore.validate.objects.room import Room
from deltastore.validate.objects.versions import CheckedVersion, Content

__all__ = ["CheckedVersion", "Content", "Room"]
