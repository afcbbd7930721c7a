"""Environments with other releases of lancedb, each an overlay on the packages of this one.

    python -m tools.client_environments FOLDER 0.40.0 0.39.0 0.38.0

makes FOLDER/lancedb-0.39.0 and so on from PyPI, and prints for each the interpreter to run. What this environment has
(conroi, pylance, pyarrow) is seen through a .pth file; lancedb itself comes from the overlay.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

RELEASES = ("0.40.0", "0.39.0", "0.38.0")
"""The newest release, and two before it."""


def environment(folder: Path, release: str) -> Path:
    """The interpreter of an environment with this release of lancedb; made if it is not there."""
    home = folder / f"lancedb-{release}"
    python = home / "bin" / "python"
    if not (home / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        site = next((home / "lib").glob("python*")) / "site-packages"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                str(site),
                f"lancedb=={release}",
            ],
            check=True,
        )
        shared = [sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], *_sources()]
        (site / "zz-shared.pth").write_text("\n".join(dict.fromkeys(shared)) + "\n")
        (home / "done").touch()
    return python


def _sources() -> list[str]:
    """Where conroi itself is imported from, if it is not in the site packages."""
    import conroi

    return [str(Path(conroi.__file__).parent.parent)]


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    for release in arguments[1:] or RELEASES:
        print(release, environment(Path(arguments[0]), release))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
