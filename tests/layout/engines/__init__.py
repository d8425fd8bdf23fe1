"""Layouts of inference engines."""
