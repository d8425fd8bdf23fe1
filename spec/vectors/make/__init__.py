"""One module per vector file."""
