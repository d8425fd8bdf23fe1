"""Test vectors, and what makes them."""
