"""Distribution of this package to executors that do not have it."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import conroi
from conroi.stores.process_folders import process_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ship(spark: SparkSession) -> None:
    """Send conroi itself to the executors of this session; what it imports (pylance, pyarrow, …) they must have.

    Call it once, before the first query, where conroi is not installed on the executors.
    """
    spark.addArtifacts(_archive(), pyfile=True)


@cache
def _archive() -> str:
    temporary = process_folder("conroi-ship-")
    root = Path(conroi.__file__).parent
    archive = Path(temporary) / f"conroi-{conroi.__version__}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        files = sorted(root.rglob("*.py"))
        for folder in sorted({file.parent for file in files}):
            packed.write(folder, folder.relative_to(root.parent).as_posix())  # those without __init__ need it
        for file in files:
            packed.write(file, file.relative_to(root.parent).as_posix())
    return str(archive)
