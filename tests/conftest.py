"""What every test runs under: the same drawn examples on every machine, no clock, servers on loopback."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ("tests.servers.fixtures",)

settings.register_profile("deltastore", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("deltastore")
