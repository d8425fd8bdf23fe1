"""The specification's own decoder, held against its vectors and worked examples."""

from __future__ import annotations
