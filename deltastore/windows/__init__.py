"""Replaying many versions in bounded memory: one window of chunks after another, all versions over each."""
