"""Environments with other releases of lancedb, each an overlay on the packages of this one.

    python -m tools.client_environments FOLDER 0.40.0 0.39.0 0.38.0

makes FOLDER/lancedb-0.39.0 and so on from PyPI, and prints for each the interpreter to run. What this environment has
(conroi, pylance, pyarrow) is seen through a .pth file; lancedb itself comes from the overlay.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.overlays import overlay

RELEASES = ("0.40.0", "0.39.0", "0.38.0")
"""The newest release, and two before it."""


def environment(folder: Path, release: str) -> Path:
    """The interpreter of an environment with this release of lancedb; made if it is not there."""
    return overlay(folder / f"lancedb-{release}", [f"lancedb=={release}"])


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    for release in arguments[1:] or RELEASES:
        print(release, environment(Path(arguments[0]), release))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
