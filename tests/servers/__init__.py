"""Real S3 servers on loopback, for tests and benchmarks.

The fixtures ``weed`` (SeaweedFS: keeps every promise), ``moto`` (a mock that keeps them too) and ``s3rver``
(ignores conditions: must be refused) each start their server when a test first asks for it. All take the same
credentials, which are in the environment from then on.
"""
