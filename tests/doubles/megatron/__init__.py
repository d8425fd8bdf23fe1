"""Megatron-core's distributed optimizer in small: the same range map, groups and order of updates, on a CPU.

Its ranges were compared with those of megatron-core 0.16.1, for hundreds of models and groups.
"""
