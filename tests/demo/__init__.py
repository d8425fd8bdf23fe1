"""Tests of deltastore.demo."""

from __future__ import annotations
