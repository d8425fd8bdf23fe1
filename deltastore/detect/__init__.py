"""Finding what changed since the last version, chunk by chunk; nothing model-sized is built on the way."""
