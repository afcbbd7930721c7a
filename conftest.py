"""What every test run needs, wherever it starts."""

from __future__ import annotations

pytest_plugins = ["tests.support.contract_plugin"]
