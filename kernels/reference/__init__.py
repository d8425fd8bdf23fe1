"""The contract of every kernel in NumPy: obviously right first, fast second."""
