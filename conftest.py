"""What every test run needs, wherever it starts."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from tests.support import sampling

SOURCE = Path(__file__).parent / "src"

pytest_plugins = ["tests.support.contract_plugin", "tests.support.order_plugin"]

# How long an example takes says more about the machine than about us.
settings.register_profile("conroi", deadline=None, print_blob=True)
settings.load_profile("conroi")


FAST_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Programs that tests start live for seconds: a Java that optimizes for hours would take most of the time."""
CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""Archive of Spark's classes: see tools/java_archive.py."""
WITH_CLASSES = f" -XX:SharedArchiveFile={CLASSES} -Xlog:disable -Xlog:all=off"


def pytest_configure() -> None:
    has_classes = CLASSES.exists() and CLASSES.stat().st_size > 0 and " " not in str(CLASSES)
    os.environ.setdefault("JAVA_TOOL_OPTIONS", FAST_JAVA + (WITH_CLASSES if has_classes else ""))
    sampling.seed()  # before workers start, so that all collect the same tests


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The examples in docstrings. `--doctest-modules` would look for them in every test, too, which takes seconds."""
    if file_path.suffix != ".py" or SOURCE not in file_path.parents or ">>> " not in file_path.read_text("utf-8"):
        return None
    return DoctestModule.from_parent(parent, path=file_path)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without collections of garbage, which would look at a growing heap again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Ten thousand tests are a million objects, which no collection of garbage needs to look at again."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    return f"sampled parameters: {sampling.SEED}={sampling.seed()}"
