"""How tensors are cut and how a process holds them."""
