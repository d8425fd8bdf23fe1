"""JSON Schemas, and what writes them."""
