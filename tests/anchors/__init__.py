"""Tests of deltastore.anchors."""

from __future__ import annotations
