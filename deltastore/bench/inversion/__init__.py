"""``deltastore bench inversion``: publishing without a copy, beside the optimizer step that it inverts.

Every ratio is taken in one run on one set of parameters. torch is imported where a trainer is made.
"""
