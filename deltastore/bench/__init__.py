"""Benchmarks: each prints ratios to a ceiling or a rival that it measures in the same run."""
