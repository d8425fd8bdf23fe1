"""Bytes to values and back: SPEC.md, without any input or output and without torch."""
