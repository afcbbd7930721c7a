"""Run alone in a process, so that its peak memory is that of one engine: python -m benchmarks.memory ENGINE FOLDER."""

from __future__ import annotations

import importlib
import resource
import sys
from pathlib import Path


def main(name: str, folder: str) -> None:
    """Print the peak after the imports and after the work, in MB."""
    engines = importlib.import_module("benchmarks.engines")
    engine = next(found for found in engines.ALL if found.name == name)
    batch = engines.rows(100)
    imported = _peak_mb()
    table = engine.open(Path(folder))
    for _ in range(5):
        table.append(batch)
    table.count()
    print(imported, _peak_mb())


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
