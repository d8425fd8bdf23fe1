"""Stores in the hands of an attacker, and thousands of mutants of sound ones."""
