"""What every test run needs, wherever it starts."""

from __future__ import annotations

from hypothesis import settings

from tests.support import sampling

pytest_plugins = ["tests.support.contract_plugin", "tests.support.order_plugin"]

# How long an example takes says more about the machine than about us.
settings.register_profile("conroi", deadline=None, print_blob=True)
settings.load_profile("conroi")


def pytest_configure() -> None:
    sampling.seed()  # before workers start, so that all collect the same tests


def pytest_report_header() -> str:
    return f"sampled parameters: {sampling.SEED}={sampling.seed()}"
