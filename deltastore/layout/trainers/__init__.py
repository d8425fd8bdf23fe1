"""Layouts of trainers: how they name, stack, fuse, pad and cut the tensors of a model."""
