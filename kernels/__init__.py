"""The inner loops: one contract, several backends.

    backend    written in   runs on                what it is for
    reference  NumPy        everywhere             the contract: obviously right, and the oracle of every test
    cpu        C++          everywhere             the same answers at memory speed; built with the package
    triton     Triton       a CUDA GPU             the same answers on tensors that stand there

A caller names the backend it wants by importing it. Nothing here chooses one for it, and nothing falls back:
a backend that cannot run says so when it is imported.
"""
