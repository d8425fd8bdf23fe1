"""Any one object of a stream, looked at: sound, damaged or foreign."""

from __future__ import annotations
