"""What every test run needs, wherever it starts."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["tests.support.contract_plugin"]

# How long an example takes says more about the machine than about us.
settings.register_profile("conroi", deadline=None, print_blob=True)
settings.load_profile("conroi")
