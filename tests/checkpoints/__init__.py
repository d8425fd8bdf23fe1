"""Tests of deltastore.checkpoints."""

from __future__ import annotations
